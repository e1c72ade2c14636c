// The interpreter behind render().
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/template/syntax.h"

namespace ac::jinja {

// The variables of one call of a function of the template.
struct Activation {
  Activation(int count, std::shared_ptr<Activation> around)
      : slots(static_cast<std::size_t>(count)), outer(std::move(around)) {}
  std::vector<Value> slots;
  std::shared_ptr<Activation> outer;
  bool captured = false;  // a macro refers to it

 private:
  Charge charge_{slots.size() * sizeof(Value) + 96};
};
using Frame = std::shared_ptr<Activation>;

class Loop;

class Renderer {
 public:
  Renderer(const Syntax& syntax, Value input, Meter& meter);
  ~Renderer();
  std::string run();
  Position position() const { return at_; }

  Value call(const Value& callee, const Arguments& arguments);
  Value make_namespace(Dict::Items items);

 private:
  friend class Loop;
  friend class Macro;
  enum class Flow { on, break_, continue_ };

  Value evaluate(const Expr& expr, const Frame& frame);
  Value evaluate_compare(const Expr& expr, const Frame& frame);
  Value evaluate_optional(const ExprPtr& expr, const Frame& frame);
  Arguments arguments(const Expr& call, const Frame& frame);

  Flow execute(const Body& body, const Frame& frame);
  Flow execute(const Stmt& statement, const Frame& frame);
  Flow execute_for(const Stmt& statement, const Frame& frame);
  Flow execute_captured(const Stmt& statement, const Frame& frame, std::string& text);
  void run_loop(const Stmt& statement, const Frame& frame, const Value& iterable,
                std::int64_t depth);
  std::string recurse(const Stmt& statement, const Frame& around, const Value& iterable,
                      std::int64_t depth);
  std::string run_macro(const Stmt& statement, const Frame& around, const Arguments& arguments);

  void enter(const Scope& scope, const Frame& frame);
  void assign(const Expr& target, const Frame& frame, const Value& value);
  Value resolve(const std::string& name) const;
  Value make_macro(const Stmt& statement, const Frame& frame);
  static Value& slot(const Frame& frame, const Ref& ref);

  const Syntax& syntax_;
  Meter& meter_;
  Value input_;
  TextBuilder* out_ = nullptr;
  Value block_text_;  // what the filter of a block begins with
  Position at_;
  // What may refer to itself: emptied at the end.
  std::vector<Frame> captured_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
};

}  // namespace ac::jinja
