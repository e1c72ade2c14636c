// The decode benchmark's matrices of each decoder, and names for what it prints.
#pragma once

#include <cmath>
#include <cstdio>
#include <string>

#include "bench/gemv_bench.h"
#include "bench/models.h"

namespace ac::bench {

struct Shape {
  int n, k;
  size_t elements;
};
inline Shape shape_of(const Model& m, int site) {
  const int query = m.heads * m.head_dim;
  int n = 0, k = 0;
  if (site == qkv) n = query + 2 * m.kv_heads * m.head_dim, k = m.hidden;
  if (site == o) n = m.hidden, k = query;
  if (site == gate_up) n = m.intermediate, k = m.hidden;
  if (site == down) n = m.hidden, k = m.intermediate;
  if (site == head) n = m.vocabulary, k = m.hidden;
  return {n, k, size_t(n) * k * ops[site].row_sets()};
}
inline size_t layer_elements(const Model& m) {
  size_t total = 0;
  for (int site = qkv; site <= down; ++site) total += shape_of(m, site).elements;
  return total;
}

inline double host_float(f16 x) {
  const int exponent = x.bits >> 10 & 31, mantissa = x.bits & 1023;
  const double sign = x.bits & 0x8000 ? -1 : 1;
  if (exponent == 31) return NAN;
  return sign *
         (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25));
}

inline std::string plan_name(const GemvPlan& p) {
  char text[96];
  const char* ring = p.ring == Ring::registers ? "R" : p.ring == Ring::async_copy ? "S" : "B";
  int length = std::snprintf(text, sizeof text, "%s%dx%dx%d", ring, p.threads, p.rows, p.depth);
  std::string name(text, static_cast<size_t>(length));
  if (p.chunks > 1) name += "x" + std::to_string(p.chunks);
  name += p.persistent ? "/" + std::to_string(p.resident) : std::string("/full");
  if (p.split > 1) name += "/split" + std::to_string(p.split);
  if (p.signal == Signal::last_group) name += "/late";
  if (p.cache == Cache::no_allocate) name += "/noalloc";
  if (p.cache == Cache::evict_first) name += "/evict";
  return name;
}

}  // namespace ac::bench
