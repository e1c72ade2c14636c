// A parsed template. Names are resolved to places before it runs (scopes.h), as Jinja's compiler
// does it, so that what a name means does not depend on the path that was taken.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/template/value.h"

namespace ac::jinja {

struct Position {
  int line = 1, column = 1;
};

// What is wrong with a template's text.
struct SyntaxError {
  Position at;
  std::string message;
};

// A variable's place: how many functions further out, and which of that function's slots.
struct Ref {
  int hops = 0, slot = -1;
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  enum class Kind {
    constant,
    name,           // `name`
    namespace_ref,  // `name`.`attribute`: a target only
    tuple,
    list,
    dict,       // items: key, value, key, value, ...
    attribute,  // items[0].name
    item,       // items[0][items[1]]
    slice,      // items[0][items[1]:items[2]:items[3]], where the last three may be null
    call,       // items[0](items[1], ...), see below
    filter,     // items[0] | name(items[1], ...); items[0] is null in a filter block
    test,       // items[0] is name(items[1], ...)
    negate,
    plus,
    logical_not,
    logical_and,
    logical_or,
    binary,       // `name` is the operator
    concatenate,  // ~
    compare,      // items[0] operators[0] items[1] operators[1] items[2] ...
    conditional,  // items[1] if items[0] else items[2], which may be null
  };
  Kind kind = Kind::constant;
  Position at;
  std::string name, attribute;
  Value constant;
  std::vector<ExprPtr> items;
  std::vector<std::string> operators;
  // Of a call, filter or test: after items[0] and `positional` items come the values of `keywords`,
  // then what * and ** stand before.
  std::size_t positional = 0;
  std::vector<std::string> keywords;
  bool star = false, double_star = false;
  int depth = 1;
  Ref ref;  // of a name
};

// What happens to a slot when a scope is entered.
struct Load {
  enum class How { input, alias, missing };
  How how;
  int slot;
  std::string name;  // of the template's input
  Ref other;         // that it begins as
};

struct Scope {
  std::vector<Load> loads;
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

struct MacroParameter {
  std::string name;
  ExprPtr fallback;  // may be null
  Ref ref;
};

// A body that is called: a macro, a call block, the body of a recursive loop.
struct Callee {
  std::string name;
  std::vector<MacroParameter> parameters;
  bool takes_caller = false, takes_kwargs = false, takes_varargs = false;
  Ref caller, kwargs, varargs;
  int slots = 0;
};

struct Stmt {
  enum class Kind {
    text,    // `text`
    output,  // exprs
    if_,     // exprs[0], body, else_: an elif is an if within else_
    for_,    // target, iterable, exprs[0] as the filter or null, body, else_
    set,     // target = value
    set_block,
    with,  // targets = values
    macro,
    call_block,
    filter_block,
    generation,  // renders its body
    break_,
    continue_,
  };
  Kind kind = Kind::text;
  Position at;
  std::string text;
  std::vector<ExprPtr> targets, exprs;
  ExprPtr value, filter;
  Body body, else_;
  bool recursive = false, uses_loop = false, elif = false;
  Scope scope, else_scope, test_scope;
  ExprPtr test_target;  // the target once more, with the places of the filter's scope
  Ref ref;              // of a macro's name or of `loop`
  std::unique_ptr<Callee> callee;
};

struct Syntax {
  Body body;
  Scope scope;
  int slots = 0;
};

}  // namespace ac::jinja
