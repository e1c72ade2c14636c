#include "tests/mutants/tokens.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace ac::mutants {
namespace {

// Longest first.
constexpr std::array kSigns = std::to_array<std::string_view>(
    {"<<=", ">>=", "...", "->", "::", "<=", ">=", "==", "!=", "&&", "||", "++",
     "--",  "+=",  "-=",  "*=", "/=", "%=", "&=", "|=", "^=", "<<", ">>"});

bool in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  std::vector<Token> read() {
    while (at_ < text_.size()) {
      if (std::isspace(static_cast<unsigned char>(text_[at_]))) {
        if (text_[at_] == '\n') line_start_ = true;
        step(1);
      } else if (text_[at_] == '#' && line_start_) {
        directive();
      } else if (starts("//")) {
        step(std::min(text_.find('\n', at_), text_.size()) - at_);
      } else if (starts("/*")) {
        step(std::min(text_.find("*/", at_ + 2), text_.size() - 2) + 2 - at_);
      } else {
        line_start_ = false;
        token();
      }
    }
    return std::move(tokens_);
  }

 private:
  bool starts(std::string_view with) const { return text_.substr(at_).starts_with(with); }

  void step(std::size_t count) {
    line_ += static_cast<int>(std::ranges::count(text_.substr(at_, count), '\n'));
    at_ += count;
  }

  void directive() {
    std::size_t end = at_;
    do end = std::min(text_.find('\n', end + 1), text_.size());
    while (end < text_.size() && text_[end - 1] == '\\');
    std::string_view rest = text_.substr(at_ + 1, end - at_ - 1);
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    if (rest.starts_with("if")) ++conditions_;
    if (rest.starts_with("endif")) --conditions_;
    step(end - at_);
  }

  std::size_t length_of_token() const {
    const char first = text_[at_];
    const bool number = std::isdigit(static_cast<unsigned char>(first)) ||
                        (first == '.' && at_ + 1 < text_.size() &&
                         std::isdigit(static_cast<unsigned char>(text_[at_ + 1])));
    std::size_t end = at_;
    if (number) {
      // The sign of an exponent belongs to it: 0x1p-14f, 1e-5.
      const bool hex = text_.substr(at_).starts_with("0x");
      while (end < text_.size() &&
             (in_name(text_[end]) || text_[end] == '.' || text_[end] == '\'' ||
              ((text_[end] == '-' || text_[end] == '+') &&
               (hex ? text_[end - 1] == 'p' : text_[end - 1] == 'e'))))
        ++end;
    } else if (in_name(first)) {
      while (end < text_.size() && in_name(text_[end])) ++end;
    } else if (first == '"' || first == '\'') {
      for (++end; end < text_.size() && text_[end] != first; ++end)
        if (text_[end] == '\\') ++end;
      end = std::min(end + 1, text_.size());
    } else {
      for (const std::string_view sign : kSigns)
        if (starts(sign)) return sign.size();
      return 1;
    }
    return end - at_;
  }

  void token() {
    const std::size_t length = length_of_token();
    const char first = text_[at_];
    Token token{.kind = Token::Kind::sign,
                .text = text_.substr(at_, length),
                .at = at_,
                .line = line_,
                .space_before = at_ > 0 && std::isspace(static_cast<unsigned char>(text_[at_ - 1])),
                .space_after = at_ + length < text_.size() &&
                               std::isspace(static_cast<unsigned char>(text_[at_ + length]))};
    if (first == '"' || first == '\'')
      token.kind = Token::Kind::text;
    else if (std::isdigit(static_cast<unsigned char>(first)) || (first == '.' && length > 1))
      token.kind = token.text == "..." ? Token::Kind::sign : Token::Kind::number;
    else if (in_name(first))
      token.kind = Token::Kind::name;
    if (conditions_ == 0) tokens_.push_back(token);
    step(length);
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1, conditions_ = 0;
  bool line_start_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view text) { return Reader(text).read(); }

}  // namespace ac::mutants
