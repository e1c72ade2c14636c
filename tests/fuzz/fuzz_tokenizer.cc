// Any bytes as a tokenizer.json, and any as a text: an error, or tokens that decode as a stream
// does.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string all(reinterpret_cast<const char*>(data), size);
  // The file, then a zero, then the text.
  const std::size_t zero = all.find('\0');
  try {
    const auto tokenizer = ac::text::Tokenizer::parse(all.substr(0, zero), "fuzz");
    const std::string text = zero == all.npos ? "a b" : all.substr(zero + 1);
    for (const bool special : {false, true}) {
      const auto ids = tokenizer.encode(text, {.add_special = special, .parse_special = special});
      const std::string decoded = tokenizer.decode(ids, special);
      AC_ASSERT(ac::text::is_utf8(decoded));
      std::string streamed;
      ac::text::Detokenizer stream(tokenizer, special);
      for (const ac::text::TokenId id : ids) {
        const std::string part = stream.push(id);
        AC_ASSERT(ac::text::is_utf8(part));
        streamed += part;
      }
      streamed += stream.finish();
      AC_ASSERT(streamed == decoded);
    }
  } catch (const ac::Error&) {
  }
  return 0;
}
