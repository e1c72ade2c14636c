#include "text/template/parser.h"

#include <algorithm>
#include <initializer_list>

#include "text/template/expressions.h"
#include "text/template/scopes.h"

namespace ac::jinja {
namespace {

constexpr std::size_t kMaxSource = std::size_t{4} << 20;

class Parser : ExpressionParser {
 public:
  explicit Parser(std::vector<Token> tokens) : ExpressionParser(std::move(tokens)) {}

  Body run() { return statements({}); }

 private:
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
      MacroParameter parameter;
      parameter.name = name();
      check_target(parameter.name);
      if (skip_sign("="))
        parameter.fallback = expression();
      else if (!callee.parameters.empty() && callee.parameters.back().fallback != nullptr)
        fail_here("non-default argument follows default argument");
      for (const MacroParameter& other : callee.parameters)
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
