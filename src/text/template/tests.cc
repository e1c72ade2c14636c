#include <map>

#include "text/template/bind.h"
#include "text/template/builtins.h"
#include "text/template/operators.h"
#include "text/template/string_methods.h"

namespace ac::jinja {
namespace {

using Test = bool (*)(const Value& value, const Arguments& arguments);

template <int kRest>
bool parity(const Value& value, const Arguments&) {
  return equal(arithmetic("%", value, Value(2)), Value(kRest));
}

Value operand(const char* name, const Arguments& arguments) {
  return Bound(name, arguments, {"other"}, 1)[0];
}

bool is_callable(const Value& value, const Arguments&) {
  return value.as_undefined() != nullptr ||
         (value.as_object() != nullptr && value.as_object()->callable());
}

bool is_sequence(const Value& value, const Arguments&) {
  return value.as_string() != nullptr || value.as_sequence() != nullptr ||
         value.as_dict() != nullptr || value.as_undefined() != nullptr ||
         value.as<Range>() != nullptr;
}

std::string name_of(const Value& value) {
  hash(value);  // refuses what cannot be looked up
  return value.as_string() != nullptr ? value.as_string()->text : "";
}

const std::map<std::string, Test>& tests() {
  using V = const Value&;
  using A = const Arguments&;
  static const std::map<std::string, Test> all = [] {
    std::map<std::string, Test> table = {
        {"odd", parity<1>},
        {"even", parity<0>},
        {"divisibleby",
         [](V v, A a) {
           const Bound given("divisibleby", a, {"num"}, 1);
           return equal(arithmetic("%", v, given[0]), Value(0));
         }},
        {"defined", [](V v, A) { return v.as_undefined() == nullptr; }},
        {"undefined", [](V v, A) { return v.as_undefined() != nullptr; }},
        {"filter", [](V v, A) { return has_filter(name_of(v)); }},
        {"test", [](V v, A) { return has_test(name_of(v)); }},
        {"none", [](V v, A) { return v.is_none(); }},
        {"boolean", [](V v, A) { return v.as_bool() != nullptr; }},
        {"false", [](V v, A) { return v.as_bool() != nullptr && !*v.as_bool(); }},
        {"true", [](V v, A) { return v.as_bool() != nullptr && *v.as_bool(); }},
        {"integer", [](V v, A) { return v.is_plain_integer(); }},
        {"float", [](V v, A) { return v.as_real() != nullptr; }},
        {"lower", [](V v, A) { return is_cased_text(to_text(v), false); }},
        {"upper", [](V v, A) { return is_cased_text(to_text(v), true); }},
        {"string", [](V v, A) { return v.as_string() != nullptr; }},
        {"mapping", [](V v, A) { return v.as_dict() != nullptr; }},
        {"number", [](V v, A) { return v.is_number(); }},
        {"sequence", is_sequence},
        {"iterable", [](V v, A) { return is_iterable(v); }},
        {"callable", is_callable},
        {"sameas", [](V v, A a) { return v.same_as(operand("sameas", a)); }},
        {"escaped", [](V v, A) { return v.as_string() != nullptr && v.as_string()->markup; }},
        {"in", [](V v, A a) { return contains(operand("in", a), v); }},
    };
    const Test equals = [](V v, A a) { return holds("==", v, operand("eq", a)); };
    const Test differs = [](V v, A a) { return holds("!=", v, operand("ne", a)); };
    const Test greater = [](V v, A a) { return holds(">", v, operand("gt", a)); };
    const Test at_least = [](V v, A a) { return holds(">=", v, operand("ge", a)); };
    const Test less = [](V v, A a) { return holds("<", v, operand("lt", a)); };
    const Test at_most = [](V v, A a) { return holds("<=", v, operand("le", a)); };
    for (const char* name : {"==", "eq", "equalto"}) table.emplace(name, equals);
    for (const char* name : {"!=", "ne"}) table.emplace(name, differs);
    for (const char* name : {">", "gt", "greaterthan"}) table.emplace(name, greater);
    for (const char* name : {">=", "ge"}) table.emplace(name, at_least);
    for (const char* name : {"<", "lt", "lessthan"}) table.emplace(name, less);
    for (const char* name : {"<=", "le"}) table.emplace(name, at_most);
    return table;
  }();
  return all;
}

}  // namespace

bool has_test(const std::string& name) { return tests().count(name) > 0; }

bool call_test(Renderer&, const std::string& name, const Value& value, const Arguments& arguments) {
  const auto found = tests().find(name);
  if (found == tests().end()) fail("No test named {} found.", repr_text(name));
  return found->second(value, arguments);
}

}  // namespace ac::jinja
