#include "text/template/scopes.h"

#include <map>
#include <optional>
#include <set>

#include "text/template/builtins.h"

namespace ac::jinja {
namespace {

constexpr std::size_t kMaxBranchNames = 200'000;  // names of scopes, once for each `if` in them

struct FunctionScope {
  FunctionScope* outer = nullptr;
  int depth = 0;
  int slots = 0;
  std::size_t branch_names = 0;  // of the whole template, in its outermost function
};

struct Place {
  const FunctionScope* function = nullptr;
  int slot = -1;
};

// A place as it is seen from a function within which it lies.
Ref seen_from(const FunctionScope& function, const Place& place) {
  return {function.depth - place.function->depth, place.slot};
}

// The names of a scope. A branch of an `if` works on a copy; the places stay those of the scope.
class Symbols {
 public:
  Symbols(FunctionScope& function, const Symbols* parent)
      : function_(&function),
        parent_(parent),
        places_(std::make_shared<std::map<std::string, Place>>()) {}

  const Place* find(const std::string& name) const {
    const auto found = refs_.find(name);
    if (found != refs_.end()) return &found->second;
    return parent_ != nullptr ? parent_->find(name) : nullptr;
  }

  void store(const std::string& name) {
    stores_.insert(name);
    if (refs_.count(name) > 0) return;
    const Place* outer = parent_ != nullptr ? parent_->find(name) : nullptr;
    if (outer != nullptr)
      define(name, Load{Load::How::alias, 0, name, seen_from(*function_, *outer)});
    else
      define(name, Load{Load::How::missing, 0, name, {}});
  }

  void load(const std::string& name) {
    if (find(name) == nullptr) define(name, Load{Load::How::input, 0, name, {}});
  }

  // Set by whoever enters the scope.
  Ref parameter(const std::string& name) {
    stores_.insert(name);
    return seen_from(*function_, define(name, std::nullopt));
  }

  // What the branches of an `if` store may be unset after it, and then means what it meant before.
  void merge(const std::vector<Symbols>& branches) {
    std::set<std::string> stores;
    for (const Symbols& branch : branches)
      for (const std::string& name : branch.stores_)
        if (stores_.count(name) == 0) stores.insert(name);
    for (const Symbols& branch : branches) {
      for (const auto& [name, place] : branch.refs_) refs_[name] = place;
      for (const auto& [slot, load] : branch.loads_) loads_[slot] = load;
      stores_.insert(branch.stores_.begin(), branch.stores_.end());
    }
    for (const std::string& name : stores) {
      const int slot = refs_.at(name).slot;
      const Place* outer = parent_ != nullptr ? parent_->find(name) : nullptr;
      if (outer != nullptr)
        loads_[slot] = Load{Load::How::alias, slot, name, seen_from(*function_, *outer)};
      else
        loads_[slot] = Load{Load::How::input, slot, name, {}};
    }
  }

  Scope scope() const {
    Scope scope;
    for (const auto& [slot, load] : loads_)
      if (load) scope.loads.push_back(*load);
    return scope;
  }

  // A copy for each of two branches.
  std::vector<Symbols> branches(Position at) const {
    FunctionScope* root = function_;
    while (root->outer != nullptr) root = root->outer;
    root->branch_names += refs_.size();
    if (root->branch_names > kMaxBranchNames)
      throw SyntaxError{at, "the template has too many names and branches"};
    return std::vector<Symbols>(2, *this);
  }

  FunctionScope& function() const { return *function_; }
  Ref ref(const std::string& name) const { return seen_from(*function_, *find(name)); }

 private:
  const Place& define(const std::string& name, std::optional<Load> load) {
    auto [place, is_new] = places_->try_emplace(name, Place{function_, function_->slots});
    if (is_new) ++function_->slots;
    if (load) load->slot = place->second.slot;
    loads_[place->second.slot] = std::move(load);
    return refs_[name] = place->second;
  }

  FunctionScope* function_;
  const Symbols* parent_;
  std::shared_ptr<std::map<std::string, Place>> places_;
  std::map<std::string, Place> refs_;
  std::map<int, std::optional<Load>> loads_;
  std::set<std::string> stores_;
};

// --- which names a scope loads and stores

void visit(const Expr* expr, Symbols& symbols);

void visit_all(const std::vector<ExprPtr>& exprs, Symbols& symbols) {
  for (const ExprPtr& expr : exprs) visit(expr.get(), symbols);
}

void visit(const Expr* expr, Symbols& symbols) {
  if (expr == nullptr) return;
  if (expr->kind == Expr::Kind::name || expr->kind == Expr::Kind::namespace_ref)
    symbols.load(expr->name);
  visit_all(expr->items, symbols);
}

void visit_target(const Expr& target, Symbols& symbols, bool parameters) {
  if (target.kind == Expr::Kind::namespace_ref) symbols.load(target.name);
  if (target.kind == Expr::Kind::name) {
    if (parameters)
      symbols.parameter(target.name);
    else
      symbols.store(target.name);
  }
  for (const ExprPtr& item : target.items) visit_target(*item, symbols, parameters);
}

void visit(const Body& body, Symbols& symbols);

// A statement as part of the scope that it stands in: scopes of its own are left out.
void visit(const Stmt& statement, Symbols& symbols) {
  switch (statement.kind) {
    case Stmt::Kind::output:
      visit_all(statement.exprs, symbols);
      break;
    case Stmt::Kind::if_: {
      visit(statement.exprs[0].get(), symbols);
      std::vector<Symbols> branches = symbols.branches(statement.at);
      visit(statement.body, branches[0]);
      visit(statement.else_, branches[1]);
      symbols.merge(branches);
      break;
    }
    case Stmt::Kind::for_:
      visit(statement.value.get(), symbols);
      break;
    case Stmt::Kind::set:
      visit(statement.value.get(), symbols);
      visit_target(*statement.targets[0], symbols, false);
      break;
    case Stmt::Kind::set_block:
      visit_target(*statement.targets[0], symbols, false);
      break;
    case Stmt::Kind::with:
      visit_all(statement.exprs, symbols);
      break;
    case Stmt::Kind::macro:
      symbols.store(statement.callee->name);
      break;
    case Stmt::Kind::call_block:
      visit(statement.value.get(), symbols);
      break;
    case Stmt::Kind::filter_block:
      visit(statement.filter.get(), symbols);
      break;
    case Stmt::Kind::text:
    case Stmt::Kind::generation:
    case Stmt::Kind::break_:
    case Stmt::Kind::continue_:
      break;
  }
}

void visit(const Body& body, Symbols& symbols) {
  for (const auto& statement : body) visit(*statement, symbols);
}

// --- whether a body reads a special name

bool reads(const Expr* expr, std::string_view name) {
  if (expr == nullptr) return false;
  if (expr->kind == Expr::Kind::name && expr->name == name) return true;
  for (const ExprPtr& item : expr->items)
    if (reads(item.get(), name)) return true;
  return false;
}

bool reads(const Body& body, std::string_view name);

bool reads(const Stmt& statement, std::string_view name) {
  for (const ExprPtr& expr : statement.exprs)
    if (reads(expr.get(), name)) return true;
  if (statement.callee != nullptr)
    for (const MacroParameter& parameter : statement.callee->parameters)
      if (reads(parameter.fallback.get(), name)) return true;
  return reads(statement.value.get(), name) || reads(statement.filter.get(), name) ||
         reads(statement.body, name) || reads(statement.else_, name);
}

bool reads(const Body& body, std::string_view name) {
  for (const auto& statement : body)
    if (reads(*statement, name)) return true;
  return false;
}

// --- places

class Resolver {
 public:
  void run(Syntax& syntax) {
    FunctionScope root;
    Symbols symbols(root, nullptr);
    visit(syntax.body, symbols);
    syntax.scope = symbols.scope();
    resolve(syntax.body, symbols, false);
    syntax.slots = root.slots;
  }

 private:
  void resolve(Expr* expr, const Symbols& symbols, bool soft) {
    if (expr == nullptr) return;
    if (expr->kind == Expr::Kind::name || expr->kind == Expr::Kind::namespace_ref)
      expr->ref = symbols.ref(expr->name);
    if (expr->kind == Expr::Kind::conditional) soft = true;
    const bool filter = expr->kind == Expr::Kind::filter;
    if ((filter || expr->kind == Expr::Kind::test) && !soft &&
        !(filter ? has_filter(expr->name) : has_test(expr->name)))
      throw SyntaxError{expr->at,
                        fmt::format("No {} named '{}'.", filter ? "filter" : "test", expr->name)};
    for (const ExprPtr& item : expr->items) resolve(item.get(), symbols, soft);
  }

  void resolve(const Body& body, const Symbols& symbols, bool soft) {
    for (const auto& statement : body) resolve(*statement, symbols, soft);
  }

  // `soft`: within a branch, where an unknown filter is an error only once it is reached.
  void resolve(Stmt& statement, const Symbols& symbols, bool soft) {
    for (const ExprPtr& target : statement.targets)
      if (statement.kind == Stmt::Kind::set || statement.kind == Stmt::Kind::set_block) {
        if (in_loop_ > 0) check_loop_target(*target);
        resolve(target.get(), symbols, soft);
      }
    switch (statement.kind) {
      case Stmt::Kind::text:
        break;
      case Stmt::Kind::output:
        resolve_all(statement.exprs, symbols, soft);
        break;
      case Stmt::Kind::if_:
        resolve(statement.exprs[0].get(), symbols, true);
        resolve(statement.body, symbols, true);
        resolve(statement.else_, symbols, true);
        break;
      case Stmt::Kind::for_:
        resolve_for(statement, symbols, soft);
        break;
      case Stmt::Kind::set:
        resolve(statement.value.get(), symbols, soft);
        break;
      case Stmt::Kind::set_block:
      case Stmt::Kind::filter_block: {
        Symbols inner(symbols.function(), &symbols);
        visit(statement.body, inner);
        visit(statement.filter.get(), inner);
        statement.scope = inner.scope();
        resolve(statement.body, inner, false);
        resolve(statement.filter.get(), inner, false);
        break;
      }
      case Stmt::Kind::with: {
        Symbols inner(symbols.function(), &symbols);
        for (const ExprPtr& target : statement.targets) visit_target(*target, inner, true);
        visit(statement.body, inner);
        statement.scope = inner.scope();
        resolve_all(statement.exprs, symbols, soft);
        resolve_all(statement.targets, inner, false);
        resolve(statement.body, inner, false);
        break;
      }
      case Stmt::Kind::macro:
        statement.ref = symbols.ref(statement.callee->name);
        resolve_callee(statement, symbols);
        break;
      case Stmt::Kind::call_block:
        resolve(statement.value.get(), symbols, soft);
        resolve_callee(statement, symbols);
        break;
      case Stmt::Kind::generation:
        resolve_callee(statement, symbols);
        break;
      case Stmt::Kind::break_:
      case Stmt::Kind::continue_:
        if (breakable_ == 0)
          throw SyntaxError{statement.at, statement.kind == Stmt::Kind::break_
                                              ? "'break' outside loop"
                                              : "'continue' outside loop"};
        break;
    }
  }

  void resolve_all(const std::vector<ExprPtr>& exprs, const Symbols& symbols, bool soft) {
    for (const ExprPtr& expr : exprs) resolve(expr.get(), symbols, soft);
  }

  static void check_loop_target(const Expr& target) {
    if (target.kind == Expr::Kind::name && target.name == "loop")
      throw SyntaxError{target.at, "Can't assign to special loop variable in for-loop target"};
    for (const ExprPtr& item : target.items) check_loop_target(*item);
  }

  void resolve_for(Stmt& statement, const Symbols& symbols, bool soft) {
    check_loop_target(*statement.targets[0]);
    resolve(statement.value.get(), symbols, soft);
    statement.uses_loop = statement.recursive || reads(statement.body, "loop");
    // The body of a recursive loop is a function: it is entered again from within.
    FunctionScope own{.outer = &symbols.function(), .depth = symbols.function().depth + 1};
    FunctionScope& function = statement.recursive ? own : symbols.function();
    Symbols body(function, &symbols), otherwise(function, &symbols), test(function, &symbols);
    if (statement.uses_loop) statement.ref = body.parameter("loop");
    visit_target(*statement.targets[0], body, true);
    visit(statement.body, body);
    statement.scope = body.scope();
    visit(statement.else_, otherwise);
    statement.else_scope = otherwise.scope();
    if (statement.exprs[0] != nullptr) {
      visit_target(*statement.test_target, test, true);
      visit(statement.exprs[0].get(), test);
      statement.test_scope = test.scope();
      resolve(statement.test_target.get(), test, false);
      resolve(statement.exprs[0].get(), test, false);
    }
    resolve(statement.targets[0].get(), body, false);
    ++in_loop_;
    ++breakable_;
    resolve(statement.body, body, false);
    --breakable_;
    resolve(statement.else_, otherwise, false);
    --in_loop_;
    if (statement.recursive) {
      statement.callee = std::make_unique<Callee>();
      statement.callee->slots = own.slots;
    }
  }

  void resolve_callee(Stmt& statement, const Symbols& symbols) {
    Callee& callee = *statement.callee;
    FunctionScope function{.outer = &symbols.function(), .depth = symbols.function().depth + 1};
    Symbols inner(function, &symbols);
    bool own_caller = false, own_kwargs = false, own_varargs = false;
    for (MacroParameter& parameter : callee.parameters) {
      parameter.ref = inner.parameter(parameter.name);
      own_caller |= parameter.name == "caller";
      own_kwargs |= parameter.name == "kwargs";
      own_varargs |= parameter.name == "varargs";
      if (parameter.name == "caller" && parameter.fallback == nullptr &&
          reads(statement.body, "caller"))
        throw SyntaxError{statement.at,
                          "When defining macros or call blocks the special \"caller\" argument "
                          "must be omitted or be given a default."};
    }
    callee.takes_caller = reads(statement.body, "caller");
    callee.takes_kwargs = !own_kwargs && reads(statement.body, "kwargs");
    callee.takes_varargs = !own_varargs && reads(statement.body, "varargs");
    if (callee.takes_caller && !own_caller) callee.caller = inner.parameter("caller");
    if (callee.takes_kwargs) callee.kwargs = inner.parameter("kwargs");
    if (callee.takes_varargs) callee.varargs = inner.parameter("varargs");
    for (MacroParameter& parameter : callee.parameters) visit(parameter.fallback.get(), inner);
    visit(statement.body, inner);
    statement.scope = inner.scope();
    const int breakable = std::exchange(breakable_, 0);
    for (MacroParameter& parameter : callee.parameters)
      resolve(parameter.fallback.get(), inner, false);
    resolve(statement.body, inner, false);
    breakable_ = breakable;
    callee.slots = function.slots;
  }

  int in_loop_ = 0, breakable_ = 0;
};

}  // namespace

void resolve_names(Syntax& syntax) { Resolver().run(syntax); }

}  // namespace ac::jinja
