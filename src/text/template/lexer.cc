#include "text/template/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

#include "text/template/characters.h"

namespace ac::jinja {
namespace {

std::string with_newlines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      text += source[i];
    }
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(with_newlines(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) outside();
    add(Token::Kind::end, source_.size());
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail_at(std::size_t byte, std::string message) {
    throw SyntaxError{position(byte), std::move(message)};
  }

  Position position(std::size_t byte) {
    // Tokens come in order, so that counting goes on from the last one.
    if (byte < counted_) {
      counted_ = 0;
      place_ = {};
    }
    for (; counted_ < byte; ++counted_) {
      if (source_[counted_] == '\n')
        place_ = {place_.line + 1, 1};
      else
        place_.column += (source_[counted_] & 0xc0) != 0x80;  // one for each character
    }
    return place_;
  }

  Token& add(Token::Kind kind, std::size_t byte, std::string text = {}) {
    tokens_.push_back({kind, position(byte), std::move(text), Value()});
    return tokens_.back();
  }

  bool looking_at(std::string_view text) const {
    return source_.compare(at_, text.size(), text) == 0;
  }

  std::size_t after_space(std::size_t at) const {
    while (at < source_.size()) {
      std::size_t next = at;
      if (!is_space(next_character(source_, next))) break;
      at = next;
    }
    return at;
  }

  // Text up to the next tag, and that tag.
  void outside() {
    std::size_t tag = source_.find('{', at_);
    while (tag != std::string::npos && tag + 1 < source_.size() && source_[tag + 1] != '%' &&
           source_[tag + 1] != '{' && source_[tag + 1] != '#')
      tag = source_.find('{', tag + 1);
    if (tag == std::string::npos || tag + 1 >= source_.size()) {
      text(at_, source_.substr(at_));
      at_ = source_.size();
      return;
    }
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const bool has_sign = sign == '-' || sign == '+';
    text(at_, before_tag(source_.substr(at_, tag - at_), kind, has_sign ? sign : '\0'));
    at_ = tag + 2 + has_sign;
    if (kind == '#') {
      comment(tag);
    } else if (kind == '{') {
      add(Token::Kind::variable_begin, tag);
      inside(true);
    } else if (const std::size_t raw_end = raw_tag("raw"); raw_end != 0) {
      at_ = raw_end;
      raw(tag);
    } else {
      add(Token::Kind::block_begin, tag);
      inside(false);
    }
    line_starting_ = source_[at_ - 1] == '\n';
  }

  void text(std::size_t at, std::string text) {
    if (!text.empty()) add(Token::Kind::text, at, std::move(text));
  }

  // What a tag leaves of the text before it.
  std::string before_tag(std::string text, char kind, char sign) const {
    if (sign == '-') return std::string(strip(text, nullptr, false, true));
    if (sign == '+' || kind == '{') return text;
    const std::size_t newline = text.rfind('\n');
    const std::size_t begin = newline == std::string::npos ? 0 : newline + 1;
    const std::string_view indent = std::string_view(text).substr(begin);
    if ((begin > 0 || line_starting_) && strip(indent, nullptr, true, false).empty())
      text.resize(begin);
    return text;
  }

  void comment(std::size_t tag) {
    const std::size_t close = source_.find("#}", at_);
    if (close == std::string::npos) fail_at(tag, "Missing end of comment tag");
    const char sign = close > at_ ? source_[close - 1] : '\0';
    at_ = close + 2;
    if (sign == '-')
      at_ = after_space(at_);
    else if (sign != '+')
      trim_newline();
  }

  void trim_newline() {
    if (at_ < source_.size() && source_[at_] == '\n') ++at_;
  }

  // Past "raw -%}" or "raw %}" at the current place, or 0.
  std::size_t raw_tag(std::string_view name) const {
    std::size_t at = after_space(at_);
    if (source_.compare(at, name.size(), name) != 0) return 0;
    at = after_space(at + name.size());
    if (source_.compare(at, 3, "-%}") == 0) return after_space(at + 3);
    return source_.compare(at, 2, "%}") == 0 ? at + 2 : 0;
  }

  void raw(std::size_t tag) {
    line_starting_ = source_[at_ - 1] == '\n';
    const std::size_t begin = at_;
    for (std::size_t close = source_.find("{%", at_); close != std::string::npos;
         close = source_.find("{%", close + 1)) {
      const char sign = close + 2 < source_.size() ? source_[close + 2] : '\0';
      const bool has_sign = sign == '-' || sign == '+';
      std::size_t at = after_space(close + 2 + has_sign);
      if (source_.compare(at, 6, "endraw") != 0) continue;
      at = after_space(at + 6);
      const bool minus = source_.compare(at, 3, "-%}") == 0;
      const bool plus = source_.compare(at, 3, "+%}") == 0;
      if (!minus && !plus && source_.compare(at, 2, "%}") != 0) continue;
      text(begin, before_tag(source_.substr(begin, close - begin), '%', has_sign ? sign : '\0'));
      at_ = at + 2 + (minus || plus);
      if (minus)
        at_ = after_space(at_);
      else if (!plus)
        trim_newline();
      return;
    }
    fail_at(tag, "Missing end of raw directive");
  }

  // The tokens of a tag, and its end.
  void inside(bool variable) {
    const std::string_view close = variable ? "}}" : "%}";
    brackets_.clear();
    while (true) {
      if (at_ >= source_.size()) return;  // the parser says what is missing
      if (brackets_.empty()) {
        const bool minus = source_[at_] == '-', plus = !variable && source_[at_] == '+';
        if (source_.compare(at_ + (minus || plus), 2, close) == 0) {
          add(variable ? Token::Kind::variable_end : Token::Kind::block_end, at_);
          at_ += 2 + (minus || plus);
          if (minus)
            at_ = after_space(at_);
          else if (!plus && !variable)
            trim_newline();
          return;
        }
      }
      const std::size_t next = after_space(at_);
      if (next != at_)
        at_ = next;
      else
        token();
    }
  }

  void token() {
    const char first = source_[at_];
    if (first >= '0' && first <= '9') return number();
    if (first == '\'' || first == '"') return string(first);
    std::size_t end = at_;
    while (end < source_.size()) {
      std::size_t next = end;
      if (!is_word(next_character(source_, next))) break;
      end = next;
    }
    if (end != at_) {
      add(Token::Kind::name, at_, source_.substr(at_, end - at_));
      at_ = end;
      return;
    }
    for (const std::string_view sign : {"//", "**", "==", "!=", ">=", "<="})
      if (looking_at(sign)) return this->sign(sign);
    if (std::string_view("+-/*%~[](){}><=.:|,;").find(first) != std::string_view::npos)
      return sign(std::string_view(source_).substr(at_, 1));
    std::size_t next = at_;
    next_character(source_, next);
    fail_at(at_, fmt::format("unexpected char {}", repr_text(source_.substr(at_, next - at_))));
  }

  void sign(std::string_view sign) {
    const std::string text(sign);
    if (text == "{" || text == "(" || text == "[") {
      brackets_ += text == "{" ? '}' : text == "(" ? ')' : ']';
    } else if (text == "}" || text == ")" || text == "]") {
      if (brackets_.empty()) fail_at(at_, fmt::format("unexpected '{}'", text));
      if (brackets_.back() != text[0])
        fail_at(at_, fmt::format("unexpected '{}', expected '{}'", text, brackets_.back()));
      brackets_.pop_back();
    }
    add(Token::Kind::sign, at_, text);
    at_ += text.size();
  }

  // Digits with single underscores between them, from `at` on; where they end.
  std::size_t digits(std::size_t at, std::string_view allowed) const {
    while (at < source_.size()) {
      if (allowed.find(source_[at]) != std::string_view::npos)
        ++at;
      else if (source_[at] == '_' && at + 1 < source_.size() &&
               allowed.find(source_[at + 1]) != std::string_view::npos)
        at += 2;
      else
        break;
    }
    return at;
  }

  void number() {
    constexpr std::string_view kDecimal = "0123456789";
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    std::size_t end = digits(at_, kDecimal);
    bool real = false;
    if (!after_dot && end + 1 < source_.size() && source_[end] == '.' &&
        kDecimal.find(source_[end + 1]) != std::string_view::npos) {
      end = digits(end + 1, kDecimal);
      real = true;
    }
    if (!after_dot && end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      std::size_t exponent = end + 1;
      if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-'))
        ++exponent;
      if (const std::size_t after = digits(exponent, kDecimal); after != exponent) {
        end = after;
        real = true;
      }
    }
    if (real) {
      std::string text = source_.substr(at_, end - at_);
      std::erase(text, '_');
      add(Token::Kind::real, at_, text).number = Value(std::strtod(text.c_str(), nullptr));
      at_ = end;
      return;
    }
    integer();
  }

  void integer() {
    int base = 10;
    std::string_view allowed = "0123456789";
    std::size_t begin = at_;
    if (source_[at_] == '0' && at_ + 2 < source_.size()) {
      const char mark = static_cast<char>(source_[at_ + 1] | 0x20);
      const std::size_t first = at_ + 2 + (source_[at_ + 2] == '_');
      const int other = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
      const std::string_view digits_of = other == 16  ? "0123456789abcdefABCDEF"
                                         : other == 8 ? "01234567"
                                                      : "01";
      if (other != 0 && first < source_.size() &&
          digits_of.find(source_[first]) != std::string_view::npos) {
        base = other;
        allowed = digits_of;
        begin = first;
      }
    }
    if (base == 10 && source_[at_] == '0') allowed = "0";  // 007 is three numbers, as in Jinja
    const std::size_t end = digits(begin, allowed);
    std::string text = source_.substr(begin, end - begin);
    std::erase(text, '_');
    std::int64_t value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value, base).ec != std::errc())
      fail_at(at_, fmt::format("the number {} does not fit into 64 bits", text));
    add(Token::Kind::integer, at_, text).number = Value(value);
    at_ = end;
  }

  void string(char quote) {
    const std::size_t begin = at_;
    std::string text;
    for (++at_;; ++at_) {
      if (at_ >= source_.size())
        fail_at(begin, fmt::format("unexpected char {}", repr_text(std::string(1, quote))));
      if (source_[at_] == quote) break;
      if (source_[at_] != '\\')
        text += source_[at_];
      else
        escape(text);
    }
    ++at_;
    add(Token::Kind::string, begin, std::move(text));
  }

  // What a backslash and the characters after it stand for; the place is then their last byte.
  void escape(std::string& text) {
    const std::size_t begin = at_;
    if (++at_ >= source_.size()) return;
    constexpr std::string_view kFrom = "\\'\"abfnrtv", kTo = "\\'\"\a\b\f\n\r\t\v";
    const char kind = source_[at_];
    if (const std::size_t plain = kFrom.find(kind); plain != std::string_view::npos) {
      text += kTo[plain];
    } else if (kind == '\n') {
    } else if (kind >= '0' && kind <= '7') {
      text_of_number(text, begin, at_, 3, 8, false);
    } else if (kind == 'x' || kind == 'u' || kind == 'U') {
      text_of_number(text, begin, at_ + 1, kind == 'x' ? 2 : kind == 'u' ? 4 : 8, 16, true);
    } else if (kind == 'N') {
      fail_at(begin, "characters by name (\\N{...}) are not supported");
    } else {
      text += '\\';
      text += kind;
    }
  }

  void text_of_number(std::string& text, std::size_t begin, std::size_t first, std::size_t digits,
                      int base, bool all) {
    const std::size_t end = std::min(first + digits, source_.size());
    std::uint32_t character = 0;
    const char* from = source_.data() + first;
    const auto [stop, error] = std::from_chars(from, source_.data() + end, character, base);
    if (error != std::errc() || (all && stop != from + digits))
      fail_at(begin, "a truncated \\x, \\u or \\U escape");
    if (character > 0x10ffff || (character >= 0xd800 && character < 0xe000))
      fail_at(begin, "an escape that is no Unicode character");
    append_character(text, character);
    at_ = static_cast<std::size_t>(stop - source_.data()) - 1;
  }

  const std::string source_;
  std::size_t at_ = 0;
  bool line_starting_ = true;
  std::string brackets_;  // that are open, as what closes them
  std::vector<Token> tokens_;
  std::size_t counted_ = 0;
  Position place_;  // of the byte `counted_`
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace ac::jinja
