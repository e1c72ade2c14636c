#include "state/state_json.h"

namespace ac {

Json to_json(const StateSpec& state) {
  Json tensors = Json::array();
  for (const StateTensor& tensor : state.tensors) {
    tensors.push_back({{"name", tensor.name}, {"rows", tensor.rows}, {"size", tensor.size}});
    if (tensor.dtype != state.dtype) tensors.back()["dtype"] = short_name(tensor.dtype);
  }
  Json json{{"kind", state.kind_name()},
            {"dtype", short_name(state.dtype)},
            {"tensors", std::move(tensors)},
            {"window", state.window}};
  if (state.slots > 0) json["slots"] = state.slots;
  if (!state.module.empty()) json["module"] = state.module;
  return json;
}

}  // namespace ac
