// Ops and plans as text, by the fields and names that kernels' headers list (kernels/plan.h).
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kernels/weight_format.h"

namespace ac {

// Of "Ring, none, registers": "none" is the first after the type's, which is number 0.
constexpr std::string_view nth_name(std::string_view names, std::size_t n) {
  for (; n > 0; --n) {
    const std::size_t comma = names.find(", ");
    AC_ASSERT(comma != names.npos);
    names.remove_prefix(comma + 2);
  }
  return names.substr(0, names.find(", "));
}

template <class E>
  requires std::is_enum_v<E>
constexpr std::string_view name_of(E value) {
  return nth_name(names_of(value), static_cast<std::size_t>(value) + 1);
}

// Calls visit(name, value) for each field of an op or a plan.
template <class Struct, class Visit>
void each_field(const Struct& fields_of, const Visit& visit) {
  fields_of.fields([&](std::string_view names, const auto&... values) {
    std::size_t i = 0;
    (visit(nth_name(names, ++i), values), ...);
  });
}
template <class Struct>
std::string_view struct_name(const Struct& named) {
  return named.fields([](std::string_view names, const auto&...) { return nth_name(names, 0); });
}

// As C++ that generated source may hold: "256", "Ring::none", "{.threads = 256, .rows = 1}".
inline std::string cpp_of(int value) { return fmt::format("{}", value); }
inline std::string cpp_of(bool value) { return value ? "true" : "false"; }
template <class E>
  requires std::is_enum_v<E>
std::string cpp_of(E value) {
  return fmt::format("{}::{}", nth_name(names_of(value), 0), name_of(value));
}
template <class T, int N>
std::string cpp_of(const kernels::FirstOf<T, N>& array) {
  std::string text;
  for (int i = 0; i < array.count; ++i) text += (i ? ", " : "") + cpp_of(array.all[i]);
  return "{" + text + "}";
}
// Fields of few kernels, which the text of others leaves out: their names do not depend on them.
inline bool is_left_out(std::string_view, const kernels::Format& format) {
  return format.is_plain();
}
inline bool is_left_out(std::string_view name, int value) { return name == "tokens" && value == 1; }
template <class T>
bool is_left_out(std::string_view, const T&) {
  return false;
}
template <class Struct>
  requires std::is_class_v<Struct>
std::string cpp_of(const Struct& initialised) {
  std::string text;
  each_field(initialised, [&](std::string_view name, const auto& value) {
    if (is_left_out(name, value)) return;
    text += fmt::format("{}.{} = {}", text.empty() ? "" : ", ", name, cpp_of(value));
  });
  return "{" + text + "}";
}

// A field of a plan, its value without a type: {"threads", "256"}, {"ring", "none"}.
struct PlanField {
  std::string name, value;
};
template <class T>
std::string field_value(const T& value) {
  if constexpr (std::is_enum_v<T>)
    return std::string(name_of(value));
  else
    return cpp_of(value);
}

// The id of a plan, piece by piece.
class IdText {
 public:
  // `unsaid`: gets what ids leave out, if that is wanted.
  explicit IdText(std::vector<PlanField>* unsaid = nullptr) : unsaid_(unsaid) {}

  template <class... Args>
  IdText& add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    return *this;
  }
  // Of a field that ids leave out as long as it has its usual value.
  template <class T, class... Args>
  IdText& unless(std::string_view field, const T& value, const std::type_identity_t<T>& usual,
                 fmt::format_string<Args...> format, Args&&... args) {
    if (unsaid_) unsaid_->push_back({std::string(field), field_value(usual)});
    return value == usual ? *this : add(format, std::forward<Args>(args)...);
  }
  // The grid that most families have: of `resident` threads an SM, or full.
  IdText& grid(bool persistent, int resident) {
    return add("/").unless("persistent", persistent, true, "full").add("{}", resident);
  }

  std::string take() { return std::move(text_); }

 private:
  std::vector<PlanField>* unsaid_;
  std::string text_;
};

// Whether AC_FIELDS lists all that a struct has: with one forgotten, a launch would follow the plan
// and the kernel its default.
struct AnyField {
  template <class T>
  constexpr operator T() const noexcept;
};
template <class Struct, std::size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
  return requires { Struct{(static_cast<void>(I), AnyField{})...}; };
}
template <class T>
inline constexpr std::size_t places_of = 1;
template <class T, int N>
inline constexpr std::size_t places_of<kernels::FirstOf<T, N>> = N;
template <class Struct>
constexpr bool lists_all_fields() {
  constexpr auto count = [](const char*, const auto&... values) {
    return (places_of<std::decay_t<decltype(values)>> + ...);
  };
  constexpr std::size_t listed = Struct{}.fields(count);
  return takes<Struct>(std::make_index_sequence<listed>()) &&
         !takes<Struct>(std::make_index_sequence<listed + 1>());
}

}  // namespace ac
