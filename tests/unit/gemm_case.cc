#include "tests/unit/gemm_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/unit/coded_weights.h"

namespace ac::kernels {
namespace {

template <class Real>
Real activation(Pair pair, Real gate) {
  if (pair == Pair::swiglu) return gate / (1 + std::exp(-gate));
  if (pair == Pair::geglu_erf) return Real(0.5) * gate * (1 + std::erf(gate * Real(M_SQRT1_2)));
  const Real inner = Real(M_2_SQRTPI * M_SQRT1_2) * (gate + Real(0.044715) * gate * gate * gate);
  return Real(0.5) * gate * (1 + std::tanh(inner));
}

// Of codes, `weights` are the elements that they mean, rounded to the type of the weights.
struct Tensors {
  Elements x;
  std::vector<Elements> weights, biases, residuals, outputs;
  std::vector<CodedWeights> codes = {};
};

// One output, in the precision of Real: the truth in double, a plain implementation in float.
template <class Real>
Real output_of(const GemmCase& c, const Tensors& t, std::size_t matrix, std::size_t token,
               std::size_t row) {
  const auto k = static_cast<std::size_t>(c.shape.k);
  const std::size_t x_pitch = k + static_cast<std::size_t>(c.gap);
  const auto sum_of = [&](std::size_t m) {
    const Elements& w = t.weights[c.interleaved ? 0 : m];
    const std::size_t start = (c.interleaved ? 2 * row + m : row) * k;
    Real sum = 0;
    for (std::size_t i = 0; i < k; ++i)
      sum += static_cast<Real>(w.get(start + i)) * static_cast<Real>(t.x.get(token * x_pitch + i));
    return c.op.bias ? sum + static_cast<Real>(t.biases[m].get(row)) : sum;
  };
  Real value = sum_of(matrix);
  if (c.op.pair != Pair::none) value = activation(c.op.pair, value) * sum_of(1);
  value *= static_cast<Real>(c.scale);
  if (c.op.residual) {
    const std::size_t pitch = static_cast<std::size_t>(c.shape.rows[matrix] + c.gap);
    value += static_cast<Real>(t.residuals[matrix].get(token * pitch + row));
  }
  const Real cap = static_cast<Real>(c.softcap);
  return cap > 0 ? cap * std::tanh(value / cap) : value;
}

bool same_class(double got, double want) {
  if (std::isnan(want)) return std::isnan(got);
  return std::isinf(got) && std::signbit(got) == std::signbit(want);
}

}  // namespace

std::string run_gemm(const GemmCase& c, std::string* output_bytes) {
  const GemmOp& op = c.op;
  const GemmCase::Launch plan = c.launch(op, c.shape);
  if (plan.illegal != nullptr) return plan.illegal;
  std::mt19937 random(c.seed);
  const auto m = static_cast<std::size_t>(c.shape.m), k = static_cast<std::size_t>(c.shape.k);
  const auto gap = static_cast<std::size_t>(c.gap);
  const bool pair = op.pair != Pair::none;
  const std::size_t written = pair ? 1 : static_cast<std::size_t>(op.matrices);
  const std::size_t canaries = 8;  // on either side of an output
  const float canary = 12.5f;

  Tensors t{Elements(op.x, m * (k + gap)), {}, {}, {}, {}};  // gaps stay NaN
  std::uniform_real_distribution<float> of_x(-2 * c.size, 2 * c.size);
  for (std::size_t token = 0; token < m; ++token)
    for (std::size_t i = 0; i < k; ++i) t.x.set(token * (k + gap) + i, of_x(random));
  const float bound = std::sqrt(3.0f / static_cast<float>(k));
  CodedGemmParams p{};
  const bool coded = !op.format.is_plain();
  for (std::size_t i = 0; i < static_cast<std::size_t>(op.matrices); ++i) {
    const auto rows = static_cast<std::size_t>(c.shape.rows[i]);
    t.weights.emplace_back(op.weight, rows * k * (c.interleaved ? 2 : 1));
    t.weights.back().fill(random, -bound, bound);
    if (coded) {
      const int columns = c.shape.k;
      const CodedWeights& of = t.codes.emplace_back(op.format, c.shape.rows[i], columns, random);
      for (std::size_t at = 0; at < rows * k; ++at)
        t.weights.back().set(at, static_cast<float>(of.get(static_cast<int>(at) / columns,
                                                           static_cast<int>(at) % columns)));
    }
    t.biases.emplace_back(op.weight, rows);
    t.biases.back().fill(random, -1, 1);
    t.residuals.emplace_back(op.y, m * (rows + gap));
    t.residuals.back().fill(random, -1, 1);
    t.outputs.emplace_back(op.y, m * (rows + gap) + 2 * canaries);
  }
  if (c.hostile) {
    t.x.set(0, INFINITY);
    t.weights[0].set(k - 1, NAN);
  }
  for (std::size_t i = 0; i < written; ++i) {
    Elements& y = t.outputs[i];
    const auto rows = static_cast<std::size_t>(c.shape.rows[i]);
    for (std::size_t at = 0; at < canaries; ++at)
      y.set(at, canary), y.set(y.size() - 1 - at, canary);
    for (std::size_t token = 0; token < m; ++token)
      for (std::size_t row = 0; row < rows + gap; ++row) {
        const std::size_t at = token * (rows + gap) + row;
        if (row >= rows)
          y.set(canaries + at, canary);
        else if (c.in_place)
          y.set(canaries + at, static_cast<float>(t.residuals[i].get(at)));
      }
  }
  for (std::size_t i = 0; i < static_cast<std::size_t>(op.matrices); ++i) {
    GemmMatrix& matrix = p.matrix[i];
    matrix.weight = t.weights[c.interleaved ? 0 : i].at(c.interleaved && i == 1 ? k : 0);
    if (coded) {
      matrix.weight = t.codes[i].codes.data();
      t.codes[i].point(p, static_cast<int>(i));
    }
    matrix.bias = op.bias ? t.biases[i].at(0) : nullptr;
    matrix.rows = c.shape.rows[i];
    matrix.y_pitch = c.shape.rows[i] + c.gap;
    if (i >= written) continue;
    matrix.y = t.outputs[i].at(canaries);
    if (op.residual) matrix.residual = c.in_place ? matrix.y : t.residuals[i].at(0);
  }
  p.m = c.shape.m, p.k = c.shape.k;
  p.pitch = coded           ? c.shape.k * bits_of(op.format.codes) / 8
            : c.interleaved ? 2 * c.shape.k
                            : c.shape.k;
  p.x = t.x.at(0), p.x_pitch = c.shape.k + c.gap;
  p.scale = c.scale, p.softcap = c.softcap;
  Elements partial(Type::f32, static_cast<std::size_t>(plan.workspace_bytes / 4));
  std::vector<unsigned> finished(static_cast<std::size_t>(plan.grid));
  p.partial = static_cast<float*>(partial.at(0)), p.finished = finished.data();

  const auto all_inputs = [&] {
    std::string bytes = t.x.bytes();
    for (const auto* tensors : {&t.weights, &t.biases, &t.residuals})
      for (const Elements& e : *tensors) bytes += e.bytes();
    return bytes;
  };
  const std::string before = all_inputs();
  const HostLaunch config{
      .name = c.name,
      .grid = {static_cast<unsigned>(plan.grid), static_cast<unsigned>(plan.split)},
      .block = {static_cast<unsigned>(plan.threads)},
      .shared_bytes = static_cast<std::size_t>(plan.shared_bytes),
      .cluster = static_cast<unsigned>(plan.cluster),
      .schedule = c.schedule,
      .seed = c.seed,
      .check_races = c.check_races};
  const LaunchReport report =
      coded ? host_launch(config, c.coded, p) : host_launch(config, c.kernel, p);
  if (!report.ok()) return report.error;
  if (all_inputs() != before) return fmt::format("{}: an input changed", c.name);
  for (unsigned count : finished)
    if (count != 0) return fmt::format("{}: a block counter is not 0 again", c.name);
  if (output_bytes != nullptr)
    for (const Elements& y : t.outputs) *output_bytes += y.bytes();

  // No farther from the truth than twice what a plain implementation with float32 sums is, and one
  // rounding to the type of y.
  const double rounding = op.y == Type::f32 ? 1e-6 : op.y == Type::f16 ? 0x1p-11 : 0x1p-8;
  std::vector<double> truths;
  double plain_error = 0;
  for (std::size_t i = 0; i < written; ++i)
    for (std::size_t token = 0; token < m; ++token)
      for (std::size_t row = 0; row < static_cast<std::size_t>(c.shape.rows[i]); ++row) {
        const double truth = output_of<double>(c, t, i, token, row);
        truths.push_back(truth);
        const double plain = output_of<float>(c, t, i, token, row);
        if (std::isfinite(truth))
          plain_error =
              std::max(plain_error, std::fabs(plain - truth) / (c.size + std::fabs(truth)));
      }
  std::size_t next = 0;
  for (std::size_t i = 0; i < written; ++i) {
    const auto rows = static_cast<std::size_t>(c.shape.rows[i]);
    const Elements& y = t.outputs[i];
    for (std::size_t token = 0; token < m; ++token) {
      for (std::size_t row = 0; row < rows; ++row) {
        const double want = truths[next++];
        const double got = y.get(canaries + token * (rows + gap) + row);
        const double allowed = (2 * plain_error + 2e-7) * (c.size + std::fabs(want)) +
                               rounding * std::fabs(want) + (op.y == Type::f16 ? 0x1p-25 : 0);
        if (std::isfinite(want) ? !(std::fabs(got - want) <= allowed) : !same_class(got, want))
          return fmt::format("{}: matrix {} token {} row {}: {} instead of {} (allowed {})", c.name,
                             i, token, row, got, want, allowed);
      }
      for (std::size_t row = rows; row < rows + gap; ++row)
        if (y.get(canaries + token * (rows + gap) + row) != canary)
          return fmt::format("{}: matrix {}: wrote between its rows", c.name, i);
    }
    for (std::size_t at = 0; at < canaries; ++at)
      if (y.get(at) != canary || y.get(y.size() - 1 - at) != canary)
        return fmt::format("{}: matrix {}: wrote outside its output", c.name, i);
  }
  return "";
}

void check_gemm(std::vector<GemmCase> cases, const std::vector<GemmShape>& shapes,
                const GemmCase& as) {
  unsigned seed = 1;
  for (GemmCase& c : cases)
    for (const GemmShape& shape : shapes) {
      c.shape = shape, c.seed = seed++;
      const auto legal = c.launch(c.op, c.shape);
      if (legal.illegal != nullptr && legal.split > 1) continue;
      c.interleaved = as.interleaved, c.in_place = as.in_place, c.hostile = as.hostile;
      c.gap = as.gap, c.size = as.size, c.scale = as.scale, c.softcap = as.softcap;
      CAPTURE(shape.m);
      CAPTURE(shape.rows[0]);
      CAPTURE(shape.k);
      CHECK(run_gemm(c) == "");
    }
}

void check_order(std::vector<GemmCase> cases, const GemmShape& shape) {
  for (GemmCase& c : cases) {
    std::vector<std::string> outputs;
    for (Schedule schedule : {Schedule::forward, Schedule::reverse, Schedule::shuffled}) {
      c.shape = shape, c.schedule = schedule;
      outputs.emplace_back();
      CHECK(run_gemm(c, &outputs.back()) == "");
      CHECK(outputs.back() == outputs.front());
    }
  }
}

}  // namespace ac::kernels
