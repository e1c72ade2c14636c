#include "tests/unit/qkv_rope_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/unit/rope_truth.h"

namespace ac::kernels {
namespace {

std::size_t size(int n) { return static_cast<std::size_t>(n); }

}  // namespace

GemmShape QkvRopeCase::shape() const {
  const int q = heads * op.append.head_dim, kv = kv_heads * op.append.head_dim;
  if (op.product.matrices == 1) return {tokens, {q + 2 * kv}, k};
  return {tokens, {q, kv, kv}, k};
}

std::string run_qkv_rope(const QkvRopeCase& c, std::string* output_bytes) {
  const GemmShape shape = c.shape();
  if (const char* illegal = why_illegal(c.op, c.plan, shape, 227 * 1024)) return illegal;
  std::mt19937 random(c.seed);
  const Type type = c.op.append.type;
  const std::size_t tokens = size(c.tokens), heads = size(c.heads), kv_heads = size(c.kv_heads);
  const std::size_t dim = size(c.op.append.head_dim), capacity = size(c.capacity), k = size(c.k);
  const std::size_t all = heads + 2 * kv_heads, x_pitch = k + size(c.gap);

  Input x(type, tokens * x_pitch);  // gaps stay NaN
  std::uniform_real_distribution<float> of_x(-2, 2);
  for (std::size_t t = 0; t < tokens; ++t)
    for (std::size_t i = 0; i < k; ++i) x.set(t * x_pitch + i, of_x(random));
  x.remember();
  const float bound = std::sqrt(3.0f / static_cast<float>(k));
  std::vector<Input> weights, biases;
  for (int i = 0; i < c.op.product.matrices; ++i) {
    weights.emplace_back(type, size(shape.rows[i]) * k, 0, random, -bound, bound);
    biases.emplace_back(type, size(shape.rows[i]), 0, random, -1.f, 1.f);
  }
  Input q_norm(type, dim, 0, random, 0.5f, 1.5f), k_norm(type, dim, 0, random, 0.5f, 1.5f);
  const std::size_t pairs = size(c.op.append.rotary) / 2;
  Input inv_freq(Type::f32, pairs);
  for (std::size_t i = 0; i < pairs; ++i)
    inv_freq.set(
        i, static_cast<float>(std::pow(1e4, -static_cast<double>(i) / static_cast<double>(pairs))));
  inv_freq.remember();
  Output q_out(type, tokens * heads * dim), k_cache(type, kv_heads * capacity * dim),
      v_cache(type, kv_heads * capacity * dim);
  // Every slot holds something, so that a write to the wrong one is seen.
  const float old = 0.375f;
  for (std::size_t i = 0; i < kv_heads * capacity * dim; ++i)
    k_cache.set(i, old), v_cache.set(i, -old);

  const int before = c.position;
  QkvRopeParams p{};
  GemmParams& product = p.product.gemm;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    product.matrix[i].weight = weights[i].data();
    product.matrix[i].bias = c.op.product.bias ? biases[i].data() : nullptr;
    product.matrix[i].rows = shape.rows[i];
  }
  product.m = c.tokens, product.k = product.pitch = c.k;
  product.x = x.data(), product.x_pitch = static_cast<int>(x_pitch);
  product.scale = 1;
  p.heads = c.heads, p.kv_heads = c.kv_heads;
  p.q_norm = q_norm.data(), p.k_norm = k_norm.data();
  p.norm_eps = 1e-6f, p.norm_offset = c.norm_offset;
  p.inv_freq = static_cast<const float*>(inv_freq.data()), p.rope_scale = c.rope_scale;
  p.position = &before, p.capacity = c.capacity;
  p.q_out = q_out.data(), p.k_cache = k_cache.data(), p.v_cache = v_cache.data();
  // As on a GPU of five multiprocessors, so that blocks take several tiles.
  const long long blocks = c.plan.grid(c.op.product, shape, 5);
  const LaunchReport report =
      host_launch({.name = c.name,
                   .grid = {static_cast<unsigned>(blocks)},
                   .block = {static_cast<unsigned>(c.plan.threads())},
                   .shared_bytes = static_cast<std::size_t>(c.plan.shared_bytes(c.op.product)),
                   .cluster = static_cast<unsigned>(c.plan.cluster()),
                   .schedule = c.schedule,
                   .seed = c.seed,
                   .check_races = c.check_races},
                  c.kernel, p);
  if (!report.ok()) return report.error;
  if (output_bytes != nullptr) *output_bytes = q_out.bytes() + k_cache.bytes() + v_cache.bytes();

  const RopeTruth truth{c.op.append, c.norm_offset, c.rope_scale, inv_freq};
  // Of all heads, q's before k's before v's.
  const auto head_of = [&](std::size_t head, std::size_t token) {
    const bool query = head < heads, value = head >= heads + kv_heads;
    const bool one = c.op.product.matrices == 1;
    const std::size_t matrix = one || query ? 0 : value ? 2 : 1;
    const std::size_t first = one || query ? 0 : value ? heads + kv_heads : heads;
    std::vector<Truth> products;
    for (std::size_t d = 0; d < dim; ++d) {
      const std::size_t row = (head - first) * dim + d;
      double sum = c.op.product.bias ? biases[matrix].get(row) : 0, sizes = std::fabs(sum);
      for (std::size_t i = 0; i < k; ++i) {
        const double term = x.get(token * x_pitch + i) * weights[matrix].get(row * k + i);
        sum += term, sizes += std::fabs(term);
      }
      products.push_back({sum, 2e-7 * sizes});
    }
    const Input* norm = !c.op.append.qk_norm || value ? nullptr : query ? &q_norm : &k_norm;
    return truth.of(std::move(products), norm, c.position + static_cast<int>(token), !value);
  };
  const auto compare = [&](const char* what, std::size_t token, const Output& out, std::size_t at,
                           const std::vector<Truth>& want) -> std::string {
    for (std::size_t d = 0; d < dim; ++d)
      if (!is_close(type, out.get(at + d), want[d].value, want[d].error))
        return fmt::format("{}: {} of token {}, {}: {} instead of {}", c.name, what, token, d,
                           out.get(at + d), want[d].value);
    return "";
  };
  std::string error;
  for (std::size_t token = 0; token < tokens && error.empty(); ++token)
    for (std::size_t head = 0; head < heads && error.empty(); ++head)
      error = compare("query", token, q_out, (token * heads + head) * dim, head_of(head, token));
  // The last token that a slot is due to; none: the slot keeps what it had.
  for (std::size_t slot = 0; slot < capacity && error.empty(); ++slot) {
    std::size_t token = tokens;
    for (std::size_t t = 0; t < tokens; ++t)
      if ((size(c.position) + t) % capacity == slot) token = t;
    for (std::size_t head = heads; head < all && error.empty(); ++head) {
      const bool value = head >= heads + kv_heads;
      const std::size_t kv_head = head - heads - (value ? kv_heads : 0);
      std::vector<Truth> want(dim, {value ? -old : old, 0});
      if (token < tokens) want = head_of(head, token);
      error = compare(value ? "value" : "key", token, value ? v_cache : k_cache,
                      (kv_head * capacity + slot) * dim, want);
    }
  }
  if (!error.empty()) return error;
  for (const Output* out : {&q_out, &k_cache, &v_cache})
    if (!out->intact()) return fmt::format("{}: wrote outside its output", c.name);
  bool same = x.unchanged() && q_norm.unchanged() && k_norm.unchanged() && inv_freq.unchanged();
  for (const auto* inputs : {&weights, &biases})
    for (const Input& input : *inputs) same = same && input.unchanged();
  return same && before == c.position ? "" : fmt::format("{}: an input changed", c.name);
}

}  // namespace ac::kernels
