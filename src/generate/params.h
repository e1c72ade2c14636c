// Fills in a kernel's parameter struct for a launch: numbers that are known stay in the bytes,
// addresses and counts are noted by where they go.
#pragma once

#include <cstring>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "generate/counts.h"
#include "generate/generate.h"
#include "ir/layout.h"
#include "kernels/tensor_map.h"

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
  void point(T* const& field, const Buffer& buffer, Count offset = {}) {
    launch_.pointers.push_back({place_of(field), out_.refer(buffer), offset});
  }
  // To the first element of a value, through its views.
  template <class T>
  void point(T* const& field, NodeId value) {
    const auto [buffer, offset] = place_of_value(value);
    point(field, buffer, offset);
  }
  // Of the matrix of 16-bit elements whose first one the value's is, through its views.
  void map(const kernels::TensorMap& field, NodeId value, const Dim& rows, std::int64_t columns,
           std::int64_t pitch, int box_rows, int box_panels = 1) {
    const auto [buffer, offset] = place_of_value(value);
    map(field, buffer, offset, count_of(rows), columns, pitch, box_rows,
        step_.graph.type(value).dtype, box_panels);
  }
  void map(const kernels::TensorMap& field, const Buffer& buffer, const Count& offset,
           const Count& rows, std::int64_t columns, std::int64_t pitch, int box_rows, DType dtype,
           int box_panels = 1) {
    launch_.maps.push_back({.at = place_of(field),
                            .buffer = out_.refer(buffer),
                            .offset = offset,
                            .rows = rows,
                            .columns = columns,
                            .pitch = pitch,
                            .box_rows = box_rows,
                            .dtype = dtype,
                            .box_panels = box_panels});
  }
  void stamp(unsigned long long* const& field, std::int64_t rounds,
             std::vector<std::string> points) {
    launch_.stamps = {place_of(field), rounds, std::move(points)};
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
  // Where its first element is: the buffer, and bytes behind its beginning.
  std::pair<Buffer, Count> place_of_value(NodeId value) const {
    const Layout layout = layout_of(step_.graph, value);
    AC_ASSERT(layout.placement != Placement::opaque);
    const NodeId storage = storage_of(step_.graph, value);
    const auto bytes = static_cast<std::int64_t>(bytes_of(step_.graph.type(storage).dtype));
    return {buffer_of(step_, storage), count_of(layout.offset * Dim(bytes))};
  }
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
