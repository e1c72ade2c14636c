// Every op of a step, right for any dtype, layout and size, however slow: what runs where no other
// family does. A thread computes one element of the result at a time, and finds each element that
// it needs by strides; a warp may share a sum, a block what a token attends to. Results must not
// overlap what the same launch reads.
#pragma once

#include "kernels/weight_format.h"

namespace ac::kernels {

// By the names of the op table (src/ir/ops.def), which is where their meaning is defined. One kind
// may do for several ops: cast copies, concat is a cast into a part of the result, product is
// matmul and linear. argmax is no op: it chooses the token, as kernels/sampling_plan.h says.
// clang-format off
#define AC_FALLBACK_KINDS(X)                                                                 \
  X(cast) X(neg) X(abs) X(exp) X(log) X(sqrt) X(rsqrt) X(reciprocal) X(sin) X(cos) X(tanh)   \
  X(erf) X(sigmoid) X(silu) X(relu) X(gelu_tanh) X(gelu_erf) X(logical_not)                  \
  X(add) X(sub) X(mul) X(div) X(pow) X(maximum) X(minimum)                                   \
  X(equal) X(not_equal) X(less) X(less_equal) X(greater) X(greater_equal)                    \
  X(logical_and) X(logical_or) X(where) X(tril) X(triu)                                      \
  X(sum) X(mean) X(amax) X(argmax) X(softmax) X(rms_norm) X(layer_norm) X(product)           \
  X(scaled_product)                                                                          \
  X(embedding) X(rope) X(rope_interleaved) X(attend) X(append)
// clang-format on

enum class FallbackKind : unsigned char {
#define AC_FALLBACK_ENUMERATOR(name) name,
  AC_FALLBACK_KINDS(AC_FALLBACK_ENUMERATOR)
#undef AC_FALLBACK_ENUMERATOR
};

constexpr const char* name_of(FallbackKind kind) {
  constexpr const char* names[] = {
#define AC_FALLBACK_NAME(name) #name,
      AC_FALLBACK_KINDS(AC_FALLBACK_NAME)
#undef AC_FALLBACK_NAME
  };
  return names[static_cast<int>(kind)];
}

// Whether an element of the result takes a loop that threads can share.
constexpr bool loops(FallbackKind kind) {
  using enum FallbackKind;
  return (kind >= sum && kind <= scaled_product) || kind == attend;
}

// What an operand's elements are. Positions are in no memory: the data is the i32 number of tokens
// before these, and an element is its place behind that.
enum class Element : unsigned char {
  f32,
  f16,
  bf16,
  i32,
  i64,
  boolean,
  positions,
  e4m3,
  u8,
  e8m0,
  i8
};

constexpr bool is_float(Element element) { return element <= Element::bf16; }

struct FallbackOp {
  FallbackKind kind = FallbackKind::cast;
  Element in[7] = {};
  Element out = Element::f32;
  int operands = 1;
  int rank = 1;        // axes of the result, after those that could be joined were
  int inner = 0;       // axes behind them, over which a thread loops
  Format format = {};  // scaled_product: of b
};

constexpr int fallback_axes = 9;
constexpr int fallback_threads = 256, fallback_warp = 32;
constexpr int attend_features = 32;  // of the result, which a thread of `attend` computes together

// The element at the index (i, j, ..) lies `first + i * strides[0] + j * strides[1] + ..` elements
// behind `data`.
struct FallbackOperand {
  const void* data;  // written if it is the result
  long long first;
  long long strides[fallback_axes];
};

// Axes are those of the result, then the inner ones. Operands by kind:
//   softmax            x, x as a row: not along the softmax's axis, which is the inner one
//   rms_norm           x, x as a row, [weight]
//   layer_norm         x, x as a row, [weight, [bias]]
//   product            a, b, [bias]; sums over the inner axis
//   scaled_product     a, codes of b, its scales, [its zero points, its own scale or its outer
//                      scales], [groups of columns, or high bits of codes], [bias]. The last axis
//                      of the result is b's rows; strides along it and the inner axis are those of
//                      bytes, and from scale to scale
//   embedding          table, whose inner axis is that of the ids; ids
//   rope               x, x as a row, positions, inv_freq; the inner axis is that of inv_freq. The
//                      last axis of the result is the features
//   attend             q, k, v of the new tokens; keys, values of the cache, before the append; of
//                      codes, the scales of keys and of values.
//                      Axes are token (in a cache: slot), head, group of features; the inner axes
//                      are sizes only: features of a key, of a value
//   append             k or v; the result is the cache, its first axis the slots. Of codes: k or v,
//                      the same as a row; the result has the codes, or the scale of each row
struct FallbackParams {
  FallbackOperand in[7];
  FallbackOperand out;
  long long sizes[fallback_axes];
  const int* position;  // attend, append: tokens before these
  long long diagonal;   // tril, triu
  long long capacity;   // attend, append: slots of the cache
  long long window;     // attend: tokens that one sees; 0: all
  int group;            // attend: heads that share a key
  float eps;            // norms
  float offset;         // rms_norm: what is added to the weight
  float scale;          // rope, attend
  float softcap;        // attend
  int together;         // of what loops: whether a warp (attend: a block) shares an element's loop
};

}  // namespace ac::kernels
