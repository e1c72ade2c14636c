#include "tests/unit/rows_case.h"

#include <fmt/format.h>

#include <cmath>
#include <random>

namespace ac::kernels {
namespace {

// x [rows, columns] and y of the same shape, which may be the same memory.
struct Matrices {
  std::size_t rows, columns, pitch;
  Input x;
  Output y;
  bool in_place;

  Matrices(const RowsShape& shape, Type x_type, Type y_type, float low, float high,
           std::mt19937& random)
      : rows(static_cast<std::size_t>(shape.rows)),
        columns(static_cast<std::size_t>(shape.columns)),
        pitch(columns + (shape.pitched ? 5 : 0)),
        x(x_type, rows * pitch, shape.skip, random, low, high),
        y(y_type, rows * pitch, shape.skip),
        in_place(shape.in_place) {
    for (std::size_t row = 0; row < rows && shape.fill != nullptr; ++row) {
      // A row at a time, through a row of its own.
      Input one(x_type, columns);
      shape.fill(one, row, columns);
      for (std::size_t i = 0; i < columns; ++i)
        x.set(row * pitch + i, static_cast<float>(one.get(i)));
    }
    x.remember();
    if (in_place)
      for (std::size_t i = 0; i < rows * pitch; ++i) y.set(i, static_cast<float>(x.get(i)));
  }
  const void* x_data() { return in_place ? y.data() : x.data(); }
  double at(std::size_t row, std::size_t column) const { return x.get(row * pitch + column); }

  // What is wrong outside the rows of y, or "".
  std::string check_surroundings(const char* name) const {
    if (!x.unchanged()) return fmt::format("{}: x changed", name);
    if (!y.intact()) return fmt::format("{}: wrote outside its output", name);
    for (std::size_t row = 0; row < rows; ++row)
      for (std::size_t i = columns; i < pitch; ++i) {
        const double got = y.get(row * pitch + i);
        if (in_place ? got != at(row, i) : !std::isnan(got))
          return fmt::format("{}: wrote between the rows", name);
      }
    return "";
  }
};

HostLaunch launch_of(const char* name, int grid, int threads, int shared_bytes,
                     const RowsShape& shape) {
  return {.name = name,
          .grid = {static_cast<unsigned>(grid)},
          .block = {static_cast<unsigned>(threads)},
          .shared_bytes = static_cast<std::size_t>(shared_bytes),
          .schedule = shape.schedule,
          .check_races = shape.check_races};
}

std::string wrong(const char* name, const RowsShape& shape, std::size_t row, std::size_t column,
                  double got, double want) {
  return fmt::format("{} [{}, {}]: ({}, {}) is {} instead of {}", name, shape.rows, shape.columns,
                     row, column, got, want);
}

}  // namespace

std::string run_reduction(const ReductionCase& c, const RowsShape& shape) {
  std::mt19937 random(5);
  Matrices m(shape, c.op.x, c.op.x, -3, 3, random);
  Output y(c.op.y, m.rows, shape.skip);
  const ReductionParams p{m.x.data(), static_cast<long long>(m.pitch), y.data(), shape.rows,
                          shape.columns};
  const LaunchReport report = host_launch(
      launch_of(c.name, c.plan.grid(shape.rows, 2), c.plan.threads, c.plan.shared_bytes(), shape),
      c.kernel, p);
  if (!report.ok()) return report.error;
  for (std::size_t row = 0; row < m.rows; ++row) {
    double sum = 0, magnitude = 0, largest = -INFINITY;
    for (std::size_t i = 0; i < m.columns; ++i) {
      const double x = m.at(row, i), value = c.squares ? x * x : x;
      sum += value;
      if (std::isfinite(value)) magnitude += std::fabs(value);
      if (!(value <= largest) && !std::isnan(largest)) largest = value;
    }
    double want = sum, error = 2e-6 * magnitude;
    if (c.op.fold == Fold::mean)
      want /= static_cast<double>(m.columns), error /= static_cast<double>(m.columns);
    if (c.op.fold == Fold::max) want = largest, error = c.squares ? 1e-6 * largest : 0;
    if (!is_close(c.op.y, y.get(row), want, error))
      return wrong(c.name, shape, row, 0, y.get(row), want);
  }
  if (!y.intact()) return fmt::format("{}: wrote outside its output", c.name);
  return m.check_surroundings(c.name);
}

std::string run_softmax(const SoftmaxCase& c, const RowsShape& shape, std::string* output_bytes) {
  std::mt19937 random(6);
  Matrices m(shape, c.op.x, c.op.y, -3, 3, random);
  SoftmaxParams p{};
  p.x = m.x_data(), p.x_pitch = static_cast<long long>(m.pitch);
  p.y = m.y.data(), p.y_pitch = p.x_pitch;
  p.rows = shape.rows, p.columns = shape.columns, p.scale = c.scale;
  const LaunchReport report =
      host_launch(launch_of(c.name, c.plan.grid(shape.rows, 2), c.plan.threads,
                            c.plan.shared_bytes(shape.columns), shape),
                  c.kernel, p);
  if (!report.ok()) return report.error;
  if (output_bytes != nullptr) *output_bytes += m.y.bytes();
  for (std::size_t row = 0; row < m.rows; ++row) {
    double largest = -INFINITY, sum = 0;
    for (std::size_t i = 0; i < m.columns; ++i)
      largest = std::fmax(largest, m.at(row, i) * c.scale);
    for (std::size_t i = 0; i < m.columns; ++i) sum += std::exp(m.at(row, i) * c.scale - largest);
    for (std::size_t i = 0; i < m.columns; ++i) {
      const double exponent = m.at(row, i) * c.scale - largest;
      const double want = std::exp(exponent) / sum, got = m.y.get(row * m.pitch + i);
      const double slack = std::isfinite(exponent) ? 1 + std::fmin(-exponent, 100) : 1;
      if (!is_close(c.op.y, got, want, 2e-6 * want * slack + 1e-37))
        return wrong(c.name, shape, row, i, got, want);
    }
  }
  return m.check_surroundings(c.name);
}

std::string run_norm(const NormCase& c, const RowsShape& shape, std::string* output_bytes) {
  std::mt19937 random(7);
  Matrices m(shape, c.op.x, c.op.y, c.low, c.high, random);
  Input residual(c.op.x, m.rows * m.columns, shape.skip, random, -2, 2);
  Input weight(c.op.weight, m.columns, shape.skip, random, 0.5f, 1.5f);
  Input bias(c.op.weight, m.columns, shape.skip, random, -1, 1);
  Output sum(c.op.x, m.rows * m.columns, shape.skip);
  NormParams p{};
  p.x = m.x_data(), p.x_pitch = static_cast<long long>(m.pitch);
  p.residual = c.op.residual ? residual.data() : nullptr;
  p.sum = c.op.residual ? sum.data() : nullptr;
  p.weight = c.op.weighted ? weight.data() : nullptr;
  p.bias = c.op.bias ? bias.data() : nullptr;
  p.y = m.y.data(), p.y_pitch = p.x_pitch;
  p.rows = shape.rows, p.columns = shape.columns;
  p.eps = c.eps, p.weight_offset = c.weight_offset;
  const LaunchReport report =
      host_launch(launch_of(c.name, c.plan.grid(shape.rows, 2), c.plan.threads,
                            c.plan.shared_bytes(shape.columns), shape),
                  c.kernel, p);
  if (!report.ok()) return report.error;
  if (output_bytes != nullptr) *output_bytes += m.y.bytes() + sum.bytes();

  const double length = static_cast<double>(m.columns);
  for (std::size_t row = 0; row < m.rows; ++row) {
    std::vector<double> x(m.columns);
    double mean = 0, squares = 0, largest = 0;
    for (std::size_t i = 0; i < m.columns; ++i) {
      x[i] = m.at(row, i);
      if (c.op.residual) {
        const std::size_t at = row * m.columns + i;
        x[i] = round_to(dtype_of(c.op.x), x[i] + residual.get(at));
        // Float32 may round twice on the way to 16 bits.
        if (!is_close(c.op.x, sum.get(at), x[i], 1e-7 * std::fabs(x[i])))
          return wrong(c.name, shape, row, i, sum.get(at), x[i]);
        x[i] = sum.get(at);
      }
      largest = std::fmax(largest, std::fabs(x[i]));
      if (c.op.layer()) mean += x[i] / length;
    }
    for (double v : x) squares += (v - mean) * (v - mean);
    const double scale = 1 / std::sqrt(squares / length + c.eps);
    for (std::size_t i = 0; i < m.columns; ++i) {
      const double w = !c.op.weighted ? 1 : weight.get(i) + (c.op.layer() ? 0 : c.weight_offset);
      const double normal = (x[i] - mean) * scale * w;
      const double want = normal + (c.op.bias ? bias.get(i) : 0);
      // The mean is off by roundings of its largest element.
      const double error = 3e-6 * (std::fabs(normal) + std::fabs(want)) +
                           (c.op.layer() ? 1e-6 * largest * scale * std::fabs(w) : 0);
      const double got = m.y.get(row * m.pitch + i);
      if (!is_close(c.op.y, got, want, error)) return wrong(c.name, shape, row, i, got, want);
    }
  }
  for (const Input* input : {&residual, &weight, &bias})
    if (!input->unchanged()) return fmt::format("{}: an input changed", c.name);
  if (!sum.intact()) return fmt::format("{}: wrote outside its sum", c.name);
  return m.check_surroundings(c.name);
}

}  // namespace ac::kernels
