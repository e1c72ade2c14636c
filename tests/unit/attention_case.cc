#include "tests/unit/attention_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

namespace ac::kernels {
namespace {

// Keys or values, [heads, capacity, dim], by the kernel's rule. Slots that hold no token are NaN.
class CachedHeads {
 public:
  CachedHeads(const AttentionOp& op, std::size_t heads, std::size_t capacity)
      : fp8_(op.fp8),
        capacity_(capacity),
        dim_(static_cast<std::size_t>(op.head_dim)),
        dtype_(op.fp8 ? DType::f8e4m3 : dtype_of(op.type)),
        row_bytes_(dim_ * ac::bytes_of(dtype_)),
        rows_(heads * capacity * row_bytes_, 0xff),
        scales_(op.fp8 ? heads * capacity : 0, NAN) {}

  void* rows() { return rows_.data(); }
  float* scales() { return scales_.data(); }
  void fill(std::size_t head, std::size_t slots, std::mt19937& random) {
    std::uniform_real_distribution<float> value(-2, 2);
    for (std::size_t slot = 0; slot < slots; ++slot) {
      const std::size_t row = head * capacity_ + slot;
      // Scales of neighbours differ by much: of another token or head, they show.
      if (fp8_) scales_[row] = std::exp2(value(random)) / 200;
      for (std::size_t d = 0; d < dim_; ++d)
        store_element(dtype_, round_to(dtype_, (fp8_ ? 100 : 1) * value(random)), at(row, d));
    }
  }
  double get(std::size_t head, std::size_t slot, std::size_t d) const {
    const std::size_t row = head * capacity_ + slot;
    return load_element(dtype_, at(row, d)) * (fp8_ ? static_cast<double>(scales_[row]) : 1);
  }
  // How a row of a head differs from what was to be stored there, if elements may be off by
  // `rounding`.
  std::string why_not(std::size_t head, std::size_t slot, const std::vector<double>& wanted,
                      double rounding) const {
    double largest = 0;
    for (const double x : wanted) largest = std::max(largest, std::fabs(x));
    const double scale = largest / 448;
    for (std::size_t d = 0; d < dim_; ++d) {
      const double got = get(head, slot, d), magnitude = std::fabs(wanted[d]);
      // A value at a rounding boundary may fall to either side.
      double off = rounding * (0.1 + magnitude);
      if (fp8_) {  // half of what is between two codes
        const double exponent = std::floor(std::log2((magnitude + off) / scale));
        off += scale * std::exp2(std::max(exponent, -6.) - 4);
      }
      if (!(std::fabs(got - wanted[d]) <= off))
        return fmt::format("element {} of head {} is {} instead of {}", d, head, got, wanted[d]);
    }
    if (!fp8_) return "";
    const double got = static_cast<double>(scales_[head * capacity_ + slot]);
    if (!(std::fabs(got - scale) <= rounding * scale))
      return fmt::format("the scale of head {} is {} instead of {}", head, got, scale);
    return "";
  }
  // Whether it is as it was, but for a slot.
  bool is_as(const CachedHeads& before, std::size_t slot) const {
    CachedHeads copy = *this;
    for (std::size_t row = slot; row < rows_.size() / row_bytes_; row += capacity_) {
      std::memcpy(copy.at(row, 0), before.at(row, 0), row_bytes_);
      if (fp8_) copy.scales_[row] = before.scales_[row];
    }
    // By bits: poison may be a NaN.
    return copy.rows_ == before.rows_ &&
           std::ranges::equal(copy.scales_, before.scales_, {}, bits_of, bits_of);
  }

 private:
  static std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
  std::uint8_t* at(std::size_t row, std::size_t d) {
    return rows_.data() + row * row_bytes_ + d * ac::bytes_of(dtype_);
  }
  const std::uint8_t* at(std::size_t row, std::size_t d) const {
    return rows_.data() + row * row_bytes_ + d * ac::bytes_of(dtype_);
  }

  bool fp8_;
  std::size_t capacity_, dim_;
  DType dtype_;
  std::size_t row_bytes_;
  std::vector<std::uint8_t> rows_;
  std::vector<float> scales_;
};

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
  CachedHeads k_cache(c.op, kv_heads, capacity), v_cache(c.op, kv_heads, capacity);
  for (Elements* e : {&q, &k, &v}) e->fill(random, -2, 2);
  for (Elements* e : {&q_norm, &k_norm}) e->fill(random, 0.5f, 1.5f);
  // Slots that hold no token yet stay NaN.
  const std::size_t cached = std::min(position, capacity);
  std::uniform_real_distribution<float> value(-2, 2);
  for (std::size_t h = 0; h < kv_heads; ++h)
    k_cache.fill(h, cached, random), v_cache.fill(h, cached, random);
  const CachedHeads k_before = k_cache, v_before = v_cache;
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
  p.k_cache = k_cache.rows(), p.v_cache = v_cache.rows();
  p.k_scales = k_cache.scales(), p.v_scales = v_cache.scales();
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
    if (const std::string why = k_cache.why_not(h, slot, new_k, rounding); !why.empty())
      return fmt::format("{}: of keys, {}", c.name, why);
    // Values are taken as they are, but for the one rounding of the scale.
    if (const std::string why = v_cache.why_not(h, slot, new_v, 1e-6); !why.empty())
      return fmt::format("{}: of values, {}", c.name, why);
    for (std::size_t g = 0; g < group; ++g) {
      const auto query =
          prepared(c, q, h * group + g, c.op.qk_norm ? &q_norm : nullptr, rope, true);
      std::vector<double> scores;
      std::vector<std::size_t> rows;  // `capacity`: the new token
      const auto add = [&](std::size_t row) {
        double score = 0;
        for (std::size_t d = 0; d < dim; ++d)
          score += query[d] * k_cache.get(h, row == capacity ? slot : row, d);
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
          expected[d] += weight * v_cache.get(h, rows[i] == capacity ? slot : rows[i], d);
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
  if (!k_cache.is_as(k_before, slot) || !v_cache.is_as(v_before, slot))
    return fmt::format("{}: the cache changed elsewhere", c.name);
  for (std::size_t i = 0; i < 16; ++i)
    if (out.get(i < 8 ? i : heads * dim + i) != 12.5) return fmt::format("{}: canary", c.name);
  for (unsigned count : finished)
    if (count != 0) return fmt::format("{}: a block counter is not 0 again", c.name);
  return "";
}

}  // namespace ac::kernels
