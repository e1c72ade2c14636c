// A function of the distance d = row - column, in pieces that are constant or straight lines: what
// an attention mask is. All arithmetic on masks is arithmetic on these.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "ir/graph.h"

namespace ac {

// slope * d + value from d = start up to the start of the next piece. Where the slope is not 0, the
// value is a whole number.
struct Piece {
  std::int64_t start = 0, slope = 0;
  double value = 0;
  bool operator==(const Piece&) const = default;
};

struct Steps {
  // In order; the first one starts at kFirst. Neighbours differ.
  std::vector<Piece> pieces;

  static constexpr std::int64_t kFirst = -(std::int64_t{1} << 40);

  static Steps uniform(double value) { return {{{kFirst, 0, value}}}; }
  static Steps line(std::int64_t slope, std::int64_t value) {
    return {{{kFirst, slope, static_cast<double>(value)}}};
  }
  // 1 from d = start on, 0 before it.
  static Steps from(std::int64_t start) { return {{{kFirst, 0, 0}, {start, 0, 1}}}; }

  std::optional<double> uniform_value() const {
    if (pieces.size() != 1 || pieces[0].slope != 0) return std::nullopt;
    return pieces[0].value;
  }
  // The first d after a piece, which is where the next one starts.
  std::int64_t end(std::size_t piece) const {
    return piece + 1 < pieces.size() ? pieces[piece + 1].start : -kFirst;
  }
  bool operator==(const Steps&) const = default;

  Steps shifted(std::int64_t by) const;  // g(d) = f(d + by)
  Steps mirrored() const;                // g(d) = f(-d)
};

// An elementwise op on such functions, whose elements are of `dtype` and |d| <= far. Nothing where
// a value is not exact in the type, or the result is no such function.
std::optional<Steps> compute_steps(Op op, DType dtype, const std::vector<Steps>& in,
                                   std::int64_t far);
std::optional<Steps> convert_steps(DType from, DType to, const Steps& x, std::int64_t far);

}  // namespace ac
