#include <ctime>
#include <limits>

#include "text/template/bind.h"
#include "text/template/builtins.h"
#include "text/template/renderer.h"

namespace ac::jinja {
namespace {

constexpr std::int64_t kMaxRange = 100000;  // of Jinja's sandbox
constexpr std::int64_t kFarthest = std::int64_t{1} << 60;

Value function(const char* name, Function::Body body) {
  return Value(std::shared_ptr<Object>(std::make_shared<Function>(name, std::move(body))));
}

Value make_range(Renderer&, const Arguments& arguments) {
  const Bound given("range", arguments, {"start", "stop", "step"}, 1);
  std::int64_t numbers[] = {0, 0, 1};
  for (std::size_t i = 0; i < 3; ++i) {
    if (!given.given(i)) continue;
    if (!given[i].is_integer())
      fail("'{}' object cannot be interpreted as an integer", type_name(given[i]));
    numbers[i] = given[i].integer();
    if (numbers[i] > kFarthest || numbers[i] < -kFarthest)
      fail("range() with a number beyond 2**60");
  }
  if (!given.given(1)) {
    numbers[1] = numbers[0];
    numbers[0] = 0;
  }
  if (numbers[2] == 0) fail("range() arg 3 must not be zero");
  auto range = std::make_shared<Range>(numbers[0], numbers[1], numbers[2]);
  if (range->length() > kMaxRange)
    fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", kMaxRange);
  return Value(std::shared_ptr<Object>(std::move(range)));
}

// dict(...): a mapping or pairs, and then names.
Dict::Items dict_items(const Arguments& arguments) {
  Dict::Items items;
  if (arguments.positional.size() > 1)
    fail("dict expected at most 1 argument, got {}", arguments.positional.size());
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional[0];
    if (from.as_dict() != nullptr) {
      items = from.as_dict()->items;
    } else {
      for_each(from, [&](const Value& pair) {
        const std::vector<Value> both = items_of(pair);
        if (both.size() != 2)
          fail("dictionary update sequence element has length {}; 2 is required", both.size());
        items.emplace_back(both[0], both[1]);
        return true;
      });
    }
  }
  for (const auto& [name, value] : arguments.named) items.emplace_back(Value(name), value);
  return items;
}

Value make_namespace(Renderer& renderer, const Arguments& arguments) {
  const Dict unique(dict_items(arguments));
  for (const auto& [name, value] : unique.items) {
    if (name.as_string() == nullptr) fail("a namespace's names must be strings");
    if (name.as_string()->text.starts_with('_'))
      fail(
          "Chat templates cannot store underscore-prefixed attributes on a namespace, but got "
          "{}. Please rename the attribute.",
          repr(name));
  }
  return renderer.make_namespace(unique.items);
}

class Cycler : public Object {
 public:
  explicit Cycler(Value items) : items_(std::move(items)) {}
  std::string type_name() const override { return "Cycler"; }
  int nesting() const override { return jinja::nesting(items_); }
  Value attribute(std::string_view name) override {
    const auto self = std::static_pointer_cast<Cycler>(shared_from_this());
    if (name == "current") return current();
    if (name == "items") return items_;
    if (name == "pos") return Value::size(at_);
    if (name == "reset")
      return function("reset", [self](Renderer&, const Arguments&) {
        self->at_ = 0;
        return Value(None());
      });
    if (name == "next")
      return function("next", [self](Renderer&, const Arguments&) {
        Value item = self->current();
        self->at_ = (self->at_ + 1) % self->items_.as_sequence()->items.size();
        return item;
      });
    return {};
  }

 private:
  Value current() const { return items_.as_sequence()->items[at_]; }
  Value items_;
  std::size_t at_ = 0;
};

Value make_cycler(Renderer&, const Arguments& arguments) {
  if (arguments.positional.empty()) fail("at least one item has to be provided");
  return Value(
      std::shared_ptr<Object>(std::make_shared<Cycler>(Value::tuple(arguments.positional))));
}

Value make_joiner(Renderer&, const Arguments& arguments) {
  const Bound given("joiner", arguments, {"sep"});
  return function("joiner", [separator = given.get(0, Value(", ")), used = false](
                                Renderer&, const Arguments&) mutable {
    return std::exchange(used, true) ? separator : Value("");
  });
}

Value strftime_now(Renderer&, const Arguments& arguments) {
  const Bound given("strftime_now", arguments, {"format"}, 1);
  timespec now{};
  std::timespec_get(&now, TIME_UTC);
  std::tm local{};
  localtime_r(&now.tv_sec, &local);
  local.tm_isdst = -1, local.tm_zone = "";   // Python's time has no zone: %z and %Z are empty
  std::string format = given.text(0) + "|";  // so that an empty result is no failure
  if (format.size() > 4096) fail("strftime_now() with a format of more than 4096 bytes");
  for (std::size_t at = 0; at + 1 < format.size(); ++at) {
    if (format[at] != '%') continue;
    if (format[at + 1] == 'f') format.replace(at, 2, fmt::format("{:06}", now.tv_nsec / 1000));
    ++at;
  }
  std::string text(format.size() * 64, '\0');
  text.resize(std::strftime(text.data(), text.size(), format.c_str(), &local));
  if (!text.empty()) text.pop_back();
  return Value(std::move(text));
}

Value raise_exception(Renderer&, const Arguments& arguments) {
  const Bound given("raise_exception", arguments, {"message"}, 1);
  throw Failure(to_text(given[0]));
}

}  // namespace

Value global(std::string_view name) {
  if (name == "range") return function("range", make_range);
  if (name == "dict")
    return function("dict", [](Renderer&, const Arguments& arguments) {
      return Value(std::make_shared<const Dict>(dict_items(arguments)));
    });
  if (name == "namespace") return function("namespace", make_namespace);
  if (name == "cycler") return function("cycler", make_cycler);
  if (name == "joiner") return function("joiner", make_joiner);
  if (name == "strftime_now") return function("strftime_now", strftime_now);
  if (name == "raise_exception") return function("raise_exception", raise_exception);
  if (name == "lipsum")
    return function("lipsum", [](Renderer&, const Arguments&) -> Value {
      fail("the function 'lipsum' is not supported");
    });
  return {};
}

}  // namespace ac::jinja
