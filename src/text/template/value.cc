#include "text/template/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/template/characters.h"

namespace ac::jinja {
namespace {

constexpr std::size_t kIndexed = 8;  // larger dicts have an index

int deepest(const std::vector<Value>& values) {
  int depth = 0;
  for (const Value& value : values) depth = std::max(depth, nesting(value));
  return depth;
}

int one_deeper(int depth) {
  if (depth >= kMaxNesting) fail("a value is nested more than {} deep", kMaxNesting);
  return depth + 1;
}

class Lazy : public Iterator {
 public:
  Lazy(std::string type_name, const Value& source, std::function<bool(Value&)> next)
      : name_(std::move(type_name)),
        next_(std::move(next)),
        depth_(one_deeper(jinja::nesting(source))) {}
  std::string type_name() const override { return name_; }
  std::string repr() const override { return "<" + name_ + " object>"; }
  bool next(Value& item) override {
    work(1);
    const Nested nested;
    return next_(item);
  }
  int nesting() const override { return depth_; }

 private:
  std::string name_;
  std::function<bool(Value&)> next_;
  int depth_;
  Charge charge_{256};
};

[[noreturn]] void fail_undefined(const Undefined& undefined) { throw Failure(undefined.message); }

void append_repr(TextBuilder& out, const Value& value) {
  work(1);
  if (const String* string = value.as_string()) {
    if (string->markup) out += "Markup(";
    out += repr_text(string->text);
    if (string->markup) out += ')';
  } else if (const List* list = value.as_sequence()) {
    out += list->is_tuple() ? '(' : '[';
    for (std::size_t i = 0; i < list->items.size(); ++i) {
      if (i > 0) out += ", ";
      append_repr(out, list->items[i]);
    }
    if (list->is_tuple() && list->items.size() == 1) out += ',';
    out += list->is_tuple() ? ')' : ']';
  } else if (const Dict* dict = value.as_dict()) {
    out += '{';
    for (std::size_t i = 0; i < dict->items.size(); ++i) {
      if (i > 0) out += ", ";
      append_repr(out, dict->items[i].first);
      out += ": ";
      append_repr(out, dict->items[i].second);
    }
    out += '}';
  } else if (const Object* object = value.as_object()) {
    const Nested nested;  // a namespace may hold itself
    out += object->repr();
  } else if (value.as_undefined() != nullptr) {
    out += "Undefined";
  } else {
    out += to_text(value);
  }
}

}  // namespace

String::String(std::string value, bool is_markup)
    : text(std::move(value)),
      length(count_characters(text)),
      markup(is_markup),
      charge_(text.size() + 96) {
  work(1 + text.size() / 64);
}

List::List(std::vector<Value> values, Kind what)
    : items(std::move(values)),
      kind(what),
      depth(one_deeper(deepest(items))),
      charge_(items.size() * sizeof(Value) + 96) {
  work(1 + items.size() / 4);
}

Dict::Dict(Items entries) {
  work(1 + entries.size());
  charge_ = std::make_unique<Charge>(entries.size() * (2 * sizeof(Value) + 32) + 128);
  for (auto& [key, value] : entries) {
    depth = std::max(depth, one_deeper(std::max(nesting(key), nesting(value))));
    if (const Value* found = find(key)) {
      const_cast<Value&>(*found) = std::move(value);
      continue;
    }
    const std::size_t hashed = hash(key);
    items.emplace_back(std::move(key), std::move(value));
    if (items.size() == kIndexed + 1)
      for (std::size_t i = 0; i < kIndexed; ++i) index_.emplace(hash(items[i].first), i);
    if (items.size() > kIndexed) index_.emplace(hashed, items.size() - 1);
  }
}

const Value* Dict::find(const Value& key) const {
  const std::size_t hashed = hash(key);  // also refuses what cannot be a key
  if (items.size() <= kIndexed) {
    for (const auto& [held, value] : items)
      if (equal(held, key)) return &value;
    return nullptr;
  }
  const auto [begin, end] = index_.equal_range(hashed);
  for (auto at = begin; at != end; ++at)
    if (equal(items[at->second].first, key)) return &items[at->second].second;
  return nullptr;
}

const Value* Dict::find(std::string_view key) const {
  const auto same = [key](const Value& held) {
    return held.as_string() != nullptr && held.as_string()->text == key;
  };
  if (items.size() <= kIndexed) {
    for (const auto& [held, value] : items)
      if (same(held)) return &value;
    return nullptr;
  }
  const auto [begin, end] = index_.equal_range(std::hash<std::string_view>()(key));
  for (auto at = begin; at != end; ++at)
    if (same(items[at->second].first)) return &items[at->second].second;
  return nullptr;
}

Value Value::undefined(std::string message) {
  Value value;
  value.data_ = std::make_shared<const Undefined>(Undefined{std::move(message)});
  return value;
}

Value Value::list(std::vector<Value> items) {
  return Value(std::make_shared<const List>(std::move(items), List::Kind::list));
}

Value Value::tuple(std::vector<Value> items) {
  return Value(std::make_shared<const List>(std::move(items), List::Kind::tuple));
}

std::int64_t Value::integer() const {
  const bool* truth = as_bool();
  return truth != nullptr ? *truth : std::get<std::int64_t>(data_);
}

double Value::real() const {
  return as_real() != nullptr ? *as_real() : static_cast<double>(integer());
}

bool Value::same_as(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  if (as_undefined() != nullptr) return as_undefined() == other.as_undefined();
  if (as_sequence() != nullptr) return as_sequence() == other.as_sequence();
  if (as_dict() != nullptr) return as_dict() == other.as_dict();
  if (as_object() != nullptr) return as_object() == other.as_object();
  return is_none() || equal(*this, other);
}

int nesting(const Value& value) {
  if (const List* list = value.as_sequence()) return list->depth;
  if (const Dict* dict = value.as_dict()) return dict->depth;
  if (const Object* object = value.as_object()) return object->nesting();
  return 0;
}

std::string Object::repr() const { return "<" + type_name() + " object>"; }
Value Object::call(Renderer&, const Arguments&) {
  fail("'{}' object is not callable", type_name());
}

std::int64_t Range::length() const {
  if (step > 0 ? start >= stop : start <= stop) return 0;
  return step > 0 ? (stop - start - 1) / step + 1 : (start - stop - 1) / -step + 1;
}

std::string Range::repr() const {
  return step == 1 ? fmt::format("range({}, {})", start, stop)
                   : fmt::format("range({}, {}, {})", start, stop, step);
}

Value Range::attribute(std::string_view name) {
  if (name == "start") return Value(start);
  if (name == "stop") return Value(stop);
  if (name == "step") return Value(step);
  return {};
}

void Namespace::set(std::string_view name, Value value) {
  for (auto& [held, old] : attributes) {
    if (held != name) continue;
    old = std::move(value);
    return;
  }
  attributes.emplace_back(std::string(name), std::move(value));
}

std::string Namespace::repr() const {
  Dict::Items items;
  for (const auto& [name, value] : attributes) items.emplace_back(Value(name), value);
  return "<Namespace " + jinja::repr(Value(std::make_shared<const Dict>(std::move(items)))) + ">";
}

Value Namespace::attribute(std::string_view name) {
  for (const auto& [held, value] : attributes)
    if (held == name) return value;
  return {};
}

std::string type_name(const Value& value) {
  if (const String* string = value.as_string()) return string->markup ? "Markup" : "str";
  if (const List* list = value.as_sequence()) return list->is_tuple() ? "tuple" : "list";
  if (const Object* object = value.as_object()) return object->type_name();
  if (value.as_dict() != nullptr) return "dict";
  if (value.as_undefined() != nullptr) return "Undefined";
  if (value.as_bool() != nullptr) return "bool";
  if (value.is_plain_integer()) return "int";
  return value.as_real() != nullptr ? "float" : "NoneType";
}

std::string described(const Value& value) {
  if (value.is_none()) return "None";
  const std::string name = type_name(value);
  if (name == "Markup") return "markupsafe.Markup object";
  if (value.as<Namespace>() != nullptr)
    return "transformers.utils.chat_template_utils.TemplateNamespace object";
  return name + " object";
}

bool truth(const Value& value) {
  if (const bool* boolean = value.as_bool()) return *boolean;
  if (value.is_integer()) return value.integer() != 0;
  if (const double* real = value.as_real()) return *real != 0;
  if (const String* string = value.as_string()) return !string->text.empty();
  if (const List* list = value.as_sequence()) return !list->items.empty();
  if (const Dict* dict = value.as_dict()) return !dict->items.empty();
  if (const Range* range = value.as<Range>()) return range->length() > 0;
  if (const View* view = value.as<View>()) return truth(view->items);
  return value.as_object() != nullptr;
}

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
  const std::size_t e = text.find('e');
  int exponent = 0;
  const char* digits = text.data() + e + 1 + (text[e + 1] == '+');
  std::from_chars(digits, end, exponent);
  const auto format =
      exponent < -4 || exponent >= 16 ? std::chars_format::scientific : std::chars_format::fixed;
  std::string result(buffer, std::to_chars(buffer, buffer + sizeof buffer, value, format).ptr);
  if (format == std::chars_format::fixed && result.find('.') == std::string::npos) result += ".0";
  return result;
}

std::string to_text(const Value& value) {
  if (const String* string = value.as_string()) return string->text;
  if (value.as_undefined() != nullptr) return "";
  if (value.is_none()) return "None";
  if (const bool* boolean = value.as_bool()) return *boolean ? "True" : "False";
  if (value.is_integer()) return fmt::format("{}", value.integer());
  if (const double* real = value.as_real()) return real_text(*real);
  return repr(value);
}

std::string repr_text(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  TextBuilder out;
  out += quote;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t character = next_character(text, at);
    if (character == static_cast<char32_t>(quote) || character == '\\') {
      out += '\\';
      out += static_cast<char>(character);
    } else if (character == '\n') {
      out += "\\n";
    } else if (character == '\r') {
      out += "\\r";
    } else if (character == '\t') {
      out += "\\t";
    } else if (is_printable(character)) {
      out += text.substr(begin, at - begin);
    } else if (character < 0x100) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(character));
    } else if (character < 0x10000) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(character));
    } else {
      out += fmt::format("\\U{:08x}", static_cast<unsigned>(character));
    }
  }
  out += quote;
  return out.take();
}

std::string repr(const Value& value) {
  TextBuilder out;
  append_repr(out, value);
  return out.take();
}

bool equal(const Value& a, const Value& b) {
  work(1);
  if (a.is_number() && b.is_number())
    return a.is_integer() && b.is_integer() ? a.integer() == b.integer() : a.real() == b.real();
  if (a.as_string() != nullptr && b.as_string() != nullptr) {
    if (a.as_string() == b.as_string()) return true;
    work(a.as_string()->text.size() / 64);
    return a.as_string()->text == b.as_string()->text;
  }
  if (const List *left = a.as_sequence(), *right = b.as_sequence();
      left != nullptr && right != nullptr) {
    if (left == right) return true;
    if (left->is_tuple() != right->is_tuple() || left->items.size() != right->items.size())
      return false;
    for (std::size_t i = 0; i < left->items.size(); ++i)
      if (!equal(left->items[i], right->items[i])) return false;
    return true;
  }
  if (const Dict *left = a.as_dict(), *right = b.as_dict(); left != nullptr && right != nullptr) {
    if (left == right) return true;
    if (left->items.size() != right->items.size()) return false;
    for (const auto& [key, value] : left->items) {
      const Value* other = right->find(key);
      if (other == nullptr || !equal(value, *other)) return false;
    }
    return true;
  }
  if (a.as_undefined() != nullptr && b.as_undefined() != nullptr) return true;
  if (const Range *left = a.as<Range>(), *right = b.as<Range>();
      left != nullptr && right != nullptr) {
    const std::int64_t length = left->length();
    return length == right->length() &&
           (length == 0 ||
            (left->start == right->start && (length == 1 || left->step == right->step)));
  }
  return a.same_as(b);
}

int compare(const Value& a, const Value& b, const char* sign) {
  work(1);
  const auto order = [](const auto& left, const auto& right) {
    return left < right ? -1 : right < left ? 1 : 0;
  };
  if (const Undefined* undefined = a.as_undefined()) fail_undefined(*undefined);
  if (const Undefined* undefined = b.as_undefined()) fail_undefined(*undefined);
  if (a.is_integer() && b.is_integer()) return order(a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return order(a.real(), b.real());
  if (a.as_string() != nullptr && b.as_string() != nullptr) {
    work(std::min(a.as_string()->text.size(), b.as_string()->text.size()) / 64);
    return order(a.as_string()->text, b.as_string()->text);
  }
  const List *left = a.as_sequence(), *right = b.as_sequence();
  if (left == nullptr || right == nullptr || left->is_tuple() != right->is_tuple())
    fail("'{}' not supported between instances of '{}' and '{}'", sign, type_name(a), type_name(b));
  const std::size_t common = std::min(left->items.size(), right->items.size());
  for (std::size_t i = 0; i < common; ++i)
    if (!equal(left->items[i], right->items[i]))
      return compare(left->items[i], right->items[i], sign);
  return order(left->items.size(), right->items.size());
}

std::size_t hash(const Value& value) {
  work(1);
  if (const String* string = value.as_string()) {
    work(string->text.size() / 64);
    return std::hash<std::string_view>()(string->text);
  }
  if (value.is_number()) return std::hash<double>()(value.real());
  if (const List* list = value.as_sequence(); list != nullptr && list->is_tuple()) {
    std::size_t hashed = 17;
    for (const Value& item : list->items) hashed = hashed * 1000003 + hash(item);
    return hashed;
  }
  if (value.as_sequence() != nullptr || value.as_dict() != nullptr)
    fail("unhashable type: '{}'", type_name(value));
  return std::hash<const void*>()(value.as_object());
}

bool contains(const Value& container, const Value& item) {
  if (const String* string = container.as_string()) {
    const String* part = item.as_string();
    if (part == nullptr)
      fail("'in <string>' requires string as left operand, not {}", type_name(item));
    work(1 + string->text.size() / 16);
    return string->text.find(part->text) != std::string::npos;
  }
  if (const Dict* dict = container.as_dict()) return dict->find(item) != nullptr;
  if (!is_iterable(container)) fail("argument of type '{}' is not iterable", type_name(container));
  bool found = false;
  for_each(container, [&](const Value& held) {
    found = held.same_as(item) || equal(held, item);
    return !found;
  });
  return found;
}

bool is_iterable(const Value& value) {
  return value.as_string() != nullptr || value.as_sequence() != nullptr ||
         value.as_dict() != nullptr || value.as_undefined() != nullptr ||
         value.as<Range>() != nullptr || value.as<View>() != nullptr ||
         value.as<Iterator>() != nullptr;
}

void for_each(const Value& iterable, const std::function<bool(const Value&)>& each) {
  const std::shared_ptr<Iterator> iterator = iterate(iterable);
  for (Value item; iterator->next(item);)
    if (!each(item)) return;
}

std::vector<Value> items_of(const Value& iterable) {
  if (const List* list = iterable.as_sequence()) return list->items;
  std::vector<Value> items;
  for_each(iterable, [&](const Value& item) {
    items.push_back(item);
    return true;
  });
  return items;
}

std::shared_ptr<Iterator> iterate(const Value& iterable) {
  if (auto* iterator = iterable.as<Iterator>())
    return std::static_pointer_cast<Iterator>(iterator->shared_from_this());
  if (const View* view = iterable.as<View>()) return iterate(view->items);
  if (!is_iterable(iterable)) fail("'{}' object is not iterable", type_name(iterable));
  std::function<bool(Value&)> next;
  std::size_t at = 0;
  if (iterable.as_string() != nullptr) {
    next = [iterable, at](Value& item) mutable {
      const std::string& text = iterable.as_string()->text;
      if (at >= text.size()) return false;
      const std::size_t begin = at;
      next_character(text, at);
      item = Value(text.substr(begin, at - begin));
      return true;
    };
  } else if (iterable.as_sequence() != nullptr) {
    next = [iterable, at](Value& item) mutable {
      if (at >= iterable.as_sequence()->items.size()) return false;
      item = iterable.as_sequence()->items[at++];
      return true;
    };
  } else if (iterable.as_dict() != nullptr) {
    next = [iterable, at](Value& item) mutable {
      if (at >= iterable.as_dict()->items.size()) return false;
      item = iterable.as_dict()->items[at++].first;
      return true;
    };
  } else if (iterable.as<Range>() != nullptr) {
    next = [iterable, at](Value& item) mutable {
      const auto* range = iterable.as<Range>();
      if (static_cast<std::int64_t>(at) >= range->length()) return false;
      item = range->at(static_cast<std::int64_t>(at++));
      return true;
    };
  } else {  // undefined
    next = [](Value&) { return false; };
  }
  return std::make_shared<Lazy>(type_name(iterable) + "_iterator", iterable, std::move(next));
}

Value lazily(std::string type_name, const Value& source, std::function<bool(Value&)> next) {
  return Value(std::shared_ptr<Object>(
      std::make_shared<Lazy>(std::move(type_name), source, std::move(next))));
}

std::int64_t length(const Value& value) {
  if (const String* string = value.as_string()) return static_cast<std::int64_t>(string->length);
  if (const List* list = value.as_sequence()) return static_cast<std::int64_t>(list->items.size());
  if (const Dict* dict = value.as_dict()) return static_cast<std::int64_t>(dict->items.size());
  if (const Range* range = value.as<Range>()) return range->length();
  if (const View* view = value.as<View>()) return length(view->items);
  if (value.as_undefined() != nullptr) return 0;
  fail("object of type '{}' has no len()", type_name(value));
}

}  // namespace ac::jinja
