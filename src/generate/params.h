// Fills in a kernel's parameter struct for a launch: numbers that are known stay in the bytes,
// addresses and counts are noted by where they go.
#pragma once

#include <cstring>
#include <type_traits>

#include "base/error.h"
#include "generate/counts.h"
#include "generate/generate.h"
#include "ir/layout.h"

namespace ac {

template <class Params>
class ParamsOf {
 public:
  ParamsOf(const StepGraph& step, Generated& out) : step_(step), out_(out) {
    static_assert(std::is_trivially_copyable_v<Params>);
    std::memset(static_cast<void*>(&params), 0, sizeof params);
  }

  // What is known now is assigned here.
  Params params;

  template <class T>
  void point(T* const& field, const Storage& storage, Count offset = {}) {
    launch_.pointers.push_back({place_of(field), out_.refer(storage), offset});
  }
  // To the first element of a value, through its views.
  template <class T>
  void point(T* const& field, NodeId value) {
    const Layout layout = layout_of(step_.graph, value);
    AC_ASSERT(layout.placement != Placement::opaque);
    const NodeId storage = storage_of(step_.graph, value);
    const auto bytes = static_cast<std::int64_t>(bytes_of(step_.graph.type(storage).dtype));
    point(field, {.kind = Storage::Kind::value, .node = storage},
          count_of(layout.offset * Dim(bytes)));
  }
  template <class T>
  void count(const T& field, const Count& value) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
    launch_.numbers.push_back({place_of(field), sizeof(T), value});
  }
  template <class T>
  void count(const T& field, const Dim& value) {
    count(field, count_of(value));
  }

  Launch finish() {
    launch_.params.resize(sizeof params);
    std::memcpy(launch_.params.data(), &params, sizeof params);
    return std::move(launch_);
  }

 private:
  template <class T>
  std::uint32_t place_of(const T& field) const {
    const auto place =
        reinterpret_cast<const char*>(&field) - reinterpret_cast<const char*>(&params);
    AC_ASSERT(place >= 0 && place + sizeof(T) <= sizeof params);
    return static_cast<std::uint32_t>(place);
  }

  const StepGraph& step_;
  Generated& out_;
  Launch launch_;
};

}  // namespace ac
