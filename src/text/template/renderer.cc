#include "text/template/renderer.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "text/template/builtins.h"
#include "text/template/operators.h"
#include "text/template/render.h"

namespace ac::jinja {

// The variable `loop` of a for loop.
class Loop : public Object {
 public:
  Loop(Renderer& renderer, const Value& iterable, std::shared_ptr<Iterator> source,
       std::int64_t depth, const Stmt* recursive, Frame around)
      : renderer_(renderer),
        iterable_(iterable),
        source_(std::move(source)),
        depth0_(depth),
        recursive_(recursive),
        around_(std::move(around)) {}

  bool advance(Value& item) {
    if (after_) {
      item = std::move(*after_);
      after_.reset();
    } else if (!source_->next(item)) {
      return false;
    }
    ++index0_;
    before_ = std::move(now_);
    now_ = item;
    return true;
  }

  // It may be kept beyond the loop, but must not hold what holds it.
  void close() {
    source_.reset();
    iterable_ = before_ = now_ = changed_ = Value();
    after_.reset();
    around_.reset();
  }

  std::string type_name() const override { return "LoopContext"; }
  std::string repr() const override {
    return fmt::format("<LoopContext {}/{}>", index0_ + 1, length_.value_or(index0_ + 1));
  }
  bool callable() const override { return true; }
  Value call(Renderer&, const Arguments& arguments) override {
    if (recursive_ == nullptr)
      fail("The loop must have the 'recursive' marker to be called recursively.");
    if (arguments.positional.size() != 1 || !arguments.named.empty() || around_ == nullptr)
      fail("a recursive loop takes one argument");
    return Value(renderer_.recurse(*recursive_, around_, arguments.positional[0], depth0_ + 1));
  }

  Value attribute(std::string_view name) override {
    if (name == "index0") return Value(index0_);
    if (name == "index") return Value(index0_ + 1);
    if (name == "first") return Value(index0_ == 0);
    if (name == "last") return Value(!peek());
    if (name == "length") return Value(length());
    if (name == "revindex") return Value(length() - index0_);
    if (name == "revindex0") return Value(length() - index0_ - 1);
    if (name == "depth") return Value(depth0_ + 1);
    if (name == "depth0") return Value(depth0_);
    if (name == "previtem")
      return index0_ == 0 || before_.is_missing() ? Value::undefined("there is no previous item")
                                                  : before_;
    if (name == "nextitem") return peek() ? *after_ : Value::undefined("there is no next item");
    if (name == "cycle" || name == "changed") {
      const auto self = std::static_pointer_cast<Loop>(shared_from_this());
      const bool cycle = name == "cycle";
      return Value(std::shared_ptr<Object>(std::make_shared<Function>(
          std::string(name), [self, cycle](Renderer&, const Arguments& arguments) {
            return cycle ? self->cycle(arguments) : self->changed(arguments);
          })));
    }
    return {};
  }

 private:
  bool peek() {
    if (after_) return true;
    Value item;
    if (source_ == nullptr || !source_->next(item)) return false;
    after_ = item;
    return true;
  }

  std::int64_t length() {
    if (length_) return *length_;
    if (source_is_whole_ && iterable_.as<Iterator>() == nullptr && !iterable_.is_missing()) {
      length_ = jinja::length(iterable_);
      return *length_;
    }
    std::vector<Value> rest;
    if (source_ != nullptr)
      for (Value item; source_->next(item);) rest.push_back(item);
    length_ = static_cast<std::int64_t>(rest.size()) + index0_ + 1 + (after_ ? 1 : 0);
    source_ = iterate(Value::list(std::move(rest)));
    return *length_;
  }

  Value cycle(const Arguments& arguments) const {
    if (arguments.positional.empty()) fail("no items for cycling given");
    const auto count = static_cast<std::int64_t>(arguments.positional.size());
    return arguments
        .positional[static_cast<std::size_t>(std::max<std::int64_t>(index0_, 0) % count)];
  }

  Value changed(const Arguments& arguments) {
    Value now = Value::tuple(arguments.positional);
    if (!changed_.is_missing() && equal(changed_, now)) return Value(false);
    changed_ = std::move(now);
    return Value(true);
  }

  Renderer& renderer_;
  Value iterable_;
  std::shared_ptr<Iterator> source_;
  std::int64_t index0_ = -1, depth0_;
  const Stmt* recursive_;
  Frame around_;
  std::optional<std::int64_t> length_;
  std::optional<Value> after_;
  Value before_, now_, changed_;

 public:
  bool source_is_whole_ = true;  // no filter stands between the iterable and the loop
};

class Macro : public Object {
 public:
  Macro(Renderer& renderer, const Stmt& statement, Frame around)
      : renderer_(renderer), statement_(statement), around_(std::move(around)) {}
  std::string type_name() const override { return "Macro"; }
  std::string repr() const override { return "<Macro " + repr_text(callee().name) + ">"; }
  bool callable() const override { return true; }
  Value call(Renderer&, const Arguments& arguments) override {
    return Value(renderer_.run_macro(statement_, around_, arguments));
  }
  Value attribute(std::string_view name) override {
    if (name == "name") return Value(callee().name);
    if (name == "catch_kwargs") return Value(callee().takes_kwargs);
    if (name == "catch_varargs") return Value(callee().takes_varargs);
    if (name == "caller") return Value(callee().takes_caller);
    if (name != "arguments") return {};
    std::vector<Value> names;
    for (const MacroParameter& parameter : callee().parameters) names.emplace_back(parameter.name);
    return Value::tuple(std::move(names));
  }

 private:
  const Callee& callee() const { return *statement_.callee; }
  Renderer& renderer_;
  const Stmt& statement_;
  Frame around_;
};

Renderer::Renderer(const Syntax& syntax, Value input, Meter& meter)
    : syntax_(syntax), meter_(meter), input_(std::move(input)) {}

Renderer::~Renderer() {
  for (const auto& each : namespaces_) each->attributes.clear();
  for (const Frame& frame : captured_) frame->slots.clear();
}

std::string Renderer::run() {
  TextBuilder out;
  out_ = &out;
  const auto frame = std::make_shared<Activation>(syntax_.slots, nullptr);
  enter(syntax_.scope, frame);
  execute(syntax_.body, frame);
  return out.take();
}

Value Renderer::call(const Value& callee, const Arguments& arguments) {
  if (const Undefined* undefined = callee.as_undefined()) throw Failure(undefined->message);
  Object* object = callee.as_object();
  if (object == nullptr || !object->callable())
    fail("'{}' object is not callable", type_name(callee));
  const Position at = at_;
  Value result = object->call(*this, arguments);
  at_ = at;
  return result;
}

Value Renderer::make_namespace(Dict::Items items) {
  meter_.work(8);
  const auto made = std::make_shared<Namespace>();
  for (auto& [name, value] : items) made->set(name.as_string()->text, std::move(value));
  namespaces_.push_back(made);
  return Value(std::shared_ptr<Object>(made));
}

// --- variables

Value& Renderer::slot(const Frame& frame, const Ref& ref) {
  Activation* at = frame.get();
  for (int hops = ref.hops; hops > 0; --hops) at = at->outer.get();
  return at->slots[static_cast<std::size_t>(ref.slot)];
}

Value Renderer::resolve(const std::string& name) const {
  if (const Value* given = input_.as_dict()->find(std::string_view(name))) return *given;
  return global(name);
}

void Renderer::enter(const Scope& scope, const Frame& frame) {
  for (const Load& load : scope.loads) {
    Value& place = frame->slots[static_cast<std::size_t>(load.slot)];
    if (load.how == Load::How::input)
      place = resolve(load.name);
    else if (load.how == Load::How::alias)
      place = slot(frame, load.other);
    else
      place = Value();
  }
}

void Renderer::assign(const Expr& target, const Frame& frame, const Value& value) {
  at_ = target.at;
  if (target.kind == Expr::Kind::name) {
    slot(frame, target.ref) = value;
    return;
  }
  if (target.kind == Expr::Kind::namespace_ref) {
    auto* space = slot(frame, target.ref).as<Namespace>();
    if (space == nullptr) fail("cannot assign attribute on non-namespace object");
    if (target.attribute[0] == '_')
      fail(
          "Chat templates cannot store underscore-prefixed attributes on a namespace, but got "
          "{}. Please rename the attribute.",
          repr_text(target.attribute));
    space->set(target.attribute, value);
    return;
  }
  if (!is_iterable(value)) fail("cannot unpack non-iterable {} object", type_name(value));
  const std::vector<Value> items = items_of(value);
  const std::size_t wanted = target.items.size();
  if (items.size() > wanted) fail("too many values to unpack (expected {})", wanted);
  if (items.size() < wanted)
    fail("not enough values to unpack (expected {}, got {})", wanted, items.size());
  for (std::size_t i = 0; i < wanted; ++i) assign(*target.items[i], frame, items[i]);
}

Value Renderer::make_macro(const Stmt& statement, const Frame& frame) {
  for (Frame at = frame; at != nullptr && !at->captured; at = at->outer) {
    at->captured = true;
    captured_.push_back(at);
  }
  return Value(std::shared_ptr<Object>(std::make_shared<Macro>(*this, statement, frame)));
}

std::string Renderer::run_macro(const Stmt& statement, const Frame& around,
                                const Arguments& arguments) {
  const Nested nested;
  const Callee& callee = *statement.callee;
  const auto frame = std::make_shared<Activation>(callee.slots, around);
  std::vector<std::pair<std::string, Value>> named = arguments.named;
  const auto take = [&named](std::string_view name) {
    for (std::size_t i = 0; i < named.size(); ++i) {
      if (named[i].first != name) continue;
      Value value = std::move(named[i].second);
      named.erase(named.begin() + static_cast<std::ptrdiff_t>(i));
      return value;
    }
    return Value();
  };
  const std::size_t wanted = callee.parameters.size();
  for (std::size_t i = 0; i < wanted; ++i) {
    const MacroParameter& parameter = callee.parameters[i];
    slot(frame, parameter.ref) =
        i < arguments.positional.size() ? arguments.positional[i] : take(parameter.name);
  }
  if (callee.takes_caller && callee.caller.slot >= 0) {
    Value caller = take("caller");
    slot(frame, callee.caller) =
        caller.is_missing() ? Value::undefined("No caller defined") : std::move(caller);
  }
  if (callee.takes_kwargs) {
    Dict::Items items;
    for (auto& [name, value] : named) items.emplace_back(Value(name), std::move(value));
    slot(frame, callee.kwargs) = Value(std::make_shared<const Dict>(std::move(items)));
  } else if (!named.empty()) {
    fail("macro {} takes no keyword argument {}", repr_text(callee.name),
         repr_text(named[0].first));
  }
  if (callee.takes_varargs) {
    std::vector<Value> rest;
    for (std::size_t i = wanted; i < arguments.positional.size(); ++i)
      rest.push_back(arguments.positional[i]);
    slot(frame, callee.varargs) = Value::tuple(std::move(rest));
  } else if (arguments.positional.size() > wanted) {
    fail("macro {} takes not more than {} argument(s)", repr_text(callee.name), wanted);
  }
  enter(statement.scope, frame);
  for (const MacroParameter& parameter : callee.parameters) {
    if (!slot(frame, parameter.ref).is_missing()) continue;
    slot(frame, parameter.ref) = parameter.fallback != nullptr
                                     ? evaluate(*parameter.fallback, frame)
                                     : Value::undefined(fmt::format("parameter {} was not provided",
                                                                    repr_text(parameter.name)));
  }
  std::string text;
  execute_captured(statement, frame, text);
  return text;
}

// --- statements

Renderer::Flow Renderer::execute(const Body& body, const Frame& frame) {
  const Nested nested;
  for (const auto& statement : body)
    if (const Flow flow = execute(*statement, frame); flow != Flow::on) return flow;
  return Flow::on;
}

// The body's output as a text.
Renderer::Flow Renderer::execute_captured(const Stmt& statement, const Frame& frame,
                                          std::string& text) {
  TextBuilder captured;
  TextBuilder* const before = std::exchange(out_, &captured);
  struct Restore {
    TextBuilder*& out;
    TextBuilder* before;
    ~Restore() { out = before; }
  } const restore{out_, before};
  const Flow flow = execute(statement.body, frame);
  text = captured.take();
  return flow;
}

Renderer::Flow Renderer::execute(const Stmt& statement, const Frame& frame) {
  meter_.work(1);
  at_ = statement.at;
  switch (statement.kind) {
    case Stmt::Kind::text:
      *out_ += statement.text;
      break;
    case Stmt::Kind::output:
      for (const ExprPtr& expr : statement.exprs) *out_ += to_text(evaluate(*expr, frame));
      break;
    case Stmt::Kind::if_:
      return execute(truth(evaluate(*statement.exprs[0], frame)) ? statement.body : statement.else_,
                     frame);
    case Stmt::Kind::for_:
      return execute_for(statement, frame);
    case Stmt::Kind::set:
      assign(*statement.targets[0], frame, evaluate(*statement.value, frame));
      break;
    case Stmt::Kind::set_block: {
      enter(statement.scope, frame);
      std::string text;
      const Flow flow = execute_captured(statement, frame, text);
      if (flow != Flow::on) return flow;
      Value value(std::move(text));
      if (statement.filter != nullptr) {
        block_text_ = value;
        value = evaluate(*statement.filter, frame);
      }
      assign(*statement.targets[0], frame, value);
      break;
    }
    case Stmt::Kind::with: {
      std::vector<Value> values;
      for (std::size_t i = 0; i < statement.targets.size(); ++i)
        values.push_back(evaluate(*statement.exprs[i], frame));
      enter(statement.scope, frame);
      for (std::size_t i = 0; i < values.size(); ++i)
        assign(*statement.targets[i], frame, values[i]);
      return execute(statement.body, frame);
    }
    case Stmt::Kind::macro:
      slot(frame, statement.ref) = make_macro(statement, frame);
      break;
    case Stmt::Kind::call_block: {
      const Expr& expr = *statement.value;
      const Value callee = evaluate(*expr.items[0], frame);
      Arguments given = arguments(expr, frame);
      given.named.emplace_back("caller", make_macro(statement, frame));
      at_ = expr.at;
      *out_ += to_text(call(callee, given));
      break;
    }
    case Stmt::Kind::generation:
      *out_ += run_macro(statement, frame, {});
      break;
    case Stmt::Kind::filter_block: {
      enter(statement.scope, frame);
      std::string text;
      const Flow flow = execute_captured(statement, frame, text);
      if (flow != Flow::on) return flow;
      block_text_ = Value(std::move(text));
      *out_ += to_text(evaluate(*statement.filter, frame));
      break;
    }
    case Stmt::Kind::break_:
      return Flow::break_;
    case Stmt::Kind::continue_:
      return Flow::continue_;
  }
  return Flow::on;
}

Renderer::Flow Renderer::execute_for(const Stmt& statement, const Frame& frame) {
  const Value iterable = evaluate(*statement.value, frame);
  if (statement.recursive)
    *out_ += recurse(statement, frame, iterable, 0);
  else
    run_loop(statement, frame, iterable, 0);
  return Flow::on;
}

std::string Renderer::recurse(const Stmt& statement, const Frame& around, const Value& iterable,
                              std::int64_t depth) {
  const Nested nested;
  const auto frame = std::make_shared<Activation>(statement.callee->slots, around);
  TextBuilder captured;
  TextBuilder* const before = std::exchange(out_, &captured);
  struct Restore {
    TextBuilder*& out;
    TextBuilder* before;
    ~Restore() { out = before; }
  } const restore{out_, before};
  run_loop(statement, frame, iterable, depth);
  return captured.take();
}

void Renderer::run_loop(const Stmt& statement, const Frame& frame, const Value& iterable,
                        std::int64_t depth) {
  const Nested nested;
  std::shared_ptr<Iterator> source = iterate(iterable);
  if (statement.exprs[0] != nullptr) {
    enter(statement.test_scope, frame);
    const Value filtered =
        lazily("generator", iterable, [this, &statement, frame, inner = source](Value& item) {
          while (inner->next(item)) {
            assign(*statement.test_target, frame, item);
            if (truth(evaluate(*statement.exprs[0], frame))) return true;
          }
          return false;
        });
    source = iterate(filtered);
  }
  std::shared_ptr<Loop> loop;
  struct Close {
    std::shared_ptr<Loop>& loop;
    ~Close() {
      if (loop != nullptr) loop->close();
    }
  } const close{loop};
  if (statement.uses_loop) {
    loop = std::make_shared<Loop>(*this, iterable, source, depth,
                                  statement.recursive ? &statement : nullptr, frame->outer);
    loop->source_is_whole_ = statement.exprs[0] == nullptr;
    slot(frame, statement.ref) = Value(std::shared_ptr<Object>(loop));
  }
  bool completed = false;  // an iteration went to its end, as Jinja decides about `else`
  for (Value item; loop != nullptr ? loop->advance(item) : source->next(item);) {
    assign(*statement.targets[0], frame, item);
    enter(statement.scope, frame);
    const Flow flow = execute(statement.body, frame);
    if (flow == Flow::break_) break;
    if (flow == Flow::on) completed = true;
  }
  if (completed || statement.else_.empty()) return;
  enter(statement.else_scope, frame);
  execute(statement.else_, frame);
}

// --- expressions

Value Renderer::evaluate_optional(const ExprPtr& expr, const Frame& frame) {
  return expr == nullptr ? Value(None()) : evaluate(*expr, frame);
}

Arguments Renderer::arguments(const Expr& call, const Frame& frame) {
  Arguments result;
  std::size_t at = 1;
  for (std::size_t i = 0; i < call.positional; ++i)
    result.positional.push_back(evaluate(*call.items[at++], frame));
  for (const std::string& keyword : call.keywords)
    result.named.emplace_back(keyword, evaluate(*call.items[at++], frame));
  if (call.star)
    for (const Value& item : items_of(evaluate(*call.items[at++], frame)))
      result.positional.push_back(item);
  if (call.double_star) {
    const Value more = evaluate(*call.items[at++], frame);
    if (more.as_dict() == nullptr)
      fail("argument after ** must be a mapping, not {}", type_name(more));
    for (const auto& [key, value] : more.as_dict()->items) {
      if (key.as_string() == nullptr) fail("keywords must be strings");
      for (const auto& given : result.named)
        if (given.first == key.as_string()->text)
          fail("got multiple values for keyword argument {}", repr(key));
      result.named.emplace_back(key.as_string()->text, value);
    }
  }
  return result;
}

Value Renderer::evaluate_compare(const Expr& expr, const Frame& frame) {
  Value left = evaluate(*expr.items[0], frame);
  for (std::size_t i = 0; i < expr.operators.size(); ++i) {
    Value right = evaluate(*expr.items[i + 1], frame);
    at_ = expr.at;
    if (!holds(expr.operators[i], left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Renderer::evaluate(const Expr& expr, const Frame& frame) {
  const Nested nested;
  meter_.work(1);
  const auto& items = expr.items;
  const auto operand = [&](std::size_t i) { return evaluate(*items[i], frame); };
  switch (expr.kind) {
    case Expr::Kind::constant:
      return expr.constant;
    case Expr::Kind::name: {
      at_ = expr.at;
      const Value& value = slot(frame, expr.ref);
      if (!value.is_missing()) return value;
      return Value::undefined(repr_text(expr.name) + " is undefined");
    }
    case Expr::Kind::namespace_ref:
      AC_UNREACHABLE();
    case Expr::Kind::tuple:
    case Expr::Kind::list: {
      std::vector<Value> values;
      for (std::size_t i = 0; i < items.size(); ++i) values.push_back(operand(i));
      return expr.kind == Expr::Kind::list ? Value::list(std::move(values))
                                           : Value::tuple(std::move(values));
    }
    case Expr::Kind::dict: {
      Dict::Items entries;
      for (std::size_t i = 0; i < items.size(); i += 2) {
        Value key = operand(i);
        entries.emplace_back(std::move(key), operand(i + 1));
      }
      at_ = expr.at;
      return Value(std::make_shared<const Dict>(std::move(entries)));
    }
    case Expr::Kind::attribute: {
      const Value object = operand(0);
      at_ = expr.at;
      return attribute_of(object, expr.name);
    }
    case Expr::Kind::item: {
      const Value object = operand(0), index = operand(1);
      at_ = expr.at;
      return item_of(object, index);
    }
    case Expr::Kind::slice: {
      const Value object = operand(0);
      const Value start = evaluate_optional(items[1], frame);
      const Value stop = evaluate_optional(items[2], frame);
      const Value step = evaluate_optional(items[3], frame);
      at_ = expr.at;
      return slice_of(object, start, stop, step);
    }
    case Expr::Kind::call: {
      const Value callee = operand(0);
      const Arguments given = arguments(expr, frame);
      at_ = expr.at;
      return call(callee, given);
    }
    case Expr::Kind::filter: {
      const Value value = items[0] != nullptr ? operand(0) : std::move(block_text_);
      const Arguments given = arguments(expr, frame);
      at_ = expr.at;
      Value result = call_filter(*this, expr.name, value, given);
      at_ = expr.at;
      return result;
    }
    case Expr::Kind::test: {
      const Value value = operand(0);
      const Arguments given = arguments(expr, frame);
      at_ = expr.at;
      return Value(call_test(*this, expr.name, value, given));
    }
    case Expr::Kind::negate:
    case Expr::Kind::plus: {
      const Value value = operand(0);
      at_ = expr.at;
      return negated(value, expr.kind == Expr::Kind::negate);
    }
    case Expr::Kind::logical_not:
      return Value(!truth(operand(0)));
    case Expr::Kind::logical_and: {
      Value left = operand(0);
      return truth(left) ? operand(1) : left;
    }
    case Expr::Kind::logical_or: {
      Value left = operand(0);
      return truth(left) ? left : operand(1);
    }
    case Expr::Kind::binary: {
      const Value left = operand(0), right = operand(1);
      at_ = expr.at;
      return arithmetic(expr.name, left, right);
    }
    case Expr::Kind::concatenate: {
      TextBuilder out;
      for (std::size_t i = 0; i < items.size(); ++i) out += to_text(operand(i));
      return Value(out.take());
    }
    case Expr::Kind::compare:
      return evaluate_compare(expr, frame);
    case Expr::Kind::conditional: {
      if (truth(operand(0))) return operand(1);
      if (items[2] != nullptr) return operand(2);
      return Value::undefined(
          "the inline if-expression evaluated to false and no else section was defined.");
    }
  }
  AC_UNREACHABLE();
}

std::string render(const Syntax& syntax, const std::function<Value()>& input,
                   const Limits& limits) {
  Meter meter(limits);
  const Meter::Use use(meter);
  Position at;
  try {
    Renderer renderer(syntax, input(), meter);
    try {
      return renderer.run();
    } catch (const Failure&) {
      at = renderer.position();
      throw;
    }
  } catch (const Failure& failure) {
    throw RenderError{at, failure.what()};
  }
}

}  // namespace ac::jinja
