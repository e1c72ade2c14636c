// The cursor over a template's tokens, and expressions read from it: what statements (parser.cc)
// are made of.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/template/lexer.h"
#include "text/template/syntax.h"

namespace ac::jinja {

inline constexpr int kMaxDepth = 100;      // of tags and brackets within each other
inline constexpr int kMaxExprDepth = 500;  // of an expression, whose chains count as well

std::string describe(const Token& token);

class ExpressionParser {
 protected:
  using Kind = Token::Kind;

  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  class Level {
   public:
    explicit Level(ExpressionParser& parser) : parser_(parser) {
      if (++parser_.depth_ > kMaxDepth)
        parser_.fail_here(fmt::format("nested more than {} deep", kMaxDepth));
    }
    ~Level() { --parser_.depth_; }

   private:
    ExpressionParser& parser_;
  };

  const Token& current() const { return tokens_[at_]; }
  const Token& following() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_[at_]; }
  bool is(Kind kind) const { return current().kind == kind; }
  bool is_sign(std::string_view sign) const { return is(Kind::sign) && current().text == sign; }
  bool is_name(std::string_view name) const { return is(Kind::name) && current().text == name; }
  bool skip_sign(std::string_view sign) {
    if (!is_sign(sign)) return false;
    take();
    return true;
  }
  bool skip_name(std::string_view name) {
    if (!is_name(name)) return false;
    take();
    return true;
  }
  [[noreturn]] void fail_here(std::string message) const {
    throw SyntaxError{current().at, std::move(message)};
  }
  [[noreturn]] void expected(std::string_view what) const {
    if (is(Kind::end)) fail_here(fmt::format("unexpected end of template, expected '{}'.", what));
    fail_here(fmt::format("expected token '{}', got '{}'", what, describe(current())));
  }
  void expect_sign(std::string_view sign) {
    if (!skip_sign(sign)) expected(sign);
  }
  void expect_name(std::string_view name) {
    if (!skip_name(name)) expected(name);
  }
  void expect(Kind kind, std::string_view what) {
    if (!is(kind)) expected(what);
    take();
  }
  std::string name() {
    if (!is(Kind::name)) expected("name");
    return take().text;
  }

  ExprPtr make(Expr::Kind kind, Position at) const;
  void add(Expr& parent, ExprPtr child) const;
  ExprPtr binary(Expr::Kind kind, std::string name, Position at, ExprPtr left, ExprPtr right) const;
  void check_target(const std::string& name) const;
  ExprPtr target(bool namespaces);
  // One target, or several as a tuple, up to the name `end`.
  ExprPtr target_list(std::string_view end, bool namespaces);
  bool ends_tuple(std::string_view end) const;
  // An expression, or several with commas between them.
  ExprPtr tuple(bool conditional = true, std::string_view end = {}, bool parentheses = false);
  ExprPtr expression();
  ExprPtr disjunction();
  ExprPtr conjunction();
  ExprPtr negation();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr concatenation();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filters);
  ExprPtr primary();
  ExprPtr postfix(ExprPtr result);
  ExprPtr subscript(ExprPtr object);
  ExprPtr call(ExprPtr callee);
  void arguments(Expr& call);
  ExprPtr filters_and_tests(ExprPtr result);
  std::string dotted_name();
  ExprPtr filters(ExprPtr result, bool begun);
  ExprPtr test(ExprPtr object);

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace ac::jinja
