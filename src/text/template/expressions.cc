#include "text/template/expressions.h"

#include <algorithm>

namespace ac::jinja {

std::string describe(const Token& token) {
  switch (token.kind) {
    case Token::Kind::text:
      return "template data / text";
    case Token::Kind::block_begin:
      return "begin of statement block";
    case Token::Kind::block_end:
      return "end of statement block";
    case Token::Kind::variable_begin:
      return "begin of print statement";
    case Token::Kind::variable_end:
      return "end of print statement";
    case Token::Kind::string:
      return "string";
    case Token::Kind::end:
      return "end of template";
    default:
      return token.text;
  }
}

ExprPtr ExpressionParser::make(Expr::Kind kind, Position at) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->at = at;
  return expr;
}

void ExpressionParser::add(Expr& parent, ExprPtr child) const {
  if (child != nullptr) parent.depth = std::max(parent.depth, child->depth + 1);
  if (parent.depth > kMaxExprDepth)
    fail_here(
        fmt::format("an expression of more than {} operations within each other", kMaxExprDepth));
  parent.items.push_back(std::move(child));
}

ExprPtr ExpressionParser::binary(Expr::Kind kind, std::string name, Position at, ExprPtr left,
                                 ExprPtr right) const {
  ExprPtr result = make(kind, at);
  result->name = std::move(name);
  add(*result, std::move(left));
  add(*result, std::move(right));
  return result;
}

void ExpressionParser::check_target(const std::string& name) const {
  for (const char* other : {"true", "false", "none", "True", "False", "None"})
    if (name == other) fail_here("can't assign to 'const'");
}

ExprPtr ExpressionParser::target(bool namespaces) {
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

ExprPtr ExpressionParser::target_list(std::string_view end, bool namespaces) {
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

bool ExpressionParser::ends_tuple(std::string_view end) const {
  return is(Kind::variable_end) || is(Kind::block_end) || is_sign(")") ||
         (!end.empty() && is_name(end));
}

ExprPtr ExpressionParser::tuple(bool conditional, std::string_view end, bool parentheses) {
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

ExprPtr ExpressionParser::expression() {
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

ExprPtr ExpressionParser::disjunction() {
  const Position at = current().at;
  ExprPtr left = conjunction();
  while (skip_name("or"))
    left = binary(Expr::Kind::logical_or, {}, at, std::move(left), conjunction());
  return left;
}

ExprPtr ExpressionParser::conjunction() {
  const Position at = current().at;
  ExprPtr left = negation();
  while (skip_name("and"))
    left = binary(Expr::Kind::logical_and, {}, at, std::move(left), negation());
  return left;
}

ExprPtr ExpressionParser::negation() {
  if (!is_name("not")) return comparison();
  const Level level(*this);
  ExprPtr result = make(Expr::Kind::logical_not, take().at);
  add(*result, negation());
  return result;
}

ExprPtr ExpressionParser::comparison() {
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

ExprPtr ExpressionParser::sum() {
  const Position at = current().at;
  ExprPtr left = concatenation();
  while (is_sign("+") || is_sign("-")) {
    std::string sign = take().text;
    left = binary(Expr::Kind::binary, std::move(sign), at, std::move(left), concatenation());
  }
  return left;
}

ExprPtr ExpressionParser::concatenation() {
  ExprPtr result = make(Expr::Kind::concatenate, current().at);
  add(*result, product());
  while (skip_sign("~")) add(*result, product());
  return result->items.size() == 1 ? std::move(result->items[0]) : std::move(result);
}

ExprPtr ExpressionParser::product() {
  const Position at = current().at;
  ExprPtr left = power();
  while (is_sign("*") || is_sign("/") || is_sign("//") || is_sign("%")) {
    std::string sign = take().text;
    left = binary(Expr::Kind::binary, std::move(sign), at, std::move(left), power());
  }
  return left;
}

ExprPtr ExpressionParser::power() {
  const Position at = current().at;
  ExprPtr left = unary(true);
  while (skip_sign("**")) left = binary(Expr::Kind::binary, "**", at, std::move(left), unary(true));
  return left;
}

ExprPtr ExpressionParser::unary(bool with_filters) {
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

ExprPtr ExpressionParser::primary() {
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

ExprPtr ExpressionParser::postfix(ExprPtr result) {
  while (is_sign(".") || is_sign("[") || is_sign("("))
    result = is_sign("(") ? call(std::move(result)) : subscript(std::move(result));
  return result;
}

ExprPtr ExpressionParser::subscript(ExprPtr object) {
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

ExprPtr ExpressionParser::call(ExprPtr callee) {
  ExprPtr result = make(Expr::Kind::call, callee->at);
  add(*result, std::move(callee));
  arguments(*result);
  return result;
}

void ExpressionParser::arguments(Expr& call) {
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
      ensure(std::find(call.keywords.begin(), call.keywords.end(), keyword) == call.keywords.end());
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

ExprPtr ExpressionParser::filters_and_tests(ExprPtr result) {
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

std::string ExpressionParser::dotted_name() {
  std::string text = name();
  while (skip_sign(".")) text += "." + name();
  return text;
}

ExprPtr ExpressionParser::filters(ExprPtr result, bool begun) {
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

ExprPtr ExpressionParser::test(ExprPtr object) {
  ExprPtr result = make(Expr::Kind::test, take().at);
  const bool negated = skip_name("not");
  result->name = dotted_name();
  add(*result, std::move(object));
  const bool operand = is(Kind::name) || is(Kind::string) || is(Kind::integer) || is(Kind::real) ||
                       is_sign("[") || is_sign("{");
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

}  // namespace ac::jinja
