#include "text/template/bind.h"

namespace ac::jinja {

Bound::Bound(std::string function, const Arguments& arguments,
             std::initializer_list<const char*> names, std::size_t required)
    : function_(std::move(function)), values_(names.size()) {
  if (arguments.positional.size() > names.size())
    fail("{}() takes at most {} arguments ({} given)", function_, names.size(),
         arguments.positional.size());
  for (std::size_t i = 0; i < arguments.positional.size(); ++i)
    values_[i] = arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    std::size_t at = 0;
    for (const char* known : names) {
      if (name == known) break;
      ++at;
    }
    if (at == names.size())
      fail("{}() got an unexpected keyword argument {}", function_, repr_text(name));
    if (given(at)) fail("{}() got multiple values for argument {}", function_, repr_text(name));
    values_[at] = value;
  }
  for (std::size_t i = 0; i < required; ++i)
    if (!given(i))
      fail("{}() missing required argument {}", function_, repr_text(*(names.begin() + i)));
}

std::int64_t Bound::integer(std::size_t i, std::int64_t otherwise) const {
  if (!has(i)) return otherwise;
  if (!values_[i].is_integer())
    fail("{}(): '{}' object cannot be interpreted as an integer", function_, type_name(values_[i]));
  return values_[i].integer();
}

const std::string& Bound::text(std::size_t i) const {
  const String* string = values_[i].as_string();
  if (string == nullptr)
    fail("{}(): an argument must be str, not {}", function_, type_name(values_[i]));
  return string->text;
}

}  // namespace ac::jinja
