// The fallback kernel; fallback_plan.h says what op and parameters mean.
#pragma once

#include "kernels/argmax.cuh"
#include "kernels/fallback_plan.h"
#include "kernels/math.cuh"
#include "kernels/ptx.cuh"
#include "kernels/row_codes.cuh"

namespace ac::kernels {

template <Element element>
struct StoredOf {
  using type = int;
};
template <>
struct StoredOf<Element::f32> {
  using type = float;
};
template <>
struct StoredOf<Element::f16> {
  using type = f16;
};
template <>
struct StoredOf<Element::bf16> {
  using type = bf16;
};
template <>
struct StoredOf<Element::e4m3> {
  using type = e4m3;
};
template <>
struct StoredOf<Element::e8m0> {
  using type = e8m0;
};
template <>
struct StoredOf<Element::i64> {
  using type = long long;
};
template <>
struct StoredOf<Element::i8> {
  using type = signed char;
};
template <>
struct StoredOf<Element::u8> {
  using type = unsigned char;
};
template <>
struct StoredOf<Element::boolean> {
  using type = unsigned char;
};
template <Element element>
using Stored = typename StoredOf<element>::type;

// Indices along the axes first .. first + count - 1.
template <int first, int count>
struct Place {
  long long at[count > 0 ? count : 1] = {};

  AC_DEVICE static long long places(const FallbackParams& p) {
    long long product = 1;
    AC_UNROLL
    for (int axis = 0; axis < count; ++axis) product *= p.sizes[first + axis];
    return product;
  }
  AC_DEVICE Place(const FallbackParams& p, long long number) {
    AC_UNROLL
    for (int axis = count - 1; axis > 0; --axis) {
      const long long size = p.sizes[first + axis];
      at[axis] = number % size;
      number /= size;
    }
    if constexpr (count > 0) at[0] = number;
  }
  AC_DEVICE long long offset(const FallbackOperand& operand) const {
    long long sum = 0;
    AC_UNROLL
    for (int axis = 0; axis < count; ++axis) sum += at[axis] * operand.strides[first + axis];
    return sum;
  }
};

// float for floats, long long for all else. What an earlier kernel wrote is never read from L1.
template <Element element>
AC_DEVICE auto read(const FallbackOperand& operand, long long offset) {
  offset += operand.first;
  if constexpr (element == Element::positions) {
    return load_fresh(static_cast<const int*>(operand.data)) + offset;
  } else {
    const Stored<element> stored =
        load_fresh(static_cast<const Stored<element>*>(operand.data) + offset);
    if constexpr (is_float(element) || element == Element::e4m3 || element == Element::e8m0)
      return to_float(stored);
    else if constexpr (element == Element::boolean)
      return static_cast<long long>(stored != 0);
    else
      return static_cast<long long>(stored);
  }
}

// Towards 0; what is not in an int64 is the nearest that is, and NaN is 0.
AC_DEVICE long long truncated(long long x) { return x; }
AC_DEVICE long long truncated(float x) {
  constexpr float limit = 9223372036854775808.f;
  constexpr long long most = 0x7fffffffffffffffll;
  if (math::is_nan(x)) return 0;
  return x >= limit ? most : x < -limit ? -most - 1 : static_cast<long long>(x);
}

template <Element element, class V>
AC_DEVICE void write(const FallbackOperand& result, long long offset, V value) {
  auto* const data = static_cast<Stored<element>*>(const_cast<void*>(result.data));
  Stored<element>& stored = data[result.first + offset];
  if constexpr (element == Element::e4m3)
    stored = nearest_e4m3(value);
  else if constexpr (is_float(element))
    stored = from_float<Stored<element>>(static_cast<float>(value));
  else if constexpr (element == Element::boolean)
    stored = value != 0;
  else
    stored = static_cast<Stored<element>>(truncated(value));
}

// The elementwise ops on integers, which wrap around. What has no result is 0.
namespace whole {

using Bits = unsigned long long;

AC_DEVICE long long neg(long long x) { return static_cast<long long>(0 - static_cast<Bits>(x)); }
AC_DEVICE long long abs(long long x) { return x < 0 ? neg(x) : x; }
AC_DEVICE long long add(long long a, long long b) {
  return static_cast<long long>(static_cast<Bits>(a) + static_cast<Bits>(b));
}
AC_DEVICE long long sub(long long a, long long b) { return add(a, neg(b)); }
AC_DEVICE long long mul(long long a, long long b) {
  return static_cast<long long>(static_cast<Bits>(a) * static_cast<Bits>(b));
}
AC_DEVICE long long div(long long a, long long b) {
  if (b == 0) return 0;
  return b == -1 ? neg(a) : a / b;  // the least number has no negative
}
AC_DEVICE long long pow(long long a, long long b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
  long long power = 1;
  for (; b > 0; b >>= 1, a = mul(a, a))
    if (b & 1) power = mul(power, a);
  return power;
}
AC_DEVICE long long maximum(long long a, long long b) { return a > b ? a : b; }
AC_DEVICE long long minimum(long long a, long long b) { return a < b ? a : b; }
AC_DEVICE bool equal(long long a, long long b) { return a == b; }
AC_DEVICE bool not_equal(long long a, long long b) { return a != b; }
AC_DEVICE bool less(long long a, long long b) { return a < b; }
AC_DEVICE bool less_equal(long long a, long long b) { return a <= b; }
AC_DEVICE bool greater(long long a, long long b) { return a > b; }
AC_DEVICE bool greater_equal(long long a, long long b) { return a >= b; }
AC_DEVICE bool logical_not(long long x) { return x == 0; }
AC_DEVICE bool logical_and(long long a, long long b) { return a != 0 && b != 0; }
AC_DEVICE bool logical_or(long long a, long long b) { return a != 0 || b != 0; }

}  // namespace whole

#define AC_IF(name) if constexpr (kind == FallbackKind::name)

template <FallbackKind kind>
AC_DEVICE float apply(float x) {
  AC_IF(cast) return x;
  AC_IF(neg) return math::neg(x);
  AC_IF(abs) return math::abs(x);
  AC_IF(exp) return math::exp(x);
  AC_IF(log) return math::log(x);
  AC_IF(sqrt) return math::sqrt(x);
  AC_IF(rsqrt) return math::rsqrt(x);
  AC_IF(reciprocal) return math::reciprocal(x);
  AC_IF(sin) return math::sin(x);
  AC_IF(cos) return math::cos(x);
  AC_IF(tanh) return math::tanh(x);
  AC_IF(erf) return math::erf(x);
  AC_IF(sigmoid) return math::sigmoid(x);
  AC_IF(silu) return math::silu(x);
  AC_IF(relu) return math::relu(x);
  AC_IF(gelu_tanh) return math::gelu_tanh(x);
  AC_IF(gelu_erf) return math::gelu_erf(x);
}
template <FallbackKind kind>
AC_DEVICE long long apply(long long x) {
  AC_IF(cast) return x;
  AC_IF(neg) return whole::neg(x);
  AC_IF(abs) return whole::abs(x);
  AC_IF(logical_not) return whole::logical_not(x);
}
#define AC_BOTH(space)                              \
  AC_IF(add) return space::add(a, b);               \
  AC_IF(sub) return space::sub(a, b);               \
  AC_IF(mul) return space::mul(a, b);               \
  AC_IF(div) return space::div(a, b);               \
  AC_IF(pow) return space::pow(a, b);               \
  AC_IF(maximum) return space::maximum(a, b);       \
  AC_IF(minimum) return space::minimum(a, b);       \
  AC_IF(equal) return space::equal(a, b);           \
  AC_IF(not_equal) return space::not_equal(a, b);   \
  AC_IF(less) return space::less(a, b);             \
  AC_IF(less_equal) return space::less_equal(a, b); \
  AC_IF(greater) return space::greater(a, b);       \
  AC_IF(greater_equal) return space::greater_equal(a, b);
template <FallbackKind kind>
AC_DEVICE float apply(float a, float b) {
  AC_BOTH(math)
}
template <FallbackKind kind>
AC_DEVICE long long apply(long long a, long long b) {
  AC_BOTH(whole)
  AC_IF(logical_and) return whole::logical_and(a, b);
  AC_IF(logical_or) return whole::logical_or(a, b);
}
#undef AC_BOTH
#undef AC_IF

// A sum in float32 whose error grows with a part of the terms only: each 64 are summed apart.
struct LongSum {
  float total = 0, part = 0;
  int terms = 0;

  AC_DEVICE void add_product(float a, float b) {
    part = fmaf(a, b, part);
    if (++terms == 64) total += part, part = 0, terms = 0;
  }
  AC_DEVICE void add(float x) { add_product(x, 1.f); }
  AC_DEVICE float value() const { return total + part; }
};

// What a reduction, norm, softmax or product goes through: a thread alone, or a warp together.
template <FallbackOp op>
struct Inner {
  using Indices = Place<op.rank, op.inner>;

  const FallbackParams& p;
  const Place<0, op.rank>& place;

  AC_DEVICE long long count() const { return Indices::places(p); }
  // This thread's are `first()`, and every `step()`th after it.
  AC_DEVICE long long first() const { return p.together ? threadIdx.x % fallback_warp : 0; }
  AC_DEVICE long long step() const { return p.together ? fallback_warp : 1; }
  AC_DEVICE float sum(const LongSum& own) const {
    return p.together ? warp_sum(own.value()) : own.value();
  }
  template <int operand>
  AC_DEVICE auto read_at(long long number) const {
    return read<op.in[operand]>(
        p.in[operand], place.offset(p.in[operand]) + Indices(p, number).offset(p.in[operand]));
  }
};

template <FallbackOp op>
AC_DEVICE auto reduced(const Inner<op>& inner) {
  const long long count = inner.count();
  if constexpr (op.kind == FallbackKind::amax) {
    // Of nothing: the least that there is.
    decltype(inner.template read_at<0>(0)) largest;
    if constexpr (is_float(op.in[0]))
      largest = -INFINITY;
    else
      largest = -0x7fffffffffffffffll - 1;
    const auto larger = [](auto a, auto b) {
      if constexpr (is_float(op.in[0]))
        return math::maximum(a, b);
      else
        return whole::maximum(a, b);
    };
    for (long long i = inner.first(); i < count; i += inner.step())
      largest = larger(largest, inner.template read_at<0>(i));
    if (inner.p.together) largest = warp_reduce(largest, larger);
    return largest;
  } else {
    LongSum own;
    for (long long i = inner.first(); i < count; i += inner.step())
      own.add(inner.template read_at<0>(i));
    const float sum = inner.sum(own);
    return op.kind == FallbackKind::mean ? sum / static_cast<float>(count) : sum;
  }
}

template <FallbackOp op>
AC_DEVICE long long largest_at(const Inner<op>& inner) {
  const long long count = inner.count();
  unsigned long long best = 0;
  for (long long i = inner.first(); i < count; i += inner.step()) {
    const unsigned long long key = logit_key(inner.template read_at<0>(i), static_cast<int>(i));
    best = key > best ? key : best;
  }
  return argmax_token(inner.p.together ? warp_max(best) : best);
}

template <FallbackOp op>
AC_DEVICE float softmaxed(float x, const Inner<op>& inner) {
  const long long count = inner.count();
  float largest = -INFINITY;
  for (long long i = inner.first(); i < count; i += inner.step())
    largest = fmaxf(largest, inner.template read_at<1>(i));
  if (inner.p.together) largest = warp_max(largest);
  LongSum own;
  for (long long i = inner.first(); i < count; i += inner.step())
    own.add(math::exp(inner.template read_at<1>(i) - largest));
  return math::exp(x - largest) / inner.sum(own);
}

template <FallbackOp op>
AC_DEVICE float normed(float x, const Inner<op>& inner) {
  const FallbackParams& p = inner.p;
  const long long count = inner.count();
  const auto length = static_cast<float>(count);
  float mean = 0;
  if constexpr (op.kind == FallbackKind::layer_norm) {
    // The second time round it is the distance that is summed, which takes the rounding of the sum
    // away: of equal elements, the mean is exactly each of them.
    for (int round = 0; round < 2; ++round) {
      LongSum own;
      for (long long i = inner.first(); i < count; i += inner.step())
        own.add(inner.template read_at<1>(i) - mean);
      mean += inner.sum(own) / length;
    }
  }
  LongSum own;
  for (long long i = inner.first(); i < count; i += inner.step()) {
    const float distance = inner.template read_at<1>(i) - mean;
    own.add_product(distance, distance);
  }
  float y = (x - mean) * rsqrtf(inner.sum(own) / length + p.eps);
  if constexpr (op.operands > 2)
    y *= p.offset + read<op.in[2]>(p.in[2], inner.place.offset(p.in[2]));
  if constexpr (op.operands > 3) y += read<op.in[3]>(p.in[3], inner.place.offset(p.in[3]));
  return y;
}

template <FallbackOp op>
AC_DEVICE float multiplied(const Inner<op>& inner) {
  const long long count = inner.count();
  LongSum own;
  for (long long i = inner.first(); i < count; i += inner.step())
    own.add_product(inner.template read_at<0>(i), inner.template read_at<1>(i));
  const float sum = inner.sum(own);
  if constexpr (op.operands > 2)
    return sum + read<op.in[2]>(inner.p.in[2], inner.place.offset(inner.p.in[2]));
  return sum;
}

template <FallbackOp op>
AC_DEVICE float multiplied_with_scales(const Inner<op>& inner) {
  constexpr Format format = op.format;
  constexpr int bits = bits_of(format.codes), high_bits = high_bits_of(format.codes);
  constexpr int list = format.zeros || format.global || format.outer > 0 ? 4 : 3,
                bias = format.listed || high_bits > 0 ? list + 1 : list;
  const FallbackParams& p = inner.p;
  const long long row = inner.place.at[op.rank - 1], count = inner.count();
  const long long row_of_scales = format.rows > 0 ? row / format.rows : 0;
  LongSum own;
  for (long long i = inner.first(); i < count; i += inner.step()) {
    long long group = format.columns > 0 ? i / format.columns : 0;
    if constexpr (format.listed) group = read<op.in[list]>(p.in[list], i);
    const auto of_group = [&](const FallbackOperand& in) {
      return row_of_scales * in.strides[op.rank - 1] + group * in.strides[op.rank];
    };
    // The scale (0) or the minimum (1).
    constexpr int each = format.values_each();
    const auto in_units = [&](int which) {
      const FallbackOperand& scales = p.in[2];
      float value = static_cast<float>(
          read<op.in[2]>(scales, row_of_scales * scales.strides[op.rank - 1] +
                                     (group * each + which) * scales.strides[op.rank]));
      if constexpr (op.format.outer > 0)
        value *= read<op.in[3]>(p.in[3],
                                row * p.in[3].strides[op.rank - 1] +
                                    (i / format.outer * each + which) * p.in[3].strides[op.rank]);
      return value;
    };
    float w;
    if constexpr (format.codes == Codes::e4m3) {
      w = inner.template read_at<1>(i);
    } else {
      const long long at = row * p.in[1].strides[op.rank - 1] + i * bits / 8;
      long long code = read<op.in[1]>(p.in[1], at) >> i * bits % 8 & ((1 << bits) - 1);
      if constexpr (high_bits > 0) {
        const FallbackOperand& plane = p.in[list];
        const long long byte = read<op.in[list]>(
            plane, row * plane.strides[op.rank - 1] + i * high_bits / 8 * plane.strides[op.rank]);
        code |= (byte >> i * high_bits % 8 & ((1 << high_bits) - 1)) << bits;
      }
      long long zero = format.usual_zero();
      if constexpr (format.zeros) zero = read<op.in[3]>(p.in[3], of_group(p.in[3]));
      if constexpr (is_whole(format.codes))
        w = static_cast<float>(code - zero);
      else
        w = to_float(e2m1{static_cast<unsigned char>(code)});
    }
    w *= in_units(0);
    if constexpr (format.minima) w -= in_units(1);
    if constexpr (format.global) w *= read<op.in[3]>(p.in[3], 0);
    own.add_product(inner.template read_at<0>(i), w);
  }
  const float sum = inner.sum(own);
  if constexpr (op.operands > bias)
    return sum + read<op.in[bias]>(p.in[bias], inner.place.offset(p.in[bias]));
  return sum;
}

// An id outside the table reads nothing, and gives NaN (0 where there is none).
template <FallbackOp op>
AC_DEVICE auto looked_up(const Inner<op>& inner) {
  const FallbackParams& p = inner.p;
  const long long id = read<op.in[1]>(p.in[1], inner.place.offset(p.in[1]));
  const bool known = id >= 0 && id < inner.count();
  if constexpr (is_float(op.in[0]))
    return known ? inner.template read_at<0>(id) : NAN;
  else
    return known ? inner.template read_at<0>(id) : 0ll;
}

// Angles are float64: right for any position and frequency.
template <FallbackOp op>
AC_DEVICE float rotated(float x, const Inner<op>& inner) {
  constexpr bool interleaved = op.kind == FallbackKind::rope_interleaved;
  const FallbackParams& p = inner.p;
  const long long feature = inner.place.at[op.rank - 1], pairs = inner.count();
  if (feature >= 2 * pairs) return x;
  const long long pair = interleaved ? feature / 2 : feature % pairs;
  const bool second = interleaved ? feature % 2 == 1 : feature >= pairs;
  const long long other = interleaved ? feature ^ 1 : second ? feature - pairs : feature + pairs;

  const long long position = read<op.in[2]>(p.in[2], inner.place.offset(p.in[2]));
  const double angle = static_cast<double>(position) * inner.template read_at<3>(pair);
  const auto c = static_cast<float>(cos(angle)) * p.scale;
  const auto s = static_cast<float>(sin(angle)) * p.scale;
  const FallbackOperand& row = p.in[1];
  const float partner = read<op.in[1]>(row, inner.place.offset(row) + other * row.strides[op.rank]);
  return fmaf(x, c, second ? partner * s : -partner * s);
}

// The element of the result at `place`.
template <FallbackOp op>
AC_DEVICE auto value_at(const FallbackParams& p, const Place<0, op.rank>& place) {
  using Kind = FallbackKind;
  constexpr Kind kind = op.kind;
  const Inner<op> inner{p, place};
  if constexpr (kind == Kind::sum || kind == Kind::mean || kind == Kind::amax) {
    return reduced<op>(inner);
  } else if constexpr (kind == Kind::argmax) {
    return largest_at<op>(inner);
  } else if constexpr (kind == Kind::product) {
    return multiplied<op>(inner);
  } else if constexpr (kind == Kind::scaled_product) {
    return multiplied_with_scales<op>(inner);
  } else if constexpr (kind == Kind::embedding) {
    return looked_up<op>(inner);
  } else {
    const auto x = read<op.in[0]>(p.in[0], place.offset(p.in[0]));
    if constexpr (kind == Kind::softmax) {
      return softmaxed<op>(x, inner);
    } else if constexpr (kind == Kind::rms_norm || kind == Kind::layer_norm) {
      return normed<op>(x, inner);
    } else if constexpr (kind == Kind::rope || kind == Kind::rope_interleaved) {
      return rotated<op>(x, inner);
    } else if constexpr (kind == Kind::tril || kind == Kind::triu) {
      const long long above = place.at[op.rank - 1] - place.at[op.rank - 2];
      const bool kept = kind == Kind::tril ? above <= p.diagonal : above >= p.diagonal;
      return kept ? x : decltype(x + x)(0);
    } else if constexpr (kind == Kind::where) {
      const auto yes = read<op.in[1]>(p.in[1], place.offset(p.in[1]));
      const auto no = read<op.in[2]>(p.in[2], place.offset(p.in[2]));
      return x != 0 ? yes : no;
    } else if constexpr (op.operands == 2) {
      return apply<kind>(x, read<op.in[1]>(p.in[1], place.offset(p.in[1])));
    } else {
      return apply<kind>(x);
    }
  }
}

// A few features of a token's and head's attention over some of the tokens that it sees, with an
// online softmax.
struct Attended {
  float largest = -INFINITY, total = 0, sums[attend_features] = {};

  AC_DEVICE float add(float score) {
    if (score > largest) {
      const float shrink = math::exp(largest - score);
      largest = score;
      total *= shrink;
      AC_UNROLL
      for (int f = 0; f < attend_features; ++f) sums[f] *= shrink;
    }
    // As long as every score is -inf, so is the largest.
    const float share = score == -INFINITY ? 0 : math::exp(score - largest);
    total += share;
    return share;
  }
};

// The scale of a row of elements(0) to elements(size - 1).
template <class Elements>
AC_DEVICE float scale_of_row(long long size, Elements elements) {
  unsigned largest = 0;
  for (long long i = 0; i < size; ++i) {
    const unsigned bits = magnitude_bits(elements(i));
    if (bits > largest) largest = bits;
  }
  return row_scale(largest);
}

// A row of keys or values, of a new token or of a slot. What is cached as codes counts as it will
// be cached.
template <Element element, Element cached>
struct AttendedRow {
  static constexpr bool coded = cached == Element::e4m3;
  const FallbackOperand& in;
  long long first;
  bool is_new;
  float scale = 1, inverse = 1;

  AC_DEVICE AttendedRow(const FallbackOperand& in_, const FallbackOperand& scales, bool is_new_,
                        long long row, long long head, long long size)
      : in(in_), first(row * in.strides[0] + head * in.strides[1]), is_new(is_new_) {
    if constexpr (coded) {
      scale = is_new
                  ? scale_of_row(size, [&](long long i) { return element_at(i); })
                  : read<Element::f32>(scales, row * scales.strides[0] + head * scales.strides[1]);
      inverse = inverse_scale(scale);
    }
  }
  AC_DEVICE float element_at(long long i) const {
    return read<element>(in, first + i * in.strides[2]);
  }
  // Still to be multiplied with the scale.
  AC_DEVICE float operator[](long long i) const {
    if constexpr (!coded) return element_at(i);
    if (is_new) return to_float(nearest_e4m3(element_at(i) * inverse));
    return read<cached>(in, first + i * in.strides[2]);
  }
};

// Over every `step`th token, from the first one on. Older tokens come from the cache, new ones from
// k and v: as the append has not happened yet, the cache still has what it is about to overwrite.
template <FallbackOp op>
AC_DEVICE Attended attended(const FallbackParams& p, const Place<0, op.rank>& place, int first,
                            int step) {
  constexpr Element element = op.out;
  const long long token = place.at[0], head = place.at[1], kv_head = head / p.group;
  const long long first_feature = place.at[2] * attend_features;
  const long long key_size = p.sizes[3], value_size = p.sizes[4];
  const long long old = load_fresh(p.position);
  using Row = AttendedRow<element, op.in[3]>;
  const auto q = [&](long long feature) {
    const FallbackOperand& x = p.in[0];
    return read<element>(x, token * x.strides[0] + head * x.strides[1] + feature * x.strides[2]);
  };

  Attended sum;
  const long long seen = old + token + 1;
  const long long begin = p.window > 0 && seen > p.window ? seen - p.window : 0;
  for (long long t = begin + first; t < seen; t += step) {
    const bool is_new = t >= old;
    const long long row = is_new ? t - old : t % p.capacity;
    const Row key(is_new ? p.in[1] : p.in[3], p.in[5], is_new, row, kv_head, key_size);
    const Row value(is_new ? p.in[2] : p.in[4], p.in[6], is_new, row, kv_head, value_size);
    LongSum product;
    for (long long i = 0; i < key_size; ++i) product.add_product(q(i), key[i]);
    const float share = sum.add(soft_cap(p.scale * (product.value() * key.scale), p.softcap));
    AC_UNROLL
    for (int f = 0; f < attend_features; ++f)
      if (first_feature + f < value_size)
        sum.sums[f] = fmaf(share, value[first_feature + f] * value.scale, sum.sums[f]);
  }
  return sum;
}

template <FallbackOp op>
AC_DEVICE void write_attended(const FallbackParams& p, const Place<0, op.rank>& place, int feature,
                              float value) {
  const long long at = place.at[2] * attend_features + feature;
  if (at < p.sizes[4])
    write<op.out>(
        p.out,
        place.at[0] * p.out.strides[0] + place.at[1] * p.out.strides[1] + at * p.out.strides[2],
        value);
}

// The threads of a block share the tokens, and add up what each has.
template <FallbackOp op>
AC_DEVICE void attend_together(const FallbackParams& p) {
  constexpr int part = attend_features + 2;
  AC_SHARED(float, parts, fallback_threads* part);
  const int thread = static_cast<int>(threadIdx.x);
  const long long count = Place<0, op.rank>::places(p);
  for (long long i = blockIdx.x; i < count; i += gridDim.x) {
    const Place<0, op.rank> place(p, i);
    const Attended own = attended<op>(p, place, thread, fallback_threads);
    float* const mine = parts + thread * part;
    mine[0] = own.largest, mine[1] = own.total;
    for (int f = 0; f < attend_features; ++f) mine[2 + f] = own.sums[f];
    __syncthreads();
    if (thread < attend_features) {
      float largest = -INFINITY, total = 0, sum = 0;
      for (int t = 0; t < fallback_threads; ++t) largest = fmaxf(largest, parts[t * part]);
      for (int t = 0; t < fallback_threads; ++t) {
        const float* const its = parts + t * part;
        if (its[1] == 0) continue;  // it has seen nothing, or -inf alone
        const float share = math::exp(its[0] - largest);
        total = fmaf(its[1], share, total);
        sum = fmaf(its[2 + thread], share, sum);
      }
      write_attended<op>(p, place, thread, sum / total);
    }
    __syncthreads();  // the parts are free again
  }
}

template <FallbackOp op>
AC_DEVICE void attend(const FallbackParams& p, const Place<0, op.rank>& place) {
  const Attended all = attended<op>(p, place, 0, 1);
  for (int f = 0; f < attend_features; ++f)
    write_attended<op>(p, place, f, all.sums[f] / all.total);
}

// Of more new tokens than slots, the last ones stay.
template <FallbackOp op>
AC_DEVICE void append(const FallbackParams& p, const Place<0, op.rank>& place) {
  const long long token = place.at[0];
  if (token < p.sizes[0] - p.capacity) return;
  Place<0, op.rank> slot = place;
  slot.at[0] = (load_fresh(p.position) + token) % p.capacity;
  float value = read<op.in[0]>(p.in[0], place.offset(p.in[0]));
  if constexpr (op.operands == 2) {
    const FallbackOperand& row = p.in[1];
    const float scale = scale_of_row(p.sizes[op.rank], [&](long long i) {
      return read<op.in[1]>(row, place.offset(row) + i * row.strides[op.rank]);
    });
    value = op.out == Element::e4m3 ? value * inverse_scale(scale) : scale;
  }
  write<op.out>(p.out, slot.offset(p.out), value);
}

template <FallbackOp op>
AC_DEVICE void fallback(const FallbackParams& p) {
  launch_dependents();
  wait_for_dependency();

  if constexpr (op.kind == FallbackKind::attend)
    if (p.together) return attend_together<op>(p);
  using Indices = Place<0, op.rank>;
  const long long count = Indices::places(p);
  const int each = p.together ? fallback_warp : 1;  // threads of an element
  const int elements = fallback_threads / each;
  for (long long i = static_cast<long long>(blockIdx.x) * elements + threadIdx.x / each; i < count;
       i += static_cast<long long>(gridDim.x) * elements) {
    const Indices place(p, i);
    if constexpr (op.kind == FallbackKind::attend)
      attend<op>(p, place);
    else if constexpr (op.kind == FallbackKind::append)
      append<op>(p, place);
    else if (const auto value = value_at<op>(p, place); threadIdx.x % each == 0)
      write<op.out>(p.out, place.offset(p.out), value);
  }
}

// Defines the kernel `name`. Put op in parentheses if it holds commas.
#define AC_FALLBACK_KERNEL(name, op)                                                       \
  AC_KERNEL_ENTRY(name, ::ac::kernels::FallbackParams, ::ac::kernels::fallback_threads, 1, \
                  ::ac::kernels::fallback<op>(p))

}  // namespace ac::kernels
