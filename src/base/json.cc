#include "base/json.h"

#include <fmt/format.h>

#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files.h"

namespace ac {
namespace {

// The parser repeats what it read last. Bytes that are not ASCII may be no UTF-8 there: a terminal
// or a reader of our JSON gets their digits.
std::string in_ascii(std::string_view text) {
  std::string result;
  for (const char c : text)
    if (static_cast<unsigned char>(c) < 0x80)
      result += c;
    else
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return result;
}

// Builds the value like nlohmann's own DOM builder, but refuses depth and duplicate keys.
class CappedBuilder : public nlohmann::json_sax<Json> {
 public:
  CappedBuilder(Json& root, const std::string& origin, const JsonLimits& limits)
      : root_(root), origin_(origin), limits_(limits) {}

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }
  bool key(string_t& value) override {
    if (!keys_.back().insert(value).second)
      bad_input("{}: duplicate key \"{}\"", origin_, value.substr(0, 200));
    key_ = std::move(value);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    bad_input("{}: not valid JSON at byte {}: {}", origin_, position, in_ascii(error.what()));
  }

 private:
  template <class T>
  Json* place(T&& value) {
    if (++values_ > limits_.values) bad_input("{}: more than {} values", origin_, limits_.values);
    if (open_.empty()) {
      root_ = std::forward<T>(value);
      return &root_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::forward<T>(value));
      return &parent.back();
    }
    // Straight to the end: operator[] of an ordered object is a linear search, and keys_ already
    // proves that the key is new.
    auto& members = parent.get_ref<Json::object_t&>();
    members.Container::emplace_back(std::move(key_), std::forward<T>(value));
    return &members.back().second;
  }
  template <class T>
  bool put(T&& value) {
    place(std::forward<T>(value));
    return true;
  }
  bool open(Json container) {
    if (static_cast<int>(open_.size()) >= limits_.depth)
      bad_input("{}: nested deeper than {} levels", origin_, limits_.depth);
    open_.push_back(place(std::move(container)));
    keys_.emplace_back();
    return true;
  }
  bool close() {
    open_.pop_back();
    keys_.pop_back();
    return true;
  }

  Json& root_;
  const std::string& origin_;
  const JsonLimits& limits_;
  std::size_t values_ = 0;
  std::string key_;
  std::vector<Json*> open_;  // a parent never grows while a child of it is open
  std::vector<std::set<std::string>> keys_;
};

}  // namespace

Json parse_json(std::string_view text, const std::string& origin, JsonLimits limits) {
  if (text.size() > limits.bytes)
    bad_input("{}: {} bytes of JSON, more than the limit of {}", origin, text.size(), limits.bytes);
  Json root;
  CappedBuilder builder(root, origin, limits);
  Json::sax_parse(text, &builder);
  return root;
}

Json read_json(const std::filesystem::path& path, JsonLimits limits) {
  return parse_json(read_file(path, limits.bytes), path.string(), limits);
}

}  // namespace ac
