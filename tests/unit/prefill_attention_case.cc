#include "tests/unit/prefill_attention_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/unit/matrix_map.h"

namespace ac::kernels {
namespace {

struct Tensors {
  Elements q, k, v;
};
struct Values {
  std::vector<double> q, k, v;
};

std::vector<double> values_of(const Elements& elements) {
  std::vector<double> values(elements.size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = elements.get(i);
  return values;
}

// One head of one new token: the truth if Real is double. In float, a plain implementation, whose
// weights have the type of the values.
template <class Real>
std::vector<Real> output_of(const PrefillAttentionCase& c, const Values& t, int query, int head) {
  const auto dim = static_cast<std::size_t>(c.op.head_dim);
  const int heads = c.kv_heads * c.op.group, last = c.position + query;
  const int first = c.window > 0 ? std::max(0, last - c.window + 1) : 0;
  const std::size_t q_row =
      static_cast<std::size_t>(query) * (static_cast<std::size_t>(heads) * dim + c.gap) +
      static_cast<std::size_t>(head) * dim;
  const auto cached = [&](int token) {
    return (static_cast<std::size_t>(head / c.op.group) * c.capacity + token % c.capacity) * dim;
  };
  const Real scale = 1 / std::sqrt(static_cast<Real>(dim)), cap = static_cast<Real>(c.softcap);
  std::vector<Real> weights;
  for (int token = first; token <= last; ++token) {
    Real score = 0;
    for (std::size_t d = 0; d < dim; ++d)
      score += static_cast<Real>(t.q[q_row + d]) * static_cast<Real>(t.k[cached(token) + d]);
    score *= scale;
    weights.push_back(cap > 0 ? cap * std::tanh(score / cap) : score);
  }
  const Real largest = *std::max_element(weights.begin(), weights.end());
  Real sum = 0;
  for (Real& weight : weights) sum += weight = std::exp(weight - largest);
  std::vector<Real> out(dim);
  for (int token = first; token <= last; ++token) {
    Real weight = weights[static_cast<std::size_t>(token - first)] / sum;
    if (sizeof(Real) == 4) weight = static_cast<Real>(round_to(dtype_of(c.op.type), weight));
    for (std::size_t d = 0; d < dim; ++d)
      out[d] += weight * static_cast<Real>(t.v[cached(token) + d]);
  }
  return out;
}

}  // namespace

std::string run_prefill_attention(const PrefillAttentionCase& c, std::string* output_bytes) {
  if (const char* reason = c.plan.why_illegal(c.op, 227 * 1024)) return reason;
  if (c.op.softcap != (c.softcap > 0)) return "the op and the case differ in their soft cap";
  std::mt19937 random(c.seed);
  const auto dim = static_cast<std::size_t>(c.op.head_dim);
  const int heads = c.kv_heads * c.op.group;
  const auto row = static_cast<std::size_t>(heads) * dim,
             tokens = static_cast<std::size_t>(c.tokens);
  const std::size_t cache = static_cast<std::size_t>(c.kv_heads * c.capacity) * dim;
  Tensors t{Elements(c.op.type, tokens * (row + c.gap)), Elements(c.op.type, cache),
            Elements(c.op.type, cache)};
  std::uniform_real_distribution<float> of_score(-c.size, c.size), of_value(-2, 2);
  for (std::size_t query = 0; query < tokens; ++query)
    for (std::size_t i = 0; i < row; ++i) t.q.set(query * (row + c.gap) + i, of_score(random));
  // What no query sees stays NaN: tokens that left the window, and slots without a token.
  const int oldest = c.window > 0 ? std::max(0, c.position - c.window + 1) : 0;
  for (int head = 0; head < c.kv_heads; ++head)
    for (int token = oldest; token < c.position + c.tokens; ++token)
      for (std::size_t d = 0; d < dim; ++d) {
        const std::size_t at =
            static_cast<std::size_t>(head * c.capacity + token % c.capacity) * dim + d;
        t.k.set(at, c.hostile && head == c.kv_heads - 1 ? NAN : of_score(random));
        t.v.set(at, of_value(random));
      }
  const std::size_t canaries = 8;
  Elements out(c.op.type, tokens * row + 2 * canaries);
  for (std::size_t i = 0; i < canaries; ++i) out.set(i, 12.5f), out.set(out.size() - 1 - i, 12.5f);

  PrefillAttentionParams p{};
  p.q = t.q.at(0), p.q_pitch = static_cast<int>(row) + c.gap, p.tokens = c.tokens;
  p.position = &c.position;
  p.k_cache = t.k.at(0), p.v_cache = t.v.at(0);
  p.capacity = c.capacity, p.window = c.window;
  p.scale = 1 / std::sqrt(static_cast<float>(dim)), p.softcap = c.softcap;
  p.out = out.at(canaries);
  const Type type = c.op.type;
  const int size = c.op.head_dim, slots = c.kv_heads * c.capacity;
  p.queries = matrix_map(type, p.q, c.tokens, heads * size, p.q_pitch, c.plan.query_tile);
  p.keys = matrix_map(type, p.k_cache, slots, size, size, c.plan.key_tile);
  p.values = matrix_map(type, p.v_cache, slots, size, size, c.plan.key_tile);
  const std::string before = t.q.bytes() + t.k.bytes() + t.v.bytes();
  const LaunchReport report =
      host_launch({.name = c.name,
                   .grid = {static_cast<unsigned>(heads),
                            static_cast<unsigned>(prefill_tiles(c.plan, c.tokens))},
                   .block = {static_cast<unsigned>(c.plan.threads())},
                   .shared_bytes = static_cast<std::size_t>(c.plan.shared_bytes(c.op)),
                   .schedule = c.schedule,
                   .seed = c.seed,
                   .check_races = c.check_races},
                  c.kernel, p);
  if (!report.ok()) return report.error;
  if (t.q.bytes() + t.k.bytes() + t.v.bytes() != before)
    return fmt::format("{}: an input changed", c.name);
  if (output_bytes != nullptr) *output_bytes = out.bytes();

  // No farther from the truth than twice what a plain implementation of this type is, and one
  // rounding to it.
  const double rounding = type == Type::f32 ? 1e-6 : type == Type::f16 ? 0x1p-11 : 0x1p-8;
  const Values values{values_of(t.q), values_of(t.k), values_of(t.v)};
  std::vector<double> truths;
  double plain_error = 0;
  for (int query = 0; query < c.tokens; ++query)
    for (int head = 0; head < heads; ++head) {
      const auto truth = output_of<double>(c, values, query, head);
      const auto plain = output_of<float>(c, values, query, head);
      for (std::size_t d = 0; d < dim; ++d) {
        truths.push_back(truth[d]);
        plain_error = std::max(plain_error, std::fabs(plain[d] - truth[d]));
      }
    }
  for (std::size_t i = 0; i < truths.size(); ++i) {
    const double got = out.get(canaries + i),
                 allowed = 2 * plain_error + 1e-6 + rounding * std::fabs(truths[i]);
    if (std::isnan(truths[i]) ? !std::isnan(got) : !(std::fabs(got - truths[i]) <= allowed))
      return fmt::format("{}: token {} head {} dimension {}: {} instead of {} (allowed {})", c.name,
                         i / row, i % row / dim, i % dim, got, truths[i], allowed);
  }
  for (std::size_t i = 0; i < canaries; ++i)
    if (out.get(i) != 12.5 || out.get(out.size() - 1 - i) != 12.5)
      return fmt::format("{}: wrote outside its output", c.name);
  return "";
}

}  // namespace ac::kernels
