#include "capture/model_kind.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "capture/config_fields.h"

namespace ac {
namespace {

constexpr std::array kExperts{"num_experts", "num_local_experts", "n_routed_experts",
                              "moe_num_experts"};
constexpr std::array kRecurrentPrefixes{"mamba_", "ssm_", "linear_conv_"};
constexpr std::array kRecurrentTypes{"mamba", "rwkv", "xlstm", "recurrent", "hybrid"};
constexpr std::array kLayerTypes{"full_attention", "sliding_attention"};

[[noreturn]] void recurrent(const std::string& origin, const std::string& why) {
  bad_input(
      "{}: recurrent layers, and models that mix them with attention, are not supported yet ({})",
      origin, why);
}

}  // namespace

void refuse_unsupported_kind(const Json& config, const std::string& origin) {
  if (!config.is_object()) return;
  for (const char* field : kExperts)
    if (const auto found = config.find(field);
        found != config.end() && found->is_number_integer() && *found > 1)
      bad_input("{}: a mixture of experts is not supported yet ({} is {})", origin, field,
                brief(*found));
  if (const auto type = config.find("model_type"); type != config.end() && type->is_string())
    for (const std::string_view part : kRecurrentTypes)
      if (type->get_ref<const std::string&>().find(part) != std::string::npos)
        recurrent(origin, fmt::format("model_type is {}", brief(*type)));
  for (const auto& [key, value] : config.items())
    for (const std::string_view prefix : kRecurrentPrefixes)
      if (key.starts_with(prefix) && !value.is_null())
        recurrent(origin, fmt::format("{} is {}", key, brief(value)));
  if (const auto types = config.find("layer_types"); types != config.end() && types->is_array())
    for (const Json& type : *types)
      if (type.is_string() && std::ranges::find(kLayerTypes, type) == kLayerTypes.end())
        bad_input("{}: layers of type {} are not supported yet: only full and sliding attention is",
                  origin, brief(type));
  if (const auto text = config.find("text_config"); text != config.end())
    refuse_unsupported_kind(*text, origin);
}

}  // namespace ac
