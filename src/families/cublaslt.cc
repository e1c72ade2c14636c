#include "families/cublaslt.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace ac {

Match<LibraryTask> LibraryTask::match(const Body& body) {
  return match_gemm<LibraryTask>(body, [&](const FoundProduct& found) -> const char* {
    const ProductOperands& o = found.operands;
    if (found.shape.m < 2 && !body.graph().type(o.x).shape.front().uses(Symbol::T))
      return "one row is for a gemv";
    if (found.op.pair != kernels::Pair::none) return "the library has no pair of products";
    if (o.softcap != 0) return "the library has no softcap";
    if (found.op.bias && o.scale != 1) return "the library does not scale a bias";
    return nullptr;
  });
}

std::vector<LibraryPlan> LibraryTask::plans() const {
  constexpr int kAlgorithms = 8;
  std::vector<LibraryPlan> plans;
  for (int algorithm = 0; algorithm < kAlgorithms; ++algorithm) plans.push_back({algorithm, shape});
  return plans;
}

const char* LibraryTask::why_illegal(const Plan&, const DeviceInfo&) const {
  if (const char* reason = op.why_illegal()) return reason;
  return shape.why_illegal(op);
}

namespace {

// It takes the best tiles for the problem, or splits K so that all multiprocessors have work.
double library_seconds(const LibraryTask& task, int rows, const DeviceInfo& device) {
  const Calibration::Library& fit = device.constants().library;
  const bool tensor = task.op.x != kernels::Type::f32 && device.sm > 0;
  const double peak = tensor ? device.tensor_flops : device.flops;
  const double sms = device.multiprocessors;
  double best = 0;
  // What stands in for it on the host has tiles of one element.
  constexpr Calibration::Library::Tile kOne[] = {{1, 1, 1}};
  for (const auto& tile : device.sm > 0 ? std::span(fit.tiles) : std::span(kOne, 1)) {
    const double tiles = std::ceil(task.shape.m / tile.m) * std::ceil(rows / tile.n);
    const double split =
        std::clamp(std::floor(sms / tiles), 1.0, std::max(1.0, std::floor(task.shape.k / 512.0)));
    const double rounds = std::ceil(tiles / sms) / split;
    const double seconds = rounds * 2 * tile.m * tile.n * task.shape.k / (peak / sms * tile.share);
    if (best == 0 || seconds < best) best = seconds;
  }
  kernels::GemmOp op = task.op;
  op.matrices = 1;
  const kernels::GemmShape shape{task.shape.m, {rows}, task.shape.k};
  const double memory = kernels::gemm_bytes(op, shape) / (device.bandwidth * fit.bandwidth);
  return device.launch + fit.start + std::max(best, memory);
}

}  // namespace

Cost LibraryTask::cost(const Plan&, const DeviceInfo& device) const {
  Cost cost;
  cost.bytes = bytes();
  cost.flops = flops();
  for (int i = 0; i < op.matrices; ++i)
    cost.microseconds += library_seconds(*this, shape.rows[i], device) * 1e6;
  cost.occupancy = 1;
  cost.limit = Limit::compute;
  return cost;
}

Generated LibraryTask::lower(const Lowering& to, const Plan& plan, const Operands& operands) const {
  Generated out;
  for (std::size_t i = 0; i < static_cast<std::size_t>(op.matrices); ++i) {
    ParamsOf<ProductParams> of(to.step, out);
    ProductParams& p = of.params;
    of.point(p.x, operands.x);
    of.point(p.weight, operands.weight[i]);
    if (op.bias) of.point(p.bias, operands.bias[i]);
    if (op.residual) of.point(p.residual, operands.residual);
    of.point(p.y, operands.y[i]);
    of.count(p.m, rows_of(to.shape(operands.x)));
    Launch& launch = out.launches.emplace_back(of.finish());
    launch.product = Product{.dtype = to.step.graph.type(operands.x).dtype,
                             .n = shape.rows[i],
                             .k = shape.k,
                             .x_pitch = to.pitch(operands.x),
                             .bias = op.bias,
                             .residual = op.residual,
                             .scale = operands.scale,
                             .algorithm = plan.algorithm,
                             .tuned_m = plan.chosen_for.m,
                             .tuned_n = plan.chosen_for.rows[i]};
    launch.kernel = name_of(*launch.product);
  }
  return out;
}

}  // namespace ac
