#include "grammar/schema.h"

#include <algorithm>
#include <cctype>
#include <deque>
#include <set>
#include <vector>

#include "grammar/grammar.h"

namespace ac::grammar {
namespace {

using Pointer = Json::json_pointer;

constexpr const char* kUnsupported[] = {
    "not",
    "if",
    "then",
    "else",
    "contains",
    "minContains",
    "maxContains",
    "dependentRequired",
    "dependencies",
    "dependentSchemas",
    "$dynamicRef",
    "$recursiveRef",
    "unevaluatedProperties",
    "unevaluatedItems",
    "additionalItems",
};

// Keywords that say something of values of one type only.
struct TypeKeywords {
  const char* type;
  std::vector<const char*> keywords;
};
const std::vector<TypeKeywords>& keywords_of_types() {
  static const std::vector<TypeKeywords> all{
      {"object",
       {"properties", "patternProperties", "additionalProperties", "propertyNames", "required",
        "minProperties", "maxProperties"}},
      {"array", {"items", "prefixItems", "minItems", "maxItems", "uniqueItems"}},
      {"string", {"minLength", "maxLength", "pattern", "format"}},
      {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}}};
  return all;
}
bool is_of_type(const Json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "integer") return value.is_number_integer();
  return type == "number" && value.is_number();
}

// What all that a regular expression fits begins with, as far as it is easily seen.
std::string beginning_of(const std::string& regex) {
  if (!regex.starts_with('^') || regex.find('|') != std::string::npos) return {};
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-';
  };
  const auto end = std::find_if_not(regex.begin() + 1, regex.end(), is_plain);
  std::string beginning(regex.begin() + 1, end);
  if (end != regex.end() && std::string("*?{").find(*end) != std::string::npos &&
      !beginning.empty())
    beginning.pop_back();
  return beginning;
}

class Normaliser {
 public:
  Normaliser(const Json& schema, const std::string& where) : root_(schema), where_(where) {}

  Json run() {
    later(Pointer());
    while (!queue_.empty()) {
      const Pointer at = queue_.front();
      queue_.pop_front();
      visit(at);
    }
    return std::move(root_);
  }

 private:
  template <class... Args>
  [[noreturn]] void refuse(const Pointer& at, fmt::format_string<Args...> format,
                           Args&&... args) const {
    const std::string place = at.to_string();
    throw Refused(where_, (place.empty() ? "" : "at " + place + ": ") +
                              fmt::format(format, std::forward<Args>(args)...));
  }

  void later(const Pointer& at) {
    if (seen_.insert(at.to_string()).second) queue_.push_back(at);
  }
  void each_later(const Pointer& list) {
    const Json& all = root_[list];
    if (all.is_array())
      for (std::size_t i = 0; i < all.size(); ++i) later(list / i);
    else if (all.is_object())
      for (const auto& [name, inner] : all.items()) later(list / name);
  }

  void visit(const Pointer& at) {
    Json& schema = root_[at];
    if (schema.is_boolean()) {
      if (schema == false) refuse(at, "nothing fits false");
      return;
    }
    if (!schema.is_object()) refuse(at, "it is neither an object nor a boolean");
    for (const char* const keyword : kUnsupported)
      if (schema.contains(keyword)) refuse(at, "{} is not supported", keyword);
    if (schema.contains("$ref")) return visit_ref(at);
    for (const char* const keyword : {"const", "enum"})
      if (schema.contains(keyword)) return visit_values(at, keyword);
    for (const char* const keyword : {"anyOf", "oneOf", "allOf"})
      if (schema.contains(keyword)) return visit_branches(at, keyword);
    visit_types(at);
  }

  // That no keyword stands beside it that demands more.
  void stands_alone(const Pointer& at, const std::string& keyword) const {
    const Json& schema = root_[at];
    const auto refuse_beside = [&](const char* other) {
      if (keyword != other && schema.contains(other))
        refuse(at, "{} beside {} is not supported", other, keyword);
    };
    for (const char* const other : {"$ref", "const", "enum", "anyOf", "oneOf", "allOf"})
      refuse_beside(other);
    for (const TypeKeywords& type : keywords_of_types())
      for (const char* const other : type.keywords) refuse_beside(other);
  }

  void visit_ref(const Pointer& at) {
    stands_alone(at, "$ref");
    Json& schema = root_[at];
    if (schema.contains("type")) refuse(at, "type beside $ref is not supported");
    if (!schema["$ref"].is_string()) refuse(at, "$ref is no string");
    const std::string ref = schema["$ref"];
    if (ref != "#" && !ref.starts_with("#/"))
      refuse(at, "$ref {} is not supported: only #/... is, within the schema", Json(ref).dump());
    if (ref.find_first_of("~%") != std::string::npos || ref.find("//") != std::string::npos)
      refuse(at, "$ref {} has escapes, which are not supported", Json(ref).dump());
    const Pointer target(ref.substr(1));
    if (!root_.contains(target)) refuse(at, "$ref {} leads nowhere", Json(ref).dump());
    later(target);
  }

  std::vector<std::string> types_of(const Pointer& at) const {
    std::vector<std::string> types;
    const Json& type = root_[at]["type"];
    for (const Json& each : type.is_array() ? type : Json::array({type})) {
      static const std::set<std::string> known{"object",  "array",   "string", "number",
                                               "integer", "boolean", "null"};
      if (!each.is_string() || !known.contains(each.get<std::string>()))
        refuse(at, "{} is no type", each.dump(-1, ' ', false, Json::error_handler_t::replace));
      types.push_back(each);
    }
    if (types.empty()) refuse(at, "type is an empty list");
    return types;
  }

  void visit_values(const Pointer& at, const std::string& keyword) {
    stands_alone(at, keyword);
    Json& schema = root_[at];
    if (keyword == "enum" && (!schema["enum"].is_array() || schema["enum"].empty()))
      refuse(at, "enum is no list of values");
    if (!schema.contains("type")) return;
    const std::vector<std::string> types = types_of(at);
    for (const Json& value : keyword == "enum" ? schema["enum"] : Json::array({schema["const"]}))
      if (std::ranges::none_of(types, [&](const auto& type) { return is_of_type(value, type); }))
        refuse(at, "a value of {} is not of the type beside it", keyword);
    schema.erase("type");
  }

  void visit_branches(const Pointer& at, const std::string& keyword) {
    stands_alone(at, keyword);
    Json& schema = root_[at];
    if (!schema[keyword].is_array() || schema[keyword].empty())
      refuse(at, "{} is no list of schemas", keyword);
    if (keyword == "allOf" && schema[keyword].size() > 1)
      refuse(at, "allOf of several schemas is not supported");
    if (schema.contains("type")) {
      for (const Json& branch : schema[keyword])
        if (!branch.is_object() || branch.value("type", Json()) != schema["type"])
          refuse(at, "type beside {} is not supported: give each branch its type", keyword);
      schema.erase("type");
    }
    each_later(at / keyword);
  }

  void visit_types(const Pointer& at) {
    Json& schema = root_[at];
    if (!schema.contains("type")) {
      // What is said of one type leaves all others free; an answer need not make use of that.
      Json types = Json::array();
      for (const auto& [type, keywords] : keywords_of_types())
        if (std::ranges::any_of(keywords, [&](const char* each) { return schema.contains(each); }))
          types.push_back(type);
      if (types.empty()) return;
      schema["type"] = types.size() == 1 ? types[0] : types;
    }
    for (const std::string& type : types_of(at)) {
      if (type == "object") visit_object(at);
      if (type == "array") visit_array(at);
      if (type == "string") visit_string(at);
    }
  }

  void visit_object(const Pointer& at) {
    Json& schema = root_[at];
    const auto names = [&](const char* keyword) { return schema.contains(keyword); };
    for (const char* const keyword : {"properties", "patternProperties"})
      if (names(keyword) && !schema[keyword].is_object()) refuse(at, "{} is no object", keyword);
    if (names("patternProperties") && (names("properties") || names("required")))
      refuse(at, "patternProperties beside properties or required is not supported");
    for (const char* const other : {"properties", "required", "patternProperties"})
      if (names("propertyNames") && names(other))
        refuse(at, "propertyNames beside {} is not supported", other);
    if (names("patternProperties")) exclude_each_other(at / "patternProperties");
    if (!names("properties") && !names("patternProperties") && !names("additionalProperties") &&
        !names("propertyNames"))
      schema["additionalProperties"] = true;
    if (names("required")) {
      if (!schema["required"].is_array()) refuse(at, "required is no list");
      const Json more = schema.value("additionalProperties", Json(true));
      Json properties = schema.value("properties", Json::object());
      for (const Json& name : schema["required"]) {
        if (!name.is_string()) refuse(at, "required has what is no name");
        if (properties.contains(name.get<std::string>())) continue;
        if (more == false) refuse(at, "required names {}, and properties does not", name.dump());
        properties[name.get<std::string>()] = more;
      }
      schema["properties"] = properties;
    }
    for (const char* const list : {"properties", "patternProperties"})
      if (names(list)) each_later(at / list);
    if (names("additionalProperties") && schema["additionalProperties"] != false)
      later(at / "additionalProperties");
    if (names("propertyNames")) later(at / "propertyNames");
  }

  // The library heeds one of the patterns that a name fits.
  void exclude_each_other(const Pointer& at) const {
    const Json& patterns = root_[at];
    for (auto one = patterns.begin(); one != patterns.end(); ++one)
      for (auto other = patterns.begin(); other != one; ++other) {
        const std::string a = beginning_of(one.key()), b = beginning_of(other.key());
        if (a.starts_with(b) || b.starts_with(a))
          refuse(at,
                 "a name may fit both {} and {}, which is not supported: let them begin with ^ and "
                 "different letters",
                 Json(other.key()).dump(), Json(one.key()).dump());
      }
  }

  void visit_array(const Pointer& at) {
    Json& schema = root_[at];
    if (schema.value("uniqueItems", Json(false)) != false)
      refuse(at, "uniqueItems is not supported");
    schema.erase("uniqueItems");
    if (schema.contains("items") && schema["items"].is_array())
      refuse(at, "items is a list: such a list is called prefixItems");
    const bool has_first = schema.contains("prefixItems");
    if (has_first && !schema["prefixItems"].is_array()) refuse(at, "prefixItems is no list");
    const Json least = schema.value("minItems", Json(0));
    const auto first = has_first ? schema["prefixItems"].size() : 0;
    const bool more = least.is_number() && least.get<double>() > static_cast<double>(first);
    if (!schema.contains("items") && (!has_first || more)) schema["items"] = true;
    if (has_first) each_later(at / "prefixItems");
    if (schema.contains("items") && schema["items"] != false) later(at / "items");
  }

  void visit_string(const Pointer& at) {
    Json& schema = root_[at];
    for (const char* const keyword : {"pattern", "format"})
      if (schema.contains(keyword) && !schema[keyword].is_string())
        refuse(at, "{} is no string", keyword);
    // The library's has leading zeros, which some read as octal.
    if (schema.value("format", Json()) == "ipv4" && !schema.contains("pattern")) {
      const std::string byte = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
      schema["pattern"] = "^" + byte + "(\\." + byte + "){3}$";
      schema.erase("format");
    }
  }

  Json root_;
  const std::string& where_;
  std::deque<Pointer> queue_;
  std::set<std::string> seen_;
};

}  // namespace

std::string normal_schema(const Json& schema, const std::string& where) {
  const auto bytes = schema.dump(-1, ' ', false, Json::error_handler_t::replace).size();
  if (bytes > kMostBytes)
    throw Refused(where, fmt::format("it has {} bytes, more than {}", bytes, kMostBytes));
  return Normaliser(schema, where).run().dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ac::grammar
