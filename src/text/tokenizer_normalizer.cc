#include "text/tokenizer_normalizer.h"

#include <utility>

#include "text/byte_characters.h"
#include "text/tokenizer_pattern.h"
#include "text/unicode.h"

namespace ac::text {
namespace {

// A step that is a function of the text.
template <class Function>
class Step : public Normalizer {
 public:
  explicit Step(Function function) : function_(std::move(function)) {}
  void apply(NormalizedText& text) const override { function_(text); }

 private:
  Function function_;
};
template <class Function>
std::unique_ptr<const Normalizer> step(Function function) {
  return std::make_unique<Step<Function>>(std::move(function));
}

// Each character becomes what `write(out, character)` appends. Where the first becomes nothing, the
// text no longer begins where the input does.
template <class Write>
auto by_character(Write write) {
  return step([write](NormalizedText& text) {
    std::string out;
    out.reserve(text.text.size());
    for (std::size_t at = 0; at < text.text.size();) {
      const bool first = at == 0;
      write(out, next_character(text.text, at));
      if (first && out.empty()) text.at_start = false;
    }
    text.text = std::move(out);
  });
}

auto in_form(NormalForm form) {
  return step([form](NormalizedText& text) { text.text = normal_form(text.text, form); });
}

auto lowercase() { return by_character(append_lowercase); }

void strip(NormalizedText& text, bool left, bool right) {
  std::size_t begin = 0, end = text.text.size();
  while (left && begin < end) {
    std::size_t next = begin;
    if (!is_white_space(next_character(text.text, next))) break;
    begin = next;
  }
  while (right && end > begin) {
    std::size_t before = character_before(text.text, end), at = before;
    if (!is_white_space(next_character(text.text, at))) break;
    end = before;
  }
  if (begin > 0) text.at_start = false;
  text.text = text.text.substr(begin, end - begin);
}

void nmt(std::string& out, char32_t c) {
  if ((c >= 0x1 && c <= 0x8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F ||
      c == 0x9F)
    return;
  const bool space = c == 0x9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
                     (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                     c == 0xFEFF || c == 0xFFFD;
  append_utf8(out, space ? U' ' : c);
}

void clean(std::string& out, char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r' || is_white_space(c)) {
    // Some white space is a control character, and those go first.
    if (category(c) != Category::Cc || c == '\t' || c == '\n' || c == '\r') out += ' ';
    return;
  }
  const Category of = category(c);
  if (c == 0 || c == 0xFFFD || of == Category::Cc || of == Category::Cf || of == Category::Co)
    return;
  append_utf8(out, c);
}

void put_spaces_around_han(std::string& out, char32_t c) {
  const bool han = (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
                   (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
                   (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
                   (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
  if (han) out += ' ';
  append_utf8(out, c);
  if (han) out += ' ';
}

void read_bert(const TokenizerFields& fields, Normalizers& normalizers) {
  const bool lower = fields.boolean("lowercase");
  if (fields.boolean("clean_text")) normalizers.push_back(by_character(clean));
  if (fields.boolean("handle_chinese_chars"))
    normalizers.push_back(by_character(put_spaces_around_han));
  if (fields.boolean("strip_accents", lower)) {
    normalizers.push_back(in_form(NormalForm::nfd));
    normalizers.push_back(by_character([](std::string& out, char32_t c) {
      if (category(c) != Category::Mn) append_utf8(out, c);
    }));
  }
  if (lower) normalizers.push_back(lowercase());
}

auto replace(const TokenizerFields& fields) {
  return step([pattern = Pattern(fields, "pattern"),
               content = fields.text("content")](NormalizedText& text) {
    if (!text.text.empty()) text.text = pattern.replaced(text.text, content);
  });
}

}  // namespace

void read_normalizers(const TokenizerFields& fields, Normalizers& normalizers) {
  const std::string type = fields.text("type");
  const auto add = [&](auto one) { normalizers.push_back(std::move(one)); };
  if (type == "Sequence") {
    fields.each("normalizers",
                [&](const TokenizerFields& one) { read_normalizers(one, normalizers); });
  } else if (type == "NFC") {
    add(in_form(NormalForm::nfc));
  } else if (type == "NFD") {
    add(in_form(NormalForm::nfd));
  } else if (type == "NFKC") {
    add(in_form(NormalForm::nfkc));
  } else if (type == "NFKD") {
    add(in_form(NormalForm::nfkd));
  } else if (type == "Lowercase") {
    add(lowercase());
  } else if (type == "Strip") {
    add(step([left = fields.boolean("strip_left"), right = fields.boolean("strip_right")](
                 NormalizedText& text) { strip(text, left, right); }));
  } else if (type == "StripAccents") {
    add(by_character([](std::string& out, char32_t c) {
      if (!is_mark(c)) append_utf8(out, c);
    }));
  } else if (type == "Replace") {
    add(replace(fields));
  } else if (type == "Prepend") {
    add(step([prepend = fields.text("prepend")](NormalizedText& text) {
      if (!text.text.empty()) text.text.insert(0, prepend);
    }));
  } else if (type == "BertNormalizer" || type == "Bert") {
    read_bert(fields, normalizers);
  } else if (type == "Nmt") {
    add(by_character(nmt));
  } else if (type == "Precompiled") {
    add(read_precompiled(fields));
  } else if (type == "ByteLevel") {
    add(step([](NormalizedText& text) { text.text = as_byte_characters(text.text); }));
  } else {
    fields.refuse_type("normalizer");
  }
}

}  // namespace ac::text
