// Any bytes as a capture. Either a graph that verifies, or an error. Most mutations keep
// the text JSON and change one value of it, because random bytes rarely get past the parser.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "capture/exported.h"
#include "ir/graph_text.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace {

std::string_view as_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

void collect(ac::Json& value, std::vector<ac::Json*>& found) {
  found.push_back(&value);
  if (value.is_structured())
    for (ac::Json& child : value) collect(child, found);
}

const std::vector<ac::Json>& odd_values() {
  static const std::vector<ac::Json> values{nullptr,
                                            true,
                                            0,
                                            1,
                                            -1,
                                            2,
                                            7,
                                            65536,
                                            1e300,
                                            -0.5,
                                            9223372036854775807,
                                            18446744073709551615u,
                                            std::int64_t{-9223372036854775807} - 1,
                                            "",
                                            "S",
                                            "x",
                                            "nan",
                                            "-inf",
                                            "float16",
                                            "bool",
                                            ac::Json::array(),
                                            ac::Json::object(),
                                            {{"dim", "S"}},
                                            {{"dim", {"floordiv", "S", 0}}},
                                            {{"ref", "x"}},
                                            {{"dtype", "int64"}},
                                            {"add", "S", -1},
                                            {"mul", "S", "S"},
                                            {1, "S"}};
  return values;
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned int seed) {
  std::minstd_rand random(seed);
  ac::Json root = ac::Json::parse(as_text(data, size), nullptr, false);
  if (root.is_discarded() || random() % 8 == 0) return LLVMFuzzerMutate(data, size, max_size);
  std::vector<ac::Json*> values;
  collect(root, values);
  const auto pick = [&](const auto& from) -> decltype(auto) {
    return from[random() % from.size()];
  };
  ac::Json& target = *pick(values);
  switch (random() % 4) {
    case 0:
      target = ac::Json(pick(odd_values()));
      break;
    case 1:
      target = ac::Json(*pick(values));
      break;
    case 2:
      if (target.is_array() && !target.empty()) target.erase(target.begin());
      break;
    default:
      if (target.is_number_integer()) {
        const auto value = target.get<std::uint64_t>();  // wraps around, where a signed one may not
        target = static_cast<std::int64_t>(random() % 2 ? value + 1 : value - 1);
      }
      if (target.is_array()) target.push_back(ac::Json(*pick(values)));
  }
  const std::string text = root.dump(-1, ' ', false, ac::Json::error_handler_t::replace);
  if (text.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, text.data(), text.size());
  return text.size();
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const ac::Model model = ac::parse_exported(as_text(data, size), "fuzz.json");
    ac::parse_graph(ac::print(model.graph), "printed");
  } catch (const ac::Error& error) {
    AC_ASSERT(error.fault() == ac::Fault::bad_input);
  }
  return 0;
}
