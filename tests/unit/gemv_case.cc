#include "tests/unit/gemv_case.h"

#include <fmt/format.h>

#include <cmath>

namespace ac::kernels {
namespace {

struct Sum {
  double value = 0, magnitude = 0;  // sum of w x, and of |w x|
};

double activation(Pair pair, double gate) {
  if (pair == Pair::swiglu) return gate / (1 + std::exp(-gate));
  if (pair == Pair::geglu_erf) return 0.5 * gate * (1 + std::erf(gate / std::sqrt(2.0)));
  return 0.5 * gate * (1 + std::tanh(std::sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate)));
}

}  // namespace

std::string run_gemv(const GemvCase& c, std::string* output_bytes) {
  const GemvOp& op = c.op;
  std::mt19937 random(c.seed);
  const std::size_t k = static_cast<std::size_t>(c.k);
  int n = 0;
  for (int rows : c.rows) n += rows;
  const bool pair = op.pair != Pair::none;

  Elements x(op.x, k), norm_weight(op.weight, k), residual(op.y, static_cast<std::size_t>(n));
  x.fill(random, -2, 2);
  norm_weight.fill(random, 0.5f, 1.5f);
  residual.fill(random, -1, 1);
  const float bound = std::sqrt(3.0f / static_cast<float>(k));
  std::vector<Elements> weights, biases;
  for (int m = 0; m < op.matrices; ++m) {
    const auto rows = static_cast<std::size_t>(c.rows[pair ? 0 : static_cast<std::size_t>(m)]);
    weights.emplace_back(op.weight, rows * k * (c.interleaved ? 2 : 1));
    weights.back().fill(random, -bound, bound);
    biases.emplace_back(op.weight, rows);
    biases.back().fill(random, -1, 1);
  }
  const std::size_t canaries = 8;
  std::vector<Elements> outputs;
  for (int rows : c.rows) outputs.emplace_back(op.y, static_cast<std::size_t>(rows) + 2 * canaries);
  const float canary = 12.5f;
  for (Elements& y : outputs)
    for (std::size_t i = 0; i < canaries; ++i) y.set(i, canary), y.set(y.size() - 1 - i, canary);

  GemvParams p{};
  for (std::size_t m = 0; m < static_cast<std::size_t>(op.matrices); ++m) {
    GemvMatrix& matrix = p.matrix[m];
    matrix.weight = weights[c.interleaved ? 0 : m].at(c.interleaved && m == 1 ? k : 0);
    matrix.bias = op.bias ? biases[m].at(0) : nullptr;
    matrix.y = m < outputs.size() ? outputs[m].at(canaries) : nullptr;
    matrix.rows = c.rows[pair ? 0 : m];
  }
  p.k = c.k;
  p.pitch = c.interleaved ? 2 * c.k : c.k;
  p.x = x.at(0);
  p.norm_weight = op.norm ? norm_weight.at(0) : nullptr;
  p.norm_eps = 1e-5f;
  p.norm_offset = c.norm_offset;
  p.scale = c.scale;
  p.softcap = c.softcap;
  p.residual = op.residual ? residual.at(0) : nullptr;
  const int grid = c.plan.grid(op, n, c.sms);
  std::vector<unsigned long long> block_best(static_cast<std::size_t>(grid));
  unsigned finished_blocks = 0;
  int best_row = -1;
  p.block_best = block_best.data();
  p.finished_blocks = &finished_blocks;
  p.best_row = &best_row;

  const HostLaunch launch{.name = c.name,
                          .grid = {static_cast<unsigned>(grid)},
                          .block = {static_cast<unsigned>(c.plan.threads)},
                          .shared_bytes = static_cast<std::size_t>(c.plan.shared_bytes(op, c.k)),
                          .schedule = c.schedule,
                          .seed = c.seed,
                          .check_races = c.check_races};
  const LaunchReport report = c.launcher ? c.launcher(launch, p) : host_launch(launch, c.kernel, p);
  if (!report.ok()) return report.error;
  if (output_bytes != nullptr)
    for (const Elements& y : outputs) *output_bytes += y.bytes();

  // The truth, and how far rounding in float32 may lead from it.
  double squares = 0;
  for (std::size_t i = 0; i < k; ++i) squares += x.get(i) * x.get(i);
  const double norm_scale =
      op.norm ? 1 / std::sqrt(squares / static_cast<double>(k) + p.norm_eps) : 1;
  const auto dot = [&](std::size_t matrix, std::size_t row) {
    const Elements& w = weights[c.interleaved ? 0 : matrix];
    const std::size_t start = c.interleaved ? (2 * row + matrix) * k : row * k;
    Sum sum;
    for (std::size_t i = 0; i < k; ++i) {
      const double weight = op.norm ? norm_weight.get(i) + c.norm_offset : 1;
      const double product = w.get(start + i) * x.get(i) * weight * norm_scale;
      sum.value += product;
      sum.magnitude += std::fabs(product);
    }
    if (op.bias) sum.value += biases[matrix].get(row);
    sum.magnitude += std::fabs(sum.value);
    return sum;
  };
  const double rounding = op.y == Type::f32 ? 1e-6 : op.y == Type::f16 ? 0x1p-11 : 0x1p-8;
  std::size_t row_of_all = 0;
  double largest = -INFINITY;
  std::size_t largest_row = 0;
  for (std::size_t m = 0; m < outputs.size(); ++m) {
    for (std::size_t row = 0; row < static_cast<std::size_t>(c.rows[m]); ++row, ++row_of_all) {
      Sum sum = dot(m, row);
      double error = 2e-6 * sum.magnitude;
      if (pair) {
        const Sum up = dot(1, row);
        const double gate = activation(op.pair, sum.value);
        error = 1.2 * error * std::fabs(up.value) + std::fabs(gate) * 2e-6 * up.magnitude +
                1e-6 * std::fabs(gate * up.value);
        sum.value = gate * up.value;
      }
      double value = c.scale * sum.value;
      error *= std::fabs(c.scale);
      if (op.residual) value += residual.get(row_of_all);
      if (c.softcap > 0) value = c.softcap * std::tanh(value / c.softcap);
      if (value > largest) largest = value, largest_row = row_of_all;
      const double got = outputs[m].get(canaries + row);
      const double allowed = error + rounding * std::fabs(value) + 1e-6;
      if (!(std::fabs(got - value) <= allowed))
        return fmt::format("{}: matrix {} row {}: {} instead of {} (allowed {})", c.name, m, row,
                           got, value, allowed);
    }
    for (std::size_t i = 0; i < canaries; ++i)
      if (outputs[m].get(i) != canary || outputs[m].get(outputs[m].size() - 1 - i) != canary)
        return fmt::format("{}: matrix {}: wrote outside its output", c.name, m);
  }
  if (op.argmax) {
    if (finished_blocks != 0) return fmt::format("{}: the block counter is not 0 again", c.name);
    if (best_row != static_cast<int>(largest_row))
      return fmt::format("{}: argmax {} instead of {}", c.name, best_row, largest_row);
  }
  return "";
}

}  // namespace ac::kernels
