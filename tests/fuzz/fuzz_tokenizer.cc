// Any bytes as a tokenizer.json, and any as a text: an error, or tokens that decode as a stream
// does, and as one that begins in their middle does once it is settled.
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
      ac::text::Detokenizer stream(tokenizer, special), middle(tokenizer, special, true);
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const bool settled = middle.is_settled();
        const std::string part = stream.push(ids[i]);
        AC_ASSERT(ac::text::is_utf8(part));
        streamed += part;
        if (i < ids.size() / 2) continue;
        const std::string same = middle.push(ids[i]);
        AC_ASSERT(!settled || same == part);
      }
      const std::string last = stream.finish();
      AC_ASSERT(!middle.is_settled() || middle.finish() == last);
      streamed += last;
      AC_ASSERT(streamed == decoded);
    }
  } catch (const ac::Error&) {
  }
  return 0;
}
