// Any text as a chat template. It is refused, or renders within its limits, or ends with
// an error that has a place.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const ac::Json input = ac::parse_json(
      R"({"messages": [{"role": "user", "content": "äb c\n"},
                       {"role": "assistant", "content": null, "reasoning": "r", "n": [1, 2.5, true]}],
          "tools": [{"function": {"name": "f", "parameters": {}}}], "n": 3, "s": "<x>"})",
      "input");
  ac::jinja::Limits limits;
  limits.steps = 20'000;
  limits.bytes = std::size_t{4} << 20;
  limits.depth = 200;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const ac::ChatTemplate chat_template(text, "t");
    const std::string prompt = chat_template.render(input, limits);
    AC_ASSERT(prompt.size() <= limits.bytes);
  } catch (const ac::Error& error) {
    const std::string_view message = error.what();
    AC_ASSERT(message.starts_with("t:") && message.find('\n') == std::string_view::npos);
  }
  return 0;
}
