#include "validate/repeated_subject.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace ac::validate {
namespace {

// Columns of a result: so many, repeated up to another number.
struct Columns {
  std::size_t tensor;
  std::int64_t few, all;
};

std::vector<double> repeated(const std::vector<double>& values, const Columns& columns) {
  std::vector<double> all;
  const auto few = static_cast<std::size_t>(columns.few);
  all.reserve(values.size() / few * static_cast<std::size_t>(columns.all));
  for (std::size_t row = 0; row < values.size(); row += few)
    for (std::int64_t column = 0; column < columns.all; ++column)
      all.push_back(values[row + static_cast<std::size_t>(column % columns.few)]);
  return all;
}

}  // namespace

std::optional<Subject> repeated(Subject small, const Subject& whole) {
  AC_ASSERT(small.tensors.size() == whole.tensors.size());
  std::int64_t period = 0;
  std::vector<Columns> results;
  std::vector<std::pair<std::size_t, double>> ids;  // of rows of a table, and the largest
  for (std::size_t t = 0; t < small.tensors.size(); ++t) {
    TensorSpec& spec = small.tensors[t];
    const TensorSpec& to = whole.tensors[t];
    AC_ASSERT(spec.name == to.name && spec.shape.size() == to.shape.size());
    if (spec.high != to.high) ids.emplace_back(t, static_cast<double>(spec.high = to.high));
    if (spec.shape == to.shape) continue;
    const auto axis = static_cast<std::size_t>(std::ranges::mismatch(spec.shape, to.shape).in1 -
                                               spec.shape.begin());
    if (period == 0) period = spec.shape[axis];
    std::vector<std::int64_t> shape = spec.shape;
    shape[axis] = to.shape[axis];
    if (shape != to.shape || spec.shape[axis] != period || spec.role == TensorRole::state)
      return std::nullopt;
    if (spec.role == TensorRole::output) {
      if (axis + 1 != shape.size()) return std::nullopt;
      results.push_back({t, period, shape[axis]});
      spec.shape = std::move(shape);
    } else {
      spec.repeated_axis = axis, spec.repeated_to = to.shape[axis];
    }
  }
  if (period == 0) return std::nullopt;

  // Ids of a row become that of the row that it repeats, and results become as wide as the
  // kernel's.
  const auto compute = [=](const Elements& in, const auto& evaluate) {
    Elements of_small;
    if (!ids.empty()) of_small = in;
    for (const auto& [t, high] : ids)
      for (double& id : of_small[t])
        if (id >= 0 && id <= high) id = std::fmod(id, static_cast<double>(period));
    Elements out = evaluate(ids.empty() ? in : of_small);
    for (const Columns& columns : results)
      out[columns.tensor] = repeated(out[columns.tensor], columns);
    return out;
  };
  const auto of_all = [&](const Evaluate& evaluate) -> Evaluate {
    return [=](const Elements& in) { return compute(in, evaluate); };
  };
  const auto of_rows = [&](const EvaluateRows& evaluate) -> EvaluateRows {
    return [=](const Elements& in, const Rows& rows) {
      return compute(in, [&](const Elements& of) { return evaluate(of, rows); });
    };
  };
  small.truth = of_all(small.truth), small.plain = of_all(small.plain);
  small.truth_of_rows = of_rows(small.truth_of_rows);
  small.plain_of_rows = of_rows(small.plain_of_rows);
  return small;
}

}  // namespace ac::validate
