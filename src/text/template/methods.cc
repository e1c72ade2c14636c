#include <algorithm>

#include "text/template/builtins.h"
#include "text/template/string_methods.h"

namespace ac::jinja {
namespace {

Value function(std::string name, const Value& self, std::function<Value(const Arguments&)> body) {
  return Value(std::shared_ptr<Object>(std::make_shared<Function>(
      std::move(name),
      [body = std::move(body)](Renderer&, const Arguments& arguments) { return body(arguments); },
      nesting(self))));
}

// What the sandbox does not let a template touch: it is undefined, and using it is an error.
Value unsafe(const Value& object, std::string_view name) {
  return Value::undefined(fmt::format("access to attribute {} of {} object is unsafe.",
                                      repr_text(name), repr_text(type_name(object))));
}

bool is_internal(std::string_view name) {
  return name.size() > 4 && name.substr(0, 2) == "__" && name.substr(name.size() - 2) == "__";
}

// keys, values or items of a dict.
Value view(const Value& dict, std::string_view what) {
  std::vector<Value> items;
  for (const auto& [key, value] : dict.as_dict()->items)
    items.push_back(what == "keys" ? key : what == "values" ? value : Value::tuple({key, value}));
  return Value(std::shared_ptr<Object>(
      std::make_shared<View>("dict_" + std::string(what), Value::list(std::move(items)))));
}

Value dict_method(const Value& dict, std::string_view name) {
  if (name == "keys" || name == "values" || name == "items")
    return function(std::string(name), dict,
                    [dict, what = std::string(name)](const Arguments& arguments) {
                      const Bound none(what, arguments, {});
                      return view(dict, what);
                    });
  if (name == "get")
    return function("get", dict, [dict](const Arguments& arguments) {
      const Bound given("get", arguments, {"key", "default"}, 1);
      const Value* found = dict.as_dict()->find(given[0]);
      return found != nullptr ? *found : given.get(1, Value(None()));
    });
  if (name == "copy") return function("copy", dict, [dict](const Arguments&) { return dict; });
  for (const char* other : {"clear", "pop", "popitem", "setdefault", "update"})
    if (name == other) return unsafe(dict, name);
  return {};
}

std::int64_t count_of(const Value& sequence, const Value& wanted) {
  std::int64_t count = 0;
  for_each(sequence, [&](const Value& item) {
    count += equal(item, wanted);
    return true;
  });
  return count;
}

Value index_of(const Value& sequence, const Bound& given) {
  const std::int64_t size = length(sequence);
  const auto clamp = [size](std::int64_t at) {
    return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size);
  };
  const std::int64_t first = clamp(given.integer(1, 0)), last = clamp(given.integer(2, size));
  std::int64_t at = 0, found = -1;
  for_each(sequence, [&](const Value& item) {
    if (at >= first && at < last && equal(item, given[0])) found = at;
    return ++at < last && found < 0;
  });
  if (found < 0) fail("{} is not in {}", repr(given[0]), type_name(sequence));
  return Value(found);
}

Value sequence_method(const Value& sequence, std::string_view name) {
  const List* list = sequence.as_sequence();
  if (name == "count")
    return function("count", sequence, [sequence](const Arguments& arguments) {
      return Value(count_of(sequence, Bound("count", arguments, {"value"}, 1)[0]));
    });
  if (name == "index")
    return function("index", sequence, [sequence](const Arguments& arguments) {
      return index_of(sequence, Bound("index", arguments, {"value", "start", "stop"}, 1));
    });
  if (list == nullptr) return {};
  if (list->kind == List::Kind::group && name == "grouper") return list->items[0];
  if (list->kind == List::Kind::group && name == "list") return list->items[1];
  if (list->is_tuple()) return {};
  if (name == "copy")
    return function("copy", sequence, [sequence](const Arguments&) { return sequence; });
  for (const char* other :
       {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"})
    if (name == other) return unsafe(sequence, name);
  return {};
}

}  // namespace

Value method(const Value& object, std::string_view name) {
  Value found;
  if (object.as_string() != nullptr) {
    found = string_method(object, name);
  } else if (object.as_dict() != nullptr) {
    if (is_internal(name) && object.as_dict()->find(name) != nullptr) return {};
    found = dict_method(object, name);
  } else if (object.as_sequence() != nullptr) {
    found = sequence_method(object, name);
  } else if (Object* other = object.as_object()) {
    found = other->attribute(name);
    if (found.is_missing() && object.as<Range>() != nullptr) found = sequence_method(object, name);
  } else if (object.as_real() != nullptr && name == "is_integer") {
    return function("is_integer", object, [value = object.real()](const Arguments&) {
      return Value(value == static_cast<double>(static_cast<std::int64_t>(value)));
    });
  }
  if (found.is_missing() && is_internal(name)) return unsafe(object, name);
  return found;
}

}  // namespace ac::jinja
