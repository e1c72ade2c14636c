#include "tests/unit/attention_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace ac::kernels {
namespace {

// A head after norm and RoPE, in double, rounded to the type as the cache would have it.
std::vector<double> prepared(const AttentionCase& c, const Elements& in, std::size_t head,
                             const Elements* norm, const std::vector<float>& rope, bool turn) {
  const auto dim = static_cast<std::size_t>(c.op.head_dim);
  std::vector<double> x(dim), y(dim);
  double squares = 0;
  for (std::size_t d = 0; d < dim; ++d) x[d] = in.get(head * dim + d), squares += x[d] * x[d];
  if (norm != nullptr)
    for (std::size_t d = 0; d < dim; ++d)
      x[d] *= (norm->get(d) + c.norm_offset) / std::sqrt(squares / static_cast<double>(dim) + 1e-6);
  const auto rotary = static_cast<std::size_t>(turn ? c.op.rotary : 0), half = rotary / 2;
  for (std::size_t d = 0; d < dim; ++d) {
    y[d] = x[d];
    if (d >= rotary) continue;
    const std::size_t i = c.op.interleaved ? d / 2 : d % half;
    const bool second = c.op.interleaved ? d % 2 == 1 : d >= half;
    const std::size_t partner = c.op.interleaved ? d ^ 1 : second ? d - half : d + half;
    const std::size_t row = static_cast<std::size_t>(c.position) * rotary + 2 * i;
    y[d] = x[d] * rope[row] + (second ? x[partner] : -x[partner]) * rope[row + 1];
  }
  for (double& v : y) v = round_to(dtype_of(c.op.type), v);
  return y;
}

}  // namespace

std::string run_attention(const AttentionCase& c) {
  std::mt19937 random(c.seed);
  const auto dim = static_cast<std::size_t>(c.op.head_dim);
  const auto kv_heads = static_cast<std::size_t>(c.kv_heads);
  const auto group = static_cast<std::size_t>(c.op.group), heads = kv_heads * group;
  const auto capacity = static_cast<std::size_t>(c.capacity);
  const auto position = static_cast<std::size_t>(c.position);
  const Type type = c.op.type;
  Elements q(type, heads * dim), k(type, kv_heads * dim), v(type, kv_heads * dim);
  Elements q_norm(type, dim), k_norm(type, dim), out(type, heads * dim + 16);
  Elements k_cache(type, kv_heads * capacity * dim), v_cache(type, kv_heads * capacity * dim);
  for (Elements* e : {&q, &k, &v}) e->fill(random, -2, 2);
  for (Elements* e : {&q_norm, &k_norm}) e->fill(random, 0.5f, 1.5f);
  // Slots that hold no token yet stay NaN.
  const std::size_t cached = std::min(position, capacity);
  std::uniform_real_distribution<float> value(-2, 2);
  for (std::size_t h = 0; h < kv_heads; ++h)
    for (std::size_t i = 0; i < cached * dim; ++i) {
      k_cache.set(h * capacity * dim + i, value(random));
      v_cache.set(h * capacity * dim + i, value(random));
    }
  const std::string k_before = k_cache.bytes(), v_before = v_cache.bytes();
  std::vector<float> rope((position + 1) * static_cast<std::size_t>(c.op.rotary));
  for (std::size_t i = 0; i < rope.size() / 2; ++i) {
    const float angle = value(random);
    rope[2 * i] = std::cos(angle), rope[2 * i + 1] = std::sin(angle);
  }
  for (std::size_t i = 0; i < 16; ++i) out.set(i < 8 ? i : heads * dim + i, 12.5f);

  Elements partial(Type::f32,
                   static_cast<std::size_t>(c.op.partial_floats(c.kv_heads, c.plan.splits)));
  std::vector<unsigned> finished(kv_heads);
  AttentionParams p{};
  p.q = q.at(0), p.k = k.at(0), p.v = v.at(0);
  p.q_norm = q_norm.at(0), p.k_norm = k_norm.at(0);
  p.norm_eps = 1e-6f, p.norm_offset = c.norm_offset;
  p.rope = rope.data(), p.rope_pitch = c.op.rotary;
  p.position = &c.position, p.position_lag = c.seed % 2 == 0 ? 0 : 24;
  p.k_cache = k_cache.at(0), p.v_cache = v_cache.at(0);
  p.capacity = c.capacity, p.window = c.window;
  p.scale = 1 / std::sqrt(static_cast<float>(dim)), p.softcap = c.softcap;
  p.out = out.at(8);
  p.partial = static_cast<float*>(partial.at(0)), p.finished = finished.data();
  const HostLaunch launch{
      .name = c.name,
      .grid = {static_cast<unsigned>(kv_heads), static_cast<unsigned>(c.plan.splits)},
      .block = {static_cast<unsigned>(c.plan.threads)},
      .shared_bytes = static_cast<std::size_t>(c.plan.shared_bytes(c.op)),
      .schedule = c.schedule,
      .seed = c.seed,
      .check_races = c.check_races,
      .relaxed_lag = c.lag};
  const LaunchReport report = c.launcher ? c.launcher(launch, p) : host_launch(launch, c.kernel, p);
  if (!report.ok()) return report.error;

  const std::size_t slot = position % capacity;
  const double rounding = type == Type::f32 ? 4e-6 : type == Type::f16 ? 0x1p-9 : 0x1p-6;
  for (std::size_t h = 0; h < kv_heads; ++h) {
    const auto new_k = prepared(c, k, h, c.op.qk_norm ? &k_norm : nullptr, rope, true);
    const auto new_v = prepared(c, v, h, nullptr, rope, false);
    for (std::size_t d = 0; d < dim; ++d) {
      const std::size_t at = (h * capacity + slot) * dim + d;
      // A value at a rounding boundary may fall to either side.
      if (!(std::fabs(k_cache.get(at) - new_k[d]) <= rounding * (0.1 + std::fabs(new_k[d]))))
        return fmt::format("{}: key {} of head {} is {} instead of {}", c.name, d, h,
                           k_cache.get(at), new_k[d]);
      if (v_cache.get(at) != new_v[d]) return fmt::format("{}: wrong new value", c.name);
    }
    for (std::size_t g = 0; g < group; ++g) {
      const auto query =
          prepared(c, q, h * group + g, c.op.qk_norm ? &q_norm : nullptr, rope, true);
      std::vector<double> scores;
      std::vector<std::size_t> rows;  // `capacity`: the new token
      const auto add = [&](std::size_t row) {
        double score = 0;
        for (std::size_t d = 0; d < dim; ++d)
          score +=
              query[d] * (row == capacity ? new_k[d] : k_cache.get((h * capacity + row) * dim + d));
        score /= std::sqrt(static_cast<double>(dim));
        if (c.softcap > 0) score = c.softcap * std::tanh(score / c.softcap);
        scores.push_back(score), rows.push_back(row);
      };
      for (std::size_t token = position - cached; token < position; ++token)
        if ((c.window == 0 || position - token < static_cast<std::size_t>(c.window)) &&
            token % capacity != (position < capacity ? capacity : slot))
          add(token % capacity);
      add(capacity);
      const double largest = *std::max_element(scores.begin(), scores.end());
      double sum = 0;
      std::vector<double> expected(dim);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const double weight = std::exp(scores[i] - largest);
        sum += weight;
        for (std::size_t d = 0; d < dim; ++d)
          expected[d] +=
              weight *
              (rows[i] == capacity ? new_v[d] : v_cache.get((h * capacity + rows[i]) * dim + d));
      }
      for (std::size_t d = 0; d < dim; ++d) {
        const double got = out.get(8 + (h * group + g) * dim + d), want = expected[d] / sum;
        if (!(std::fabs(got - want) <= rounding * (1 + std::fabs(want))))
          return fmt::format("{}: position {} head {} dimension {}: {} instead of {}", c.name,
                             c.position, h * group + g, d, got, want);
      }
    }
  }
  // Nothing else was touched.
  std::string k_after = k_cache.bytes(), v_after = v_cache.bytes();
  for (std::size_t h = 0; h < kv_heads; ++h) {
    const std::size_t row = dim * static_cast<std::size_t>(bytes_of(type));
    const std::size_t at = (h * capacity + slot) * row;
    k_after.replace(at, row, k_before, at, row);
    v_after.replace(at, row, v_before, at, row);
  }
  if (k_after != k_before || v_after != v_before)
    return fmt::format("{}: the cache changed elsewhere", c.name);
  for (std::size_t i = 0; i < 16; ++i)
    if (out.get(i < 8 ? i : heads * dim + i) != 12.5) return fmt::format("{}: canary", c.name);
  for (unsigned count : finished)
    if (count != 0) return fmt::format("{}: a block counter is not 0 again", c.name);
  return "";
}

}  // namespace ac::kernels
