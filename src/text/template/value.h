// Values of a template, as Python has them: None, bool, int, float, str, list, tuple, dict, and
// objects (functions, iterators, namespaces, loops). Strings, lists, tuples and dicts never change;
// a template runs in Jinja's immutable sandbox.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "text/template/meter.h"

namespace ac::jinja {

// What ends a rendering; whoever renders adds the place in the template.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Failure(fmt::format(format, std::forward<Args>(args)...));
}

class Value;
class Renderer;

struct String {
  explicit String(std::string text, bool is_markup = false);
  const std::string text;
  const std::size_t length;  // in characters
  const bool markup;         // escaped for HTML, or declared so
  bool ascii() const { return length == text.size(); }

 private:
  Charge charge_;
};

struct List;
struct Dict;
class Object;

struct Undefined {
  std::string message;  // of the error that using it gives
};

struct None {};

// A variable that was never set has the first alternative, which no expression gives.
class Value {
 public:
  Value() = default;
  Value(None) : data_(None()) {}
  Value(bool value) : data_(value) {}
  Value(int value) : data_(static_cast<std::int64_t>(value)) {}
  Value(std::int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(std::string text, bool markup = false)
      : data_(std::make_shared<const String>(std::move(text), markup)) {}
  Value(std::string_view text) : Value(std::string(text)) {}
  Value(std::shared_ptr<const List> list) : data_(std::move(list)) {}
  Value(std::shared_ptr<const Dict> dict) : data_(std::move(dict)) {}
  Value(std::shared_ptr<Object> object) : data_(std::move(object)) {}
  static Value undefined(std::string message);
  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  static Value size(std::size_t size) { return Value(static_cast<std::int64_t>(size)); }

  bool is_missing() const { return data_.index() == 0; }
  bool is_none() const { return holds<None>(); }
  const Undefined* as_undefined() const { return pointer<std::shared_ptr<const Undefined>>(); }
  const bool* as_bool() const { return std::get_if<bool>(&data_); }
  const double* as_real() const { return std::get_if<double>(&data_); }
  const String* as_string() const { return pointer<std::shared_ptr<const String>>(); }
  const List* as_sequence() const { return pointer<std::shared_ptr<const List>>(); }
  const Dict* as_dict() const { return pointer<std::shared_ptr<const Dict>>(); }
  Object* as_object() const { return pointer<std::shared_ptr<Object>>(); }
  template <class T>
  T* as() const {
    return dynamic_cast<T*>(as_object());
  }
  // A bool counts as an int, as in Python; null for all else.
  bool is_integer() const { return holds<std::int64_t>() || holds<bool>(); }
  bool is_number() const { return is_integer() || holds<double>(); }
  bool is_plain_integer() const { return holds<std::int64_t>(); }
  std::int64_t integer() const;  // of what is_integer()
  double real() const;           // of what is_number()

  // `a is b`: the same object; equal scalars of one type are.
  bool same_as(const Value& other) const;

 private:
  template <class T>
  bool holds() const {
    return std::holds_alternative<T>(data_);
  }
  template <class P>
  auto pointer() const -> decltype(std::declval<P>().get()) {
    const P* held = std::get_if<P>(&data_);
    return held != nullptr ? held->get() : nullptr;
  }

  std::variant<std::monostate, None, bool, std::int64_t, double, std::shared_ptr<const Undefined>,
               std::shared_ptr<const String>, std::shared_ptr<const List>,
               std::shared_ptr<const Dict>, std::shared_ptr<Object>>
      data_;
};

// How deep a value is nested: refused beyond kMaxNesting, so that whatever recurses over values
// ends, their destructors among them.
inline constexpr int kMaxNesting = 200;
int nesting(const Value& value);

struct List {
  enum class Kind { list, tuple, group };  // a group of groupby() has the names grouper and list
  List(std::vector<Value> values, Kind kind);
  const std::vector<Value> items;
  const Kind kind;
  const int depth;
  bool is_tuple() const { return kind != Kind::list; }

 private:
  Charge charge_;
};

struct Dict {
  using Items = std::vector<std::pair<Value, Value>>;
  explicit Dict(Items entries);  // the last of equal keys counts, in the first one's place
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  Items items;
  int depth = 1;

 private:
  std::unordered_multimap<std::size_t, std::size_t> index_;  // from hashes to items
  std::unique_ptr<Charge> charge_;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

class Object : public std::enable_shared_from_this<Object> {
 public:
  virtual ~Object() = default;
  virtual std::string type_name() const = 0;
  virtual std::string repr() const;
  virtual bool callable() const { return false; }
  virtual Value call(Renderer&, const Arguments&);
  // The attribute, or a missing value.
  virtual Value attribute(std::string_view) { return {}; }
  virtual int nesting() const { return 0; }
};

// Gives its items once, each when it is asked for.
class Iterator : public Object {
 public:
  virtual bool next(Value& item) = 0;
};

std::string repr(const Value& value);
std::string repr_text(std::string_view text);  // repr() of a string

class Function : public Object {
 public:
  using Body = std::function<Value(Renderer&, const Arguments&)>;
  Function(std::string name, Body body, int nesting = 0)
      : name_(std::move(name)), body_(std::move(body)), nesting_(nesting) {}
  std::string type_name() const override { return "function"; }
  std::string repr() const override { return "<function " + name_ + ">"; }
  bool callable() const override { return true; }
  Value call(Renderer& renderer, const Arguments& arguments) override {
    return body_(renderer, arguments);
  }
  int nesting() const override { return nesting_; }

 private:
  std::string name_;
  Body body_;
  int nesting_;
};

// What keys(), values() and items() of a dict give: a list that is no list.
struct View : Object {
  View(std::string type, Value list) : type(std::move(type)), items(std::move(list)) {}
  const std::string type;
  const Value items;
  std::string type_name() const override { return type; }
  std::string repr() const override { return type + "(" + jinja::repr(items) + ")"; }
  int nesting() const override { return jinja::nesting(items); }
};

struct Range : Object {
  Range(std::int64_t first, std::int64_t end, std::int64_t by)
      : start(first), stop(end), step(by) {}
  const std::int64_t start, stop, step;
  std::int64_t length() const;
  Value at(std::int64_t index) const { return Value(start + index * step); }
  std::string type_name() const override { return "range"; }
  std::string repr() const override;
  Value attribute(std::string_view name) override;
};

struct Namespace : Object {
  std::vector<std::pair<std::string, Value>> attributes;
  void set(std::string_view name, Value value);
  std::string type_name() const override { return "Namespace"; }
  std::string repr() const override;
  Value attribute(std::string_view name) override;
};

std::string type_name(const Value& value);  // "str", "dict", ...
std::string described(const Value& value);  // "str object", "None", as Jinja's messages have it
bool truth(const Value& value);
std::string to_text(const Value& value);  // str()
std::string real_text(double value);
bool equal(const Value& a, const Value& b);
// Below 0, 0 or above; `sign` is the operator that is named where the two have no order.
int compare(const Value& a, const Value& b, const char* sign);
std::size_t hash(const Value& value);
bool contains(const Value& container, const Value& item);

bool is_iterable(const Value& value);
// Calls `each` for all items, until it returns false.
void for_each(const Value& iterable, const std::function<bool(const Value&)>& each);
std::vector<Value> items_of(const Value& iterable);
std::shared_ptr<Iterator> iterate(const Value& iterable);
// An iterator with the type's name as Python has it, whose items `next` gives.
Value lazily(std::string type_name, const Value& source, std::function<bool(Value&)> next);
// len(); fails for what has none.
std::int64_t length(const Value& value);

}  // namespace ac::jinja
