#include "text/template/parser.h"

#include <algorithm>
#include <initializer_list>

#include "text/template/lexer.h"
#include "text/template/scopes.h"

namespace ac::jinja {
namespace {

using Kind = Token::Kind;
constexpr int kMaxDepth = 100;      // of tags and brackets within each other
constexpr int kMaxExprDepth = 500;  // of an expression, whose chains count as well
constexpr std::size_t kMaxSource = std::size_t{4} << 20;

std::string describe(const Token& token) {
  switch (token.kind) {
    case Kind::text:
      return "template data / text";
    case Kind::block_begin:
      return "begin of statement block";
    case Kind::block_end:
      return "end of statement block";
    case Kind::variable_begin:
      return "begin of print statement";
    case Kind::variable_end:
      return "end of print statement";
    case Kind::string:
      return "string";
    case Kind::end:
      return "end of template";
    default:
      return token.text;
  }
}

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Body run() { return statements({}); }

 private:
  class Level {
   public:
    explicit Level(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > kMaxDepth)
        parser_.fail_here(fmt::format("nested more than {} deep", kMaxDepth));
    }
    ~Level() { --parser_.depth_; }

   private:
    Parser& parser_;
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

  // --- statements

  std::unique_ptr<Stmt> make(Stmt::Kind kind) const {
    auto statement = std::make_unique<Stmt>();
    statement->kind = kind;
    statement->at = current().at;
    return statement;
  }

  // Up to a tag that is one of `ends`, which is then the current token; to the end if there is
  // none.
  Body statements(std::vector<std::string_view> ends) {
    const Level level(*this);
    Body body;
    while (!is(Kind::end)) {
      if (is(Kind::text)) {
        body.push_back(make(Stmt::Kind::text));
        body.back()->text = take().text;
      } else if (is(Kind::variable_begin)) {
        take();
        body.push_back(make(Stmt::Kind::output));
        body.back()->exprs.push_back(tuple());
        expect(Kind::variable_end, "end of print statement");
      } else {
        expect(Kind::block_begin, "begin of statement block");
        if (is(Kind::name) && std::find(ends.begin(), ends.end(), current().text) != ends.end())
          return body;
        if (std::unique_ptr<Stmt> next = statement(ends)) body.push_back(std::move(next));
        expect(Kind::block_end, "end of statement block");
      }
    }
    if (!ends.empty()) unknown_tag("Unexpected end of template.", ends);
    return body;
  }

  [[noreturn]] void unknown_tag(std::string message, const std::vector<std::string_view>& ends) {
    if (!ends.empty()) {
      message += " Jinja was looking for the following tags: ";
      for (std::size_t i = 0; i < ends.size(); ++i)
        message += fmt::format("{}'{}'", i > 0 ? " or " : "", ends[i]);
      message += fmt::format(". The innermost block that needs to be closed is '{}'.",
                             open_.empty() ? "" : open_.back());
    }
    fail_here(std::move(message));
  }

  // The rest of a tag, and what follows up to one of `ends`.
  Body body(std::initializer_list<std::string_view> ends) {
    skip_sign(":");
    expect(Kind::block_end, "end of statement block");
    return statements(ends);
  }

  std::unique_ptr<Stmt> statement(const std::vector<std::string_view>& ends) {
    if (!is(Kind::name)) fail_here("tag name expected");
    const std::string tag = current().text;
    open_.push_back(tag);
    std::unique_ptr<Stmt> result = known(tag);
    if (result == nullptr) {
      open_.pop_back();
      for (const char* other : {"include", "import", "from", "extends", "block", "autoescape"})
        if (tag == other)
          fail_here(fmt::format("the tag '{}' is not supported in chat templates", tag));
      unknown_tag(fmt::format("Encountered unknown tag '{}'.", tag), ends);
    }
    open_.pop_back();
    return result;
  }

  std::unique_ptr<Stmt> known(const std::string& tag) {
    if (tag == "for") return for_loop();
    if (tag == "if") return condition();
    if (tag == "set") return set();
    if (tag == "macro") return macro();
    if (tag == "call") return call_block();
    if (tag == "filter") return filter_block();
    if (tag == "with") return with();
    if (tag == "print") return print();
    if (tag == "generation") {
      auto result = make(Stmt::Kind::generation);
      take();
      result->callee = std::make_unique<Callee>();
      result->callee->name = "caller";
      result->body = body({"endgeneration"});
      take();
      return result;
    }
    if (tag == "break" || tag == "continue") {
      auto result = make(tag == "break" ? Stmt::Kind::break_ : Stmt::Kind::continue_);
      take();
      return result;
    }
    return nullptr;
  }

  std::unique_ptr<Stmt> for_loop() {
    auto result = make(Stmt::Kind::for_);
    take();
    const std::size_t target = at_;
    result->targets.push_back(target_list("in", false));
    if (is_name("in")) {
      // The filter has a scope of its own, and therefore a target of its own.
      const std::size_t after = at_;
      at_ = target;
      result->test_target = target_list("in", false);
      at_ = after;
    }
    expect_name("in");
    result->value = tuple(false, "recursive");
    result->exprs.emplace_back();
    if (skip_name("if")) result->exprs[0] = expression();
    result->recursive = skip_name("recursive");
    result->body = body({"endfor", "else"});
    if (take().text == "else") {
      result->else_ = body({"endfor"});
      take();
    }
    return result;
  }

  std::unique_ptr<Stmt> condition() {
    auto first = make(Stmt::Kind::if_);
    take();
    Stmt* last = first.get();
    for (int branches = 1;; ++branches) {
      last->exprs.push_back(tuple(false));
      last->body = body({"elif", "else", "endif"});
      const std::string end = take().text;
      if (end == "endif") return first;
      if (end == "else") {
        last->else_ = body({"endif"});
        take();
        return first;
      }
      if (branches >= kMaxExprDepth)
        fail_here(fmt::format("more than {} branches of one 'if'", kMaxExprDepth));
      last->else_.push_back(make(Stmt::Kind::if_));
      last = last->else_.back().get();
      last->elif = true;
    }
  }

  std::unique_ptr<Stmt> set() {
    auto result = make(Stmt::Kind::set);
    take();
    result->targets.push_back(target_list({}, true));
    if (skip_sign("=")) {
      result->value = tuple();
      return result;
    }
    result->kind = Stmt::Kind::set_block;
    result->filter = filters(nullptr, false);
    result->body = body({"endset"});
    take();
    return result;
  }

  std::unique_ptr<Stmt> with() {
    auto result = make(Stmt::Kind::with);
    take();
    while (!is(Kind::block_end)) {
      if (!result->targets.empty()) expect_sign(",");
      result->targets.push_back(target_list({}, false));
      expect_sign("=");
      result->exprs.push_back(expression());
    }
    result->body = body({"endwith"});
    take();
    return result;
  }

  std::unique_ptr<Stmt> print() {
    auto result = make(Stmt::Kind::output);
    take();
    while (!is(Kind::block_end)) {
      if (!result->exprs.empty()) expect_sign(",");
      result->exprs.push_back(expression());
    }
    return result;
  }

  void signature(Callee& callee) {
    expect_sign("(");
    while (!is_sign(")")) {
      if (!callee.parameters.empty()) expect_sign(",");
      Parameter parameter;
      parameter.name = name();
      check_target(parameter.name);
      if (skip_sign("="))
        parameter.fallback = expression();
      else if (!callee.parameters.empty() && callee.parameters.back().fallback != nullptr)
        fail_here("non-default argument follows default argument");
      for (const Parameter& other : callee.parameters)
        if (other.name == parameter.name)
          fail_here(fmt::format("two parameters are called '{}'", other.name));
      callee.parameters.push_back(std::move(parameter));
    }
    expect_sign(")");
  }

  std::unique_ptr<Stmt> macro() {
    auto result = make(Stmt::Kind::macro);
    take();
    result->callee = std::make_unique<Callee>();
    result->callee->name = name();
    check_target(result->callee->name);
    signature(*result->callee);
    result->body = body({"endmacro"});
    take();
    return result;
  }

  std::unique_ptr<Stmt> call_block() {
    auto result = make(Stmt::Kind::call_block);
    take();
    result->callee = std::make_unique<Callee>();
    result->callee->name = "caller";
    if (is_sign("(")) signature(*result->callee);
    result->value = expression();
    if (result->value->kind != Expr::Kind::call) fail_here("expected call");
    result->body = body({"endcall"});
    take();
    return result;
  }

  std::unique_ptr<Stmt> filter_block() {
    auto result = make(Stmt::Kind::filter_block);
    take();
    result->filter = filters(nullptr, true);
    result->body = body({"endfilter"});
    take();
    return result;
  }

  // --- expressions

  ExprPtr make(Expr::Kind kind, Position at) const {
    auto expr = std::make_unique<Expr>();
    expr->kind = kind;
    expr->at = at;
    return expr;
  }

  void add(Expr& parent, ExprPtr child) const {
    if (child != nullptr) parent.depth = std::max(parent.depth, child->depth + 1);
    if (parent.depth > kMaxExprDepth)
      fail_here(
          fmt::format("an expression of more than {} operations within each other", kMaxExprDepth));
    parent.items.push_back(std::move(child));
  }

  ExprPtr binary(Expr::Kind kind, std::string name, Position at, ExprPtr left,
                 ExprPtr right) const {
    ExprPtr result = make(kind, at);
    result->name = std::move(name);
    add(*result, std::move(left));
    add(*result, std::move(right));
    return result;
  }

  void check_target(const std::string& name) const {
    for (const char* other : {"true", "false", "none", "True", "False", "None"})
      if (name == other) fail_here("can't assign to 'const'");
  }

  ExprPtr target(bool namespaces) {
    if (skip_sign("(")) {
      const Level level(*this);
      ExprPtr inner = target_list({}, namespaces);
      expect_sign(")");
      return inner;
    }
    const Position at = current().at;
    if (!is(Kind::name)) fail_here(fmt::format("can't assign to '{}'", describe(current())));
    check_target(current().text);
    ExprPtr result = make(Expr::Kind::name, at);
    result->name = take().text;
    if (namespaces && skip_sign(".")) {
      result->kind = Expr::Kind::namespace_ref;
      result->attribute = name();
    }
    return result;
  }

  // One target, or several as a tuple, up to the name `end`.
  ExprPtr target_list(std::string_view end, bool namespaces) {
    ExprPtr tuple = make(Expr::Kind::tuple, current().at);
    bool comma = false;
    while (true) {
      if (is_sign(")") || is(Kind::block_end) || (!end.empty() && is_name(end))) break;
      add(*tuple, target(namespaces));
      if (!skip_sign(",")) break;
      comma = true;
    }
    if (tuple->items.empty())
      fail_here(fmt::format("Expected an expression, got '{}'", describe(current())));
    return comma ? std::move(tuple) : std::move(tuple->items[0]);
  }

  bool ends_tuple(std::string_view end) const {
    return is(Kind::variable_end) || is(Kind::block_end) || is_sign(")") ||
           (!end.empty() && is_name(end));
  }

  // An expression, or several with commas between them.
  ExprPtr tuple(bool conditional = true, std::string_view end = {}, bool parentheses = false) {
    ExprPtr result = make(Expr::Kind::tuple, current().at);
    bool comma = false;
    while (!ends_tuple(end)) {
      add(*result, conditional ? expression() : disjunction());
      if (!is_sign(",")) break;
      take();
      comma = true;
    }
    if (comma || (result->items.empty() && parentheses)) return result;
    if (result->items.empty())
      fail_here(fmt::format("Expected an expression, got '{}'", describe(current())));
    return std::move(result->items[0]);
  }

  ExprPtr expression() {
    const Level level(*this);
    Position at = current().at;
    ExprPtr result = disjunction();
    while (skip_name("if")) {
      ExprPtr choice = make(Expr::Kind::conditional, at);
      add(*choice, disjunction());
      add(*choice, std::move(result));
      add(*choice, skip_name("else") ? expression() : nullptr);
      result = std::move(choice);
      at = current().at;
    }
    return result;
  }

  ExprPtr disjunction() {
    const Position at = current().at;
    ExprPtr left = conjunction();
    while (skip_name("or"))
      left = binary(Expr::Kind::logical_or, {}, at, std::move(left), conjunction());
    return left;
  }

  ExprPtr conjunction() {
    const Position at = current().at;
    ExprPtr left = negation();
    while (skip_name("and"))
      left = binary(Expr::Kind::logical_and, {}, at, std::move(left), negation());
    return left;
  }

  ExprPtr negation() {
    if (!is_name("not")) return comparison();
    const Level level(*this);
    ExprPtr result = make(Expr::Kind::logical_not, take().at);
    add(*result, negation());
    return result;
  }

  ExprPtr comparison() {
    const Position at = current().at;
    ExprPtr result = make(Expr::Kind::compare, at);
    add(*result, sum());
    while (true) {
      std::string sign;
      for (const char* known : {"==", "!=", "<", "<=", ">", ">="})
        if (is_sign(known)) sign = known;
      if (sign.empty() && is_name("in")) sign = "in";
      if (sign.empty() && is_name("not") && following().kind == Kind::name &&
          following().text == "in") {
        sign = "not in";
        take();
      }
      if (sign.empty()) break;
      take();
      result->operators.push_back(sign);
      add(*result, sum());
    }
    return result->operators.empty() ? std::move(result->items[0]) : std::move(result);
  }

  ExprPtr sum() {
    const Position at = current().at;
    ExprPtr left = concatenation();
    while (is_sign("+") || is_sign("-")) {
      std::string sign = take().text;
      left = binary(Expr::Kind::binary, std::move(sign), at, std::move(left), concatenation());
    }
    return left;
  }

  ExprPtr concatenation() {
    ExprPtr result = make(Expr::Kind::concatenate, current().at);
    add(*result, product());
    while (skip_sign("~")) add(*result, product());
    return result->items.size() == 1 ? std::move(result->items[0]) : std::move(result);
  }

  ExprPtr product() {
    const Position at = current().at;
    ExprPtr left = power();
    while (is_sign("*") || is_sign("/") || is_sign("//") || is_sign("%")) {
      std::string sign = take().text;
      left = binary(Expr::Kind::binary, std::move(sign), at, std::move(left), power());
    }
    return left;
  }

  ExprPtr power() {
    const Position at = current().at;
    ExprPtr left = unary(true);
    while (skip_sign("**"))
      left = binary(Expr::Kind::binary, "**", at, std::move(left), unary(true));
    return left;
  }

  ExprPtr unary(bool with_filters) {
    const Level level(*this);
    ExprPtr result;
    if (is_sign("-") || is_sign("+")) {
      result = make(is_sign("-") ? Expr::Kind::negate : Expr::Kind::plus, current().at);
      take();
      add(*result, unary(false));
    } else {
      result = primary();
    }
    result = postfix(std::move(result));
    return with_filters ? filters_and_tests(std::move(result)) : std::move(result);
  }

  ExprPtr primary() {
    const Token token = current();
    ExprPtr result = make(Expr::Kind::constant, token.at);
    if (token.kind == Kind::name) {
      take();
      if (token.text == "true" || token.text == "True") {
        result->constant = Value(true);
      } else if (token.text == "false" || token.text == "False") {
        result->constant = Value(false);
      } else if (token.text == "none" || token.text == "None") {
        result->constant = Value(None());
      } else {
        result->kind = Expr::Kind::name;
        result->name = token.text;
      }
    } else if (token.kind == Kind::string) {
      std::string text;
      while (is(Kind::string)) text += take().text;
      result->constant = Value(std::move(text));
    } else if (token.kind == Kind::integer || token.kind == Kind::real) {
      result->constant = take().number;
    } else if (skip_sign("(")) {
      result = tuple(true, {}, true);
      expect_sign(")");
    } else if (skip_sign("[")) {
      result->kind = Expr::Kind::list;
      while (!is_sign("]")) {
        if (!result->items.empty()) expect_sign(",");
        if (is_sign("]")) break;
        add(*result, expression());
      }
      expect_sign("]");
    } else if (skip_sign("{")) {
      result->kind = Expr::Kind::dict;
      while (!is_sign("}")) {
        if (!result->items.empty()) expect_sign(",");
        if (is_sign("}")) break;
        add(*result, expression());
        expect_sign(":");
        add(*result, expression());
      }
      expect_sign("}");
    } else {
      fail_here(fmt::format("unexpected '{}'", describe(token)));
    }
    return result;
  }

  ExprPtr postfix(ExprPtr result) {
    while (is_sign(".") || is_sign("[") || is_sign("("))
      result = is_sign("(") ? call(std::move(result)) : subscript(std::move(result));
    return result;
  }

  ExprPtr subscript(ExprPtr object) {
    const Position at = current().at;
    ExprPtr result = make(Expr::Kind::item, at);
    add(*result, std::move(object));
    if (take().text == ".") {
      if (is(Kind::name)) {
        result->kind = Expr::Kind::attribute;
        result->name = take().text;
      } else if (is(Kind::integer)) {
        ExprPtr index = make(Expr::Kind::constant, current().at);
        index->constant = take().number;
        add(*result, std::move(index));
      } else {
        fail_here("expected name or number");
      }
      return result;
    }
    std::vector<ExprPtr> parts;
    bool slice = false;
    while (!is_sign("]")) {
      if (!parts.empty()) expect_sign(",");
      if (slice) fail_here("a slice among several subscripts is not supported");
      if (!is_sign(":")) parts.push_back(expression());
      if (!is_sign(":")) continue;
      if (parts.size() > 1) fail_here("a slice among several subscripts is not supported");
      slice = true;
      if (parts.empty()) parts.emplace_back();
      for (int i = 0; i < 2; ++i) {
        const bool more = skip_sign(":");
        const bool given = more && !is_sign(":") && !is_sign("]") && !is_sign(",");
        parts.push_back(given ? expression() : nullptr);
      }
    }
    expect_sign("]");
    if (slice) {
      result->kind = Expr::Kind::slice;
      for (ExprPtr& part : parts) add(*result, std::move(part));
    } else if (parts.size() == 1) {
      add(*result, std::move(parts[0]));
    } else {
      ExprPtr index = make(Expr::Kind::tuple, at);
      for (ExprPtr& part : parts) add(*index, std::move(part));
      add(*result, std::move(index));
    }
    return result;
  }

  ExprPtr call(ExprPtr callee) {
    ExprPtr result = make(Expr::Kind::call, callee->at);
    add(*result, std::move(callee));
    arguments(*result);
    return result;
  }

  void arguments(Expr& call) {
    const Level level(*this);
    const auto ensure = [&](bool holds) {
      if (!holds) fail_here("invalid syntax for function call expression");
    };
    expect_sign("(");
    ExprPtr star, double_star;
    std::vector<ExprPtr> named;
    bool comma = false;
    while (!is_sign(")")) {
      if (comma) {
        expect_sign(",");
        if (is_sign(")")) break;
      }
      if (skip_sign("*")) {
        ensure(star == nullptr && double_star == nullptr);
        star = expression();
      } else if (skip_sign("**")) {
        ensure(double_star == nullptr);
        double_star = expression();
      } else if (is(Kind::name) && following().kind == Kind::sign && following().text == "=") {
        ensure(double_star == nullptr);
        const std::string keyword = take().text;
        ensure(std::find(call.keywords.begin(), call.keywords.end(), keyword) ==
               call.keywords.end());
        call.keywords.push_back(keyword);
        take();
        named.push_back(expression());
      } else {
        ensure(star == nullptr && double_star == nullptr && named.empty());
        add(call, expression());
        ++call.positional;
      }
      comma = true;
    }
    expect_sign(")");
    for (ExprPtr& value : named) add(call, std::move(value));
    call.star = star != nullptr;
    call.double_star = double_star != nullptr;
    if (call.star) add(call, std::move(star));
    if (call.double_star) add(call, std::move(double_star));
  }

  ExprPtr filters_and_tests(ExprPtr result) {
    while (true) {
      if (is_sign("|"))
        result = filters(std::move(result), false);
      else if (is_name("is"))
        result = test(std::move(result));
      else if (is_sign("("))
        result = call(std::move(result));
      else
        return result;
    }
  }

  std::string dotted_name() {
    std::string text = name();
    while (skip_sign(".")) text += "." + name();
    return text;
  }

  ExprPtr filters(ExprPtr result, bool begun) {
    while (begun || skip_sign("|")) {
      begun = false;
      ExprPtr filter = make(Expr::Kind::filter, current().at);
      filter->name = dotted_name();
      add(*filter, std::move(result));
      if (is_sign("(")) arguments(*filter);
      result = std::move(filter);
    }
    return result;
  }

  ExprPtr test(ExprPtr object) {
    ExprPtr result = make(Expr::Kind::test, take().at);
    const bool negated = skip_name("not");
    result->name = dotted_name();
    add(*result, std::move(object));
    const bool operand = is(Kind::name) || is(Kind::string) || is(Kind::integer) ||
                         is(Kind::real) || is_sign("[") || is_sign("{");
    if (is_sign("(")) {
      arguments(*result);
    } else if (operand && !is_name("else") && !is_name("or") && !is_name("and")) {
      if (is_name("is")) fail_here("You cannot chain multiple tests with is");
      const Level level(*this);
      add(*result, postfix(primary()));
      result->positional = 1;
    }
    if (!negated) return result;
    ExprPtr opposite = make(Expr::Kind::logical_not, result->at);
    add(*opposite, std::move(result));
    return opposite;
  }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::vector<std::string> open_;
};

}  // namespace

Syntax parse(std::string_view source) {
  if (source.size() > kMaxSource)
    throw SyntaxError{{}, fmt::format("the template is larger than {} MiB", kMaxSource >> 20)};
  Syntax syntax;
  syntax.body = Parser(tokenize(source)).run();
  resolve_names(syntax);
  return syntax;
}

}  // namespace ac::jinja
