// Reads the fields of a JSON object that a client sent. Each is asked for once; what is left over
// is refused by name. A field that is null counts as not given.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "api/refusal.h"
#include "base/json.h"

namespace ac::api {

class Fields {
 public:
  // `where`: "messages[2]"; empty: the request itself.
  Fields(const Json& object, std::string where = {});

  const Json* find(const char* name);  // null: not given
  const Json& need(const char* name);
  std::optional<double> number(const char* name, double least, double most);
  std::optional<std::int64_t> integer(const char* name, std::int64_t least, std::int64_t most);
  std::optional<bool> boolean(const char* name);
  std::optional<std::string> text(const char* name);
  std::string needed_text(const char* name);
  const Json* array(const char* name);
  const Json* object(const char* name);
  // A text, or a list of them.
  std::vector<std::string> texts(const char* name, std::size_t most);
  // One of some words.
  std::optional<std::string> word(const char* name, std::initializer_list<const char*> words);

  // Changes nothing, and may be anything.
  void ignore(std::initializer_list<const char*> names);
  // May be there with this value only, which asks for nothing.
  void only(const char* name, const Json& value, const char* why);
  // What was not asked for is an error.
  void refuse_rest() const;

  std::string name_of(std::string_view field) const;
  template <class... Args>
  [[noreturn]] void wrong(const char* name, fmt::format_string<Args...> format,
                          Args&&... args) const {
    refuse(name_of(name), format, std::forward<Args>(args)...);
  }

 private:
  const Json& object_;
  const std::string where_;
  std::set<std::string, std::less<>> known_;
};

// A short form of a value, for messages.
std::string shown(const Json& value);

}  // namespace ac::api
