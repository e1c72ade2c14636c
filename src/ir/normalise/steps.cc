#include "ir/normalise/steps.h"

#include <algorithm>
#include <cmath>

#include "ir/normalise/numbers.h"

namespace ac {
namespace {

// More pieces than any mask has: bounds the work that a file can cause.
constexpr std::size_t kMostPieces = 64;

bool same(const Piece& a, const Piece& b) {
  return a.slope == b.slope && (a.value == b.value || (std::isnan(a.value) && std::isnan(b.value)));
}

// Appends pieces from left to right; equal neighbours become one.
void append(Steps& steps, const Piece& piece) {
  if (steps.pieces.empty() || !same(steps.pieces.back(), piece)) steps.pieces.push_back(piece);
}

using Lines = std::vector<Piece>;  // one of each operand, all on the same range

struct Range {
  std::int64_t begin, end;
};

bool is_line(const Piece& piece) { return piece.slope != 0; }
bool is_whole(double value) { return value == std::trunc(value) && std::fabs(value) < 0x1p52; }

// A range cut where the sign of a - b changes: for each part, -1, 0 or 1.
struct Signed {
  Range range;
  int sign;
};
std::optional<std::vector<Signed>> compare_lines(const Piece& a, const Piece& b, Range range) {
  // Whole numbers lie on the same side of 2.3 and of 2.5, which halves can be computed with.
  const auto halves = [](double value) {
    return is_whole(value) ? value : std::floor(value) + 0.5;
  };
  const std::int64_t slope = a.slope - b.slope;
  if (std::isnan(a.value) || std::isnan(b.value)) return std::nullopt;
  if (!is_line(a) && !is_line(b))
    return std::vector<Signed>{{range, a.value < b.value ? -1 : a.value > b.value ? 1 : 0}};
  for (const double value : {a.value, b.value})
    if (std::isfinite(value) && std::fabs(value) >= 0x1p50) return std::nullopt;
  const double value = halves(a.value) - halves(b.value);
  const auto sign_of = [](double x) { return x < 0 ? -1 : x > 0 ? 1 : 0; };
  if (slope == 0 || std::isinf(value)) return std::vector<Signed>{{range, sign_of(value)}};
  const double root = -value / static_cast<double>(slope);
  const int before = slope > 0 ? -1 : 1;
  // The division may round; the neighbours of the root decide.
  const auto at = [&](std::int64_t d) { return sign_of(static_cast<double>(slope * d) + value); };
  auto first = static_cast<std::int64_t>(std::floor(root)) - 1;  // that is not `before`
  while (at(first) == before) ++first;
  const bool meets = at(first) == 0;
  std::vector<Signed> parts;
  const auto part = [&](std::int64_t begin, std::int64_t end, int sign) {
    begin = std::max(begin, range.begin);
    end = std::min(end, range.end);
    if (begin < end) parts.push_back({{begin, end}, sign});
  };
  part(range.begin, first, before);
  if (meets) part(first, first + 1, 0);
  part(first + (meets ? 1 : 0), range.end, -before);
  return parts;
}

double truth(Op op, int sign) {
  switch (op) {
    case Op::equal:
      return sign == 0;
    case Op::not_equal:
      return sign != 0;
    case Op::less:
      return sign < 0;
    case Op::less_equal:
      return sign <= 0;
    case Op::greater:
      return sign > 0;
    default:
      return sign >= 0;
  }
}

// Appends what the op makes of these lines on this range; false where that is not known.
bool apply(Op op, DType dtype, const Lines& in, Range range, Steps& out) {
  const auto add = [&](std::int64_t begin, std::int64_t slope, double value) {
    append(out, {begin, slope, value});
    return true;
  };
  const bool lines = std::any_of(in.begin(), in.end(), is_line);
  switch (op) {
    case Op::where: {
      if (is_line(in[0])) return false;
      const Piece& chosen = in[in[0].value != 0 ? 1 : 2];
      return add(range.begin, chosen.slope, chosen.value);
    }
    case Op::neg:
      if (lines) return add(range.begin, -in[0].slope, -in[0].value);
      break;
    case Op::abs:
    case Op::relu: {
      if (!lines) break;
      const auto parts = compare_lines(in[0], {}, range);
      if (!parts) return false;
      for (const auto& [part, sign] : *parts) {
        const int factor = sign >= 0 ? 1 : op == Op::abs ? -1 : 0;
        add(part.begin, factor * in[0].slope, factor * in[0].value);
      }
      return true;
    }
    case Op::add:
    case Op::sub: {
      if (!lines) break;
      const int sign = op == Op::add ? 1 : -1;
      const double value = in[0].value + sign * in[1].value;
      if (std::isinf(value)) return add(range.begin, 0, value);  // a line is finite
      return is_whole(value) && add(range.begin, in[0].slope + sign * in[1].slope, value);
    }
    case Op::mul: {
      if (!lines) break;
      const Piece &line = in[is_line(in[0]) ? 0 : 1], &factor = in[is_line(in[0]) ? 1 : 0];
      if (is_line(factor) || !is_whole(factor.value) || std::fabs(factor.value) > 0x1p20)
        return false;
      return add(range.begin, line.slope * static_cast<std::int64_t>(factor.value),
                 line.value * factor.value);
    }
    case Op::minimum:
    case Op::maximum: {
      if (!lines) break;
      const auto parts = compare_lines(in[0], in[1], range);
      if (!parts) return false;
      for (const auto& [part, sign] : *parts) {
        const Piece& chosen = in[(sign > 0) == (op == Op::maximum) ? 0 : 1];
        add(part.begin, chosen.slope, chosen.value);
      }
      return true;
    }
    default:
      break;
  }
  if (lines) {
    if (info(op).rule != ShapeRule::compare) return false;
    const auto parts = compare_lines(in[0], in[1], range);
    if (!parts) return false;
    for (const auto& [part, sign] : *parts) add(part.begin, 0, truth(op, sign));
    return true;
  }
  const auto value = in.size() == 1 ? compute_exactly(op, dtype, in[0].value)
                                    : compute_exactly(op, dtype, in[0].value, in[1].value);
  return value && add(range.begin, 0, *value);
}

// Whether every value of a line is a number that the type has.
bool is_exact(const Steps& steps, DType dtype, std::int64_t far) {
  for (std::size_t i = 0; i < steps.pieces.size(); ++i) {
    const Piece& piece = steps.pieces[i];
    if (!is_line(piece)) continue;
    const std::int64_t first = std::max(piece.start, -far), last = std::min(steps.end(i) - 1, far);
    if (first > last) continue;
    if (std::abs(piece.slope) > (std::int64_t{1} << 40)) return false;
    for (const std::int64_t d : {first, last})
      if (!(std::fabs(static_cast<double>(piece.slope) * static_cast<double>(d) + piece.value) <=
            most_exact(dtype)))
        return false;
  }
  return true;
}

// Calls `make` for each range on which no operand changes its piece.
std::optional<Steps> on_ranges(const std::vector<Steps>& in,
                               const std::function<bool(const Lines&, Range, Steps&)>& make) {
  Steps out;
  std::vector<std::size_t> at(in.size(), 0);
  std::int64_t begin = Steps::kFirst;
  while (begin < -Steps::kFirst) {
    Lines lines;
    std::int64_t end = -Steps::kFirst;
    for (std::size_t i = 0; i < in.size(); ++i) {
      lines.push_back(in[i].pieces[at[i]]);
      end = std::min(end, in[i].end(at[i]));
    }
    if (!make(lines, {begin, end}, out) || out.pieces.size() > kMostPieces) return std::nullopt;
    for (std::size_t i = 0; i < in.size(); ++i)
      if (in[i].end(at[i]) == end) ++at[i];
    begin = end;
  }
  return out;
}

}  // namespace

Steps Steps::shifted(std::int64_t by) const {
  Steps result;
  for (Piece piece : pieces) {
    // What is beyond the ends is never looked at.
    const std::int64_t start = piece.start == kFirst ? kFirst : piece.start - by;
    append(result, {start, piece.slope, piece.value + static_cast<double>(piece.slope * by)});
  }
  return result;
}

Steps Steps::mirrored() const {
  Steps result;
  for (std::size_t i = pieces.size(); i-- > 0;) {
    const std::int64_t start = i + 1 == pieces.size() ? kFirst : 1 - end(i);
    append(result, {start, -pieces[i].slope, pieces[i].value});
  }
  return result;
}

std::optional<Steps> compute_steps(Op op, DType dtype, const std::vector<Steps>& in,
                                   std::int64_t far) {
  auto result = on_ranges(in, [&](const Lines& lines, Range range, Steps& out) {
    return apply(op, dtype, lines, range, out);
  });
  const ShapeRule rule = info(op).rule;
  const bool truths = rule == ShapeRule::compare || rule == ShapeRule::logical;
  if (result && !is_exact(*result, truths ? DType::boolean : dtype, far)) return std::nullopt;
  return result;
}

std::optional<Steps> convert_steps(DType from, DType to, const Steps& x, std::int64_t far) {
  if (to == DType::boolean) return compute_steps(Op::not_equal, from, {x, Steps::uniform(0)}, far);
  auto result = on_ranges({x}, [&](const Lines& lines, Range range, Steps& out) {
    const Piece& piece = lines[0];
    const auto value = is_line(piece) ? std::optional(piece.value) : convert(to, piece.value);
    if (value) append(out, {range.begin, piece.slope, *value});
    return value.has_value();
  });
  if (result && !is_exact(*result, to, far)) return std::nullopt;
  return result;
}

}  // namespace ac
