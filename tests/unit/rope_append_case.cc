#include "tests/unit/rope_append_case.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "tests/unit/rope_truth.h"

namespace ac::kernels {
namespace {

std::size_t size(int n) { return static_cast<std::size_t>(n); }

}  // namespace

std::string run_rope_append(const RopeAppendCase& c) {
  std::mt19937 random(c.seed);
  const Type type = c.op.type;
  const std::size_t tokens = size(c.tokens), heads = size(c.heads), kv_heads = size(c.kv_heads);
  const std::size_t dim = size(c.op.head_dim), capacity = size(c.capacity);
  const std::size_t q_row = heads * dim, kv_row = kv_heads * dim;
  // Either three matrices, or one with rows of q, k, v.
  const std::size_t q_pitch = c.fused_qkv ? q_row + 2 * kv_row + size(c.gap) : q_row;
  const std::size_t kv_pitch = c.fused_qkv ? q_pitch : kv_row;
  std::vector<Input> in;
  in.emplace_back(type, tokens * q_pitch, 0, random, -2.f, 2.f);
  if (!c.fused_qkv)
    for (int i = 0; i < 2; ++i) in.emplace_back(type, tokens * kv_row, 0, random, -2.f, 2.f);
  Input q_norm(type, dim, 0, random, 0.5f, 1.5f), k_norm(type, dim, 0, random, 0.5f, 1.5f);
  Input inv_freq(Type::f32, size(c.op.rotary) / 2);
  for (std::size_t i = 0; i < size(c.op.rotary) / 2; ++i)
    inv_freq.set(i, static_cast<float>(std::pow(1e4, -2.0 * static_cast<double>(i) / c.op.rotary)));
  inv_freq.remember();
  Output q_out(type, tokens * q_row), k_cache(type, kv_heads * capacity * dim),
      v_cache(type, kv_heads * capacity * dim);
  for (std::size_t i = 0; c.in_place && i < tokens * q_row; ++i)
    q_out.set(i, static_cast<float>(in[0].get(i)));
  // Every slot holds something, so that a write to the wrong one is seen.
  const float old = 0.375f;
  for (std::size_t i = 0; i < kv_heads * capacity * dim; ++i)
    k_cache.set(i, old), v_cache.set(i, -old);

  // (tensor, its first element in a row)
  const auto source = [&](int which, std::size_t token, std::size_t head, std::size_t d) {
    if (c.fused_qkv) {
      const std::size_t first = which == 0 ? 0 : q_row + (which == 1 ? 0 : kv_row);
      return in[0].get(token * q_pitch + first + head * dim + d);
    }
    return in[size(which)].get(token * (which == 0 ? q_pitch : kv_pitch) + head * dim + d);
  };
  const auto shifted = [&](std::size_t elements) {
    return static_cast<char*>(in[0].data()) + elements * size(bytes_of(type));
  };
  const int before = c.position;
  RopeAppendParams p{};
  p.q = c.in_place ? q_out.data() : in[0].data();
  p.k = c.fused_qkv ? shifted(q_row) : in[1].data();
  p.v = c.fused_qkv ? shifted(q_row + kv_row) : in[2].data();
  p.q_pitch = static_cast<long long>(q_pitch), p.kv_pitch = static_cast<long long>(kv_pitch);
  p.tokens = c.tokens, p.heads = c.heads, p.kv_heads = c.kv_heads;
  p.q_norm = q_norm.data(), p.k_norm = k_norm.data();
  p.norm_eps = 1e-6f, p.norm_offset = c.norm_offset;
  p.inv_freq = static_cast<const float*>(inv_freq.data()), p.rope_scale = c.rope_scale;
  p.position = &before;
  p.q_out = q_out.data(), p.k_cache = k_cache.data(), p.v_cache = v_cache.data();
  p.capacity = c.capacity;
  const LaunchReport report = host_launch(
      {.name = c.name,
       .grid = {static_cast<unsigned>(c.plan.grid(c.op, c.tokens, c.heads + 2 * c.kv_heads, 2))},
       .block = {static_cast<unsigned>(c.plan.threads)},
       .schedule = c.schedule,
       .seed = c.seed,
       .check_races = c.check_races},
      c.kernel, p);
  if (!report.ok()) return report.error;

  const RopeTruth truth{c.op, c.norm_offset, c.rope_scale, inv_freq};
  const auto compare = [&](const char* what, const Output& out, std::size_t at,
                           const std::vector<Truth>& want) -> std::string {
    for (std::size_t d = 0; d < dim; ++d)
      if (!is_close(type, out.get(at + d), want[d].value, want[d].error))
        return fmt::format("{}: {} {}: {} instead of {}", c.name, what, d, out.get(at + d),
                           want[d].value);
    return "";
  };
  const auto head_of = [&](int which, std::size_t token, std::size_t head) {
    const Input* norm = !c.op.qk_norm || which == 2 ? nullptr : which == 0 ? &q_norm : &k_norm;
    std::vector<Truth> x;
    for (std::size_t d = 0; d < dim; ++d) x.push_back({source(which, token, head, d), 0});
    return truth.of(std::move(x), norm, c.position + static_cast<int>(token), which != 2);
  };
  std::string error;
  for (std::size_t token = 0; token < tokens && error.empty(); ++token)
    for (std::size_t head = 0; head < heads && error.empty(); ++head)
      error = compare("query", q_out, (token * heads + head) * dim, head_of(0, token, head));
  // The last token that a slot is due to; none: the slot keeps what it had.
  for (std::size_t slot = 0; slot < capacity && error.empty(); ++slot) {
    std::size_t token = tokens;
    for (std::size_t t = 0; t < tokens; ++t)
      if ((size(c.position) + t) % capacity == slot) token = t;
    for (std::size_t head = 0; head < kv_heads && error.empty(); ++head) {
      const std::size_t at = (head * capacity + slot) * dim;
      std::vector<Truth> key(dim, {old, 0}), value(dim, {-old, 0});
      if (token < tokens) key = head_of(1, token, head), value = head_of(2, token, head);
      error = compare("key", k_cache, at, key);
      if (error.empty()) error = compare("value", v_cache, at, value);
    }
  }
  if (!error.empty()) return error;
  for (const Output* out : {&q_out, &k_cache, &v_cache})
    if (!out->intact()) return fmt::format("{}: wrote outside its output", c.name);
  for (const Input& input : in)
    if (!input.unchanged()) return fmt::format("{}: an input changed", c.name);
  return q_norm.unchanged() && k_norm.unchanged() && inv_freq.unchanged() && before == c.position
             ? ""
             : fmt::format("{}: an input changed", c.name);
}

}  // namespace ac::kernels
