// Any bytes as a printed graph or step. What parses must print and parse back the same.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "ir/graph_text.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto try_parse = [&](auto parse) {
    try {
      const auto parsed = parse(text, "fuzz");
      const std::string printed = ac::print(parsed);
      AC_ASSERT(ac::print(parse(printed, "printed")) == printed);
      ac::to_json(parsed).dump();
    } catch (const ac::Error& error) {
      AC_ASSERT(error.fault() == ac::Fault::bad_input);
    }
  };
  try_parse(ac::parse_graph);
  try_parse(ac::parse_step);
  return 0;
}
