// What the families of attention have in common: append and attend, with RoPE and norms of query
// and key heads before it if the region has them.
#pragma once

#include <string>
#include <variant>

#include "families/family.h"

namespace ac {

struct AttentionOperands {
  NodeId q = -1, k = -1, v = -1;
  NodeId q_norm = -1, k_norm = -1;  // rms_norm nodes
  NodeId rope = -1;                 // of the query: the key's is equal
  NodeId attend = -1;               // the append_attend node
};

struct FoundAttention {
  kernels::Type type = kernels::Type::f32;
  int head_dim = 0, group = 0, kv_heads = 0, rotary = 0;
  bool interleaved = false;
  int new_tokens = 1, seen = 0, window = 0;
  bool fp8 = false;                    // how keys and values are cached
  bool softcap = false, dense = true;  // dense: queries, keys and values lie one after the other
  AttentionOperands operands;
};

// Or why the region is no attention that kernels know.
std::variant<FoundAttention, std::string> find_attention(const Body& body);

// What launches of attention are filled in with.
struct CacheOf {
  Buffer keys, values, key_scales, value_scales;  // scales: of codes
  int capacity, window;
};

inline CacheOf cache_of(const Lowering& to, NodeId attend) {
  const std::int64_t state = to[attend].integer("state");
  const auto at = static_cast<std::size_t>(state);
  const auto tensor = [&](std::size_t number) {
    return Buffer{
        .role = Buffer::Role::state, .state = state, .tensor = static_cast<std::int32_t>(number)};
  };
  return {tensor(kKeys),
          tensor(kValues),
          tensor(kKeyScales),
          tensor(kValueScales),
          static_cast<int>(to.setting.slots.at(at)),
          static_cast<int>(to.step.states[at].window)};
}

template <class Params>
void point_to_cache(ParamsOf<Params>& of, const CacheOf& cache, bool fp8) {
  Params& p = of.params;
  of.point(p.k_cache, cache.keys), of.point(p.v_cache, cache.values);
  if (fp8) of.point(p.k_scales, cache.key_scales), of.point(p.v_scales, cache.value_scales);
  p.capacity = cache.capacity;
}

template <class Params>
void fill_norms(ParamsOf<Params>& of, const Lowering& to, const AttentionOperands& o) {
  if (o.q_norm < 0) return;
  Params& p = of.params;
  of.point(p.q_norm, to[o.q_norm].inputs[1]);
  of.point(p.k_norm, to[o.k_norm].inputs[1]);
  p.norm_eps = static_cast<float>(to[o.q_norm].number("eps"));
  p.norm_offset = static_cast<float>(to[o.q_norm].number("weight_offset"));
}

inline Dim tokens_of(const Lowering& to, NodeId attend) {
  return to.shape(to[attend].inputs[0])[0];
}

// Queries on their way to attention: `width` elements of a token.
inline Buffer turned(const Lowering& to, NodeId attend, std::int64_t width) {
  const std::int64_t bytes = bytes_of(to.step.graph.type(attend).dtype) * width;
  return workspace(scaled(count_of(tokens_of(to, attend)), bytes));
}

// What any kernel needs that leaves queries as attention takes them, and appends keys and values.
template <class Params>
void fill_append(ParamsOf<Params>& of, const Lowering& to, int heads, int kv_heads, int head_dim,
                 bool fp8, const AttentionOperands& o) {
  Params& p = of.params;
  const CacheOf cache = cache_of(to, o.attend);
  p.heads = heads, p.kv_heads = kv_heads;
  fill_norms(of, to, o);
  p.rope_scale = 1;
  if (o.rope >= 0) {
    of.point(p.inv_freq, to[o.rope].inputs[2]);
    p.rope_scale = static_cast<float>(to[o.rope].number("scale"));
  }
  of.point(p.position, {.role = Buffer::Role::position});
  of.point(p.q_out, turned(to, o.attend, std::int64_t{heads} * head_dim));
  point_to_cache(of, cache, fp8);
}

}  // namespace ac
