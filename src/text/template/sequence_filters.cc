#include "text/template/sequence_filters.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "text/template/bind.h"
#include "text/template/builtins.h"
#include "text/template/characters.h"
#include "text/template/operators.h"

namespace ac::jinja {
namespace {

Value folded(const Value& value, bool case_sensitive) {
  return !case_sensitive && value.as_string() != nullptr ? Value(to_lower(value.as_string()->text))
                                                         : value;
}

// Stable, also when reversed, as Python's sorted() is.
void sort_by(std::vector<std::pair<Value, Value>>& keyed, bool reverse) {
  std::stable_sort(keyed.begin(), keyed.end(), [reverse](const auto& a, const auto& b) {
    return compare(reverse ? b.first : a.first, reverse ? a.first : b.first, "<") < 0;
  });
}

std::vector<Value> values_of(std::vector<std::pair<Value, Value>> keyed) {
  std::vector<Value> values;
  for (auto& [key, value] : keyed) values.push_back(std::move(value));
  return values;
}

// An iterator over what `make` gives, which is asked when the first item is wanted.
Value deferred(const Value& source, std::function<std::function<bool(Value&)>()> make) {
  std::function<bool(Value&)> next;
  return lazily("generator", source, [make = std::move(make), next](Value& item) mutable {
    if (!next) next = make();
    return next(item);
  });
}

Value batch(Renderer&, const Value& value, const Arguments& arguments) {
  const Bound given("batch", arguments, {"linecount", "fill_with"}, 1);
  const std::int64_t count = given.integer(0, 0);
  const Value fill = given.get(1, Value(None()));
  return deferred(value, [=]() -> std::function<bool(Value&)> {
    return [source = iterate(value), count, fill](Value& result) {
      std::vector<Value> items;
      // A count below 1 is never reached: all items then come at once.
      for (Value item;
           static_cast<std::int64_t>(items.size()) != std::max<std::int64_t>(count, -1) ||
           items.empty();) {
        if (!source->next(item)) break;
        items.push_back(item);
      }
      if (items.empty()) return false;
      if (!fill.is_none())
        while (static_cast<std::int64_t>(items.size()) < count) {
          work(1);
          items.push_back(fill);
        }
      result = Value::list(std::move(items));
      return true;
    };
  });
}

Value slices(Renderer&, const Value& value, const Arguments& arguments) {
  const Bound given("slice", arguments, {"slices", "fill_with"}, 1);
  const std::int64_t count = given.integer(0, 0);
  const Value fill = given.get(1, Value(None()));
  return deferred(value, [=]() -> std::function<bool(Value&)> {
    const std::vector<Value> items = items_of(value);
    if (count == 0) fail("integer division or modulo by zero");
    const auto size = static_cast<std::int64_t>(items.size());
    return [=, number = std::int64_t{0}](Value& result) mutable {
      if (number >= count) return false;
      const std::int64_t each = size / count, longer = size % count;
      const std::int64_t begin = number * each + std::min(number, longer);
      const std::int64_t end = begin + each + (number < longer ? 1 : 0);
      std::vector<Value> part(items.begin() + begin, items.begin() + end);
      if (!fill.is_none() && number >= longer) part.push_back(fill);
      ++number;
      result = Value::list(std::move(part));
      return true;
    };
  });
}

Value dict_sort(Renderer&, const Value& value, const Arguments& arguments) {
  const Bound given("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string by = given.given(1) ? to_text(given[1]) : "key";
  if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
  if (const Undefined* undefined = value.as_undefined()) throw Failure(undefined->message);
  if (value.as_dict() == nullptr) fail("'{}' object has no attribute 'items'", type_name(value));
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, item] : value.as_dict()->items)
    keyed.emplace_back(folded(by == "key" ? key : item, given.flag(0)), Value::tuple({key, item}));
  sort_by(keyed, given.flag(2));
  return Value::list(values_of(std::move(keyed)));
}

Value first(Renderer&, const Value& value, const Arguments&) {
  Value item;
  if (iterate(value)->next(item)) return item;
  return Value::undefined("No first item, sequence was empty.");
}

Value last(Renderer&, const Value& value, const Arguments&) {
  if (value.as<Iterator>() != nullptr || !is_iterable(value))
    fail("'{}' object is not reversible", type_name(value));
  if (const List* list = value.as_sequence(); list != nullptr && !list->items.empty())
    return list->items.back();
  const std::vector<Value> items = items_of(value);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value reverse(Renderer&, const Value& value, const Arguments&) {
  if (value.as_string() != nullptr) return slice_of(value, None(), None(), Value(-1));
  if (!is_iterable(value)) fail("argument must be iterable");
  std::vector<Value> items = items_of(value);
  std::reverse(items.begin(), items.end());
  Value reversed = Value::list(std::move(items));
  if (value.as<Iterator>() != nullptr) return reversed;
  return lazily("list_reverseiterator", reversed,
                [source = iterate(reversed)](Value& item) { return source->next(item); });
}

Value group_by(Renderer&, const Value& value, const Arguments& arguments) {
  const Bound given("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const AttributePath path(given[0]);
  const bool case_sensitive = given.flag(2);
  std::vector<std::pair<Value, Value>> keyed;
  for_each(value, [&](const Value& item) {
    keyed.emplace_back(folded(path.of(item, given[1]), case_sensitive), item);
    return true;
  });
  sort_by(keyed, false);
  std::vector<Value> groups;
  for (std::size_t i = 0; i < keyed.size();) {
    std::vector<Value> members;
    const std::size_t begin = i;
    for (; i < keyed.size() && equal(keyed[i].first, keyed[begin].first); ++i)
      members.push_back(keyed[i].second);
    const Value key = path.of(members[0], given[1]);
    groups.emplace_back(std::make_shared<const List>(
        std::vector<Value>{key, Value::list(std::move(members))}, List::Kind::group));
  }
  return Value::list(std::move(groups));
}

Value length_filter(Renderer&, const Value& value, const Arguments&) {
  return Value(length(value));
}

Value list(Renderer&, const Value& value, const Arguments&) { return Value::list(items_of(value)); }

Value items(Renderer&, const Value& value, const Arguments&) {
  return deferred(value, [value]() -> std::function<bool(Value&)> {
    if (value.as_undefined() != nullptr) return [](Value&) { return false; };
    if (value.as_dict() == nullptr) fail("Can only get item pairs from a mapping.");
    return [value, at = std::size_t{0}](Value& item) mutable {
      const Dict::Items& pairs = value.as_dict()->items;
      if (at >= pairs.size()) return false;
      item = Value::tuple({pairs[at].first, pairs[at].second});
      ++at;
      return true;
    };
  });
}

Value map(Renderer& renderer, const Value& value, const Arguments& arguments) {
  if (!truth(value) && value.as<Iterator>() == nullptr)
    return lazily("generator", value, [](Value&) { return false; });
  return deferred(value, [&renderer, value, arguments]() -> std::function<bool(Value&)> {
    std::shared_ptr<Iterator> source = iterate(value);
    if (arguments.positional.empty() && !arguments.named.empty()) {
      const Bound given("map", arguments, {"attribute", "default"}, 1);
      return [source, path = AttributePath(given[0]), otherwise = given[1]](Value& item) {
        if (!source->next(item)) return false;
        item = path.of(item, otherwise);
        return true;
      };
    }
    if (arguments.positional.empty()) fail("map requires a filter argument");
    const Arguments rest{{arguments.positional.begin() + 1, arguments.positional.end()},
                         arguments.named};
    return [&renderer, source, rest, name = to_text(arguments.positional[0])](Value& item) {
      if (!source->next(item)) return false;
      item = call_filter(renderer, name, item, rest);
      return true;
    };
  });
}

// What select, reject, selectattr and rejectattr share.
Value chosen(Renderer& renderer, const Value& value, const Arguments& arguments, bool wanted,
             bool by_attribute) {
  if (!truth(value) && value.as<Iterator>() == nullptr)
    return lazily("generator", value, [](Value&) { return false; });
  return deferred(
      value, [&renderer, value, arguments, wanted, by_attribute]() -> std::function<bool(Value&)> {
        const auto& given = arguments.positional;
        if (by_attribute && given.empty()) fail("Missing parameter for attribute name");
        const std::size_t used = by_attribute ? 1 : 0;
        const AttributePath path(by_attribute ? given[0] : Value(None()));
        std::optional<std::string> test;
        Arguments rest{{}, arguments.named};
        if (given.size() > used) {
          test = to_text(given[used]);
          rest.positional.assign(given.begin() + static_cast<std::ptrdiff_t>(used) + 1,
                                 given.end());
        }
        return [&renderer, source = iterate(value), path, test, rest, wanted](Value& item) {
          while (source->next(item)) {
            const Value tested = path.of(item);
            if ((test ? call_test(renderer, *test, tested, rest) : truth(tested)) == wanted)
              return true;
          }
          return false;
        };
      });
}

Value select(Renderer& r, const Value& v, const Arguments& a) {
  return chosen(r, v, a, true, false);
}
Value reject(Renderer& r, const Value& v, const Arguments& a) {
  return chosen(r, v, a, false, false);
}
Value select_attribute(Renderer& r, const Value& v, const Arguments& a) {
  return chosen(r, v, a, true, true);
}
Value reject_attribute(Renderer& r, const Value& v, const Arguments& a) {
  return chosen(r, v, a, false, true);
}

Value extreme(const Value& value, const Arguments& arguments, bool largest) {
  const Bound given(largest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const AttributePath path(given.get(1, Value(None())));
  Value best, best_key;
  for_each(value, [&](const Value& item) {
    const Value key = folded(path.of(item), given.flag(0));
    const bool better = best.is_missing() || (largest ? compare(key, best_key, ">") > 0
                                                      : compare(key, best_key, "<") < 0);
    if (better) {
      best = item;
      best_key = key;
    }
    return true;
  });
  return best.is_missing() ? Value::undefined("No aggregated item, sequence was empty.") : best;
}

Value smallest(Renderer&, const Value& v, const Arguments& a) { return extreme(v, a, false); }
Value largest(Renderer&, const Value& v, const Arguments& a) { return extreme(v, a, true); }

Value sort(Renderer&, const Value& value, const Arguments& arguments) {
  const Bound given("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  std::vector<AttributePath> paths;
  if (given.has(2) && given[2].as_string() != nullptr) {
    const std::string& text = given.text(2);
    for (std::size_t at = 0; at <= text.size();) {
      const std::size_t end = std::min(text.find(',', at), text.size());
      paths.emplace_back(Value(text.substr(at, end - at)));
      at = end + 1;
    }
  } else {
    paths.emplace_back(given.get(2, Value(None())));
  }
  std::vector<std::pair<Value, Value>> keyed;
  for_each(value, [&](const Value& item) {
    std::vector<Value> keys;
    for (const AttributePath& path : paths) keys.push_back(folded(path.of(item), given.flag(1)));
    keyed.emplace_back(Value::list(std::move(keys)), item);
    return true;
  });
  sort_by(keyed, given.flag(0));
  return Value::list(values_of(std::move(keyed)));
}

Value sum(Renderer&, const Value& value, const Arguments& arguments) {
  const Bound given("sum", arguments, {"attribute", "start"});
  const AttributePath path(given.get(0, Value(None())));
  Value total = given.get(1, Value(0));
  if (total.as_string() != nullptr) fail("sum() can't sum strings [use ''.join(seq) instead]");
  for_each(value, [&](const Value& item) {
    total = arithmetic("+", total, path.of(item));
    return true;
  });
  return total;
}

Value unique(Renderer&, const Value& value, const Arguments& arguments) {
  const Bound given("unique", arguments, {"case_sensitive", "attribute"});
  const bool case_sensitive = given.flag(0);
  const AttributePath path(given.get(1, Value(None())));
  return deferred(value, [=]() -> std::function<bool(Value&)> {
    const auto seen = std::make_shared<std::unordered_multimap<std::size_t, Value>>();
    return [=, source = iterate(value)](Value& item) {
      while (source->next(item)) {
        const Value key = folded(path.of(item), case_sensitive);
        const std::size_t hashed = hash(key);
        const auto [begin, end] = seen->equal_range(hashed);
        if (std::any_of(begin, end, [&](const auto& held) { return equal(held.second, key); }))
          continue;
        seen->emplace(hashed, key);
        return true;
      }
      return false;
    };
  });
}

}  // namespace

AttributePath::AttributePath(const Value& attribute) {
  if (attribute.is_missing() || attribute.is_none()) return;
  if (attribute.as_string() == nullptr) {
    parts_.push_back(attribute);
    return;
  }
  const std::string& text = attribute.as_string()->text;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('.', at), text.size());
    const std::string part = text.substr(at, end - at);
    const bool number = !part.empty() && part.size() < 18 &&
                        part.find_first_not_of("0123456789") == std::string::npos;
    parts_.push_back(number ? Value(static_cast<std::int64_t>(std::stoll(part))) : Value(part));
    at = end + 1;
  }
}

Value AttributePath::of(Value item, const Value& otherwise) const {
  for (const Value& part : parts_) {
    item = item_of(item, part);
    if (item.as_undefined() != nullptr && !otherwise.is_missing() && !otherwise.is_none())
      item = otherwise;
  }
  return item;
}

const std::map<std::string, Filter>& sequence_filters() {
  static const std::map<std::string, Filter> all = {
      {"batch", batch},
      {"count", length_filter},
      {"dictsort", dict_sort},
      {"first", first},
      {"groupby", group_by},
      {"items", items},
      {"last", last},
      {"length", length_filter},
      {"list", list},
      {"map", map},
      {"max", largest},
      {"min", smallest},
      {"reject", reject},
      {"rejectattr", reject_attribute},
      {"reverse", reverse},
      {"select", select},
      {"selectattr", select_attribute},
      {"slice", slices},
      {"sort", sort},
      {"sum", sum},
      {"unique", unique},
  };
  return all;
}

}  // namespace ac::jinja
