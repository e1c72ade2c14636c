#include "families/gemm.h"

namespace ac {

Match<GemmTask> GemmTask::match(const Body& body) {
  return match_gemm<GemmTask>(body, [](const FoundProduct& found) -> const char* {
    const bool whole =
        found.shape.k * kernels::code_bits(found.op.format, found.op.weight) % 8 == 0;
    return whole ? nullptr : "a row ends within a byte";
  });
}

std::vector<kernels::GemmPlan> GemmTask::plans() const {
  std::vector<Plan> plans;
  for (const int tile_m : {8, 16, 32, 64, 128})
    for (const int tile_n : {32, 64, 128})
      for (const int tile_k : {8, 16, 32})
        for (const int thread_m : {1, 2, 4, 8})
          for (const int thread_n : {2, 4, 8})
            for (const int stages : {1, 2})
              for (const int resident : {256, 512, 1024})
                plans.push_back({tile_m, tile_n, tile_k, thread_m, thread_n, stages, resident});
  return plans;
}

Footprint GemmTask::footprint(const Plan& plan, const DeviceInfo& device) const {
  const Calibration::Gemm& fit = device.constants().gemm;
  const double tiles = plan.grid(op, shape);
  const double reuse = double(plan.thread_m) * plan.thread_n / (plan.thread_m + plan.thread_n);
  return {
      .threads = plan.threads(),
      .shared_bytes = plan.shared_bytes(),
      .registers = kBaseRegisters + plan.thread_m * plan.thread_n + plan.thread_m + plan.thread_n,
      .blocks_per_sm = plan.blocks_per_sm(),
      .grid = static_cast<long long>(tiles),
      .units = tiles,
      .units_at_once = 1,
      .unit_in_flight = (double(plan.tile_m) * bytes_of(op.x) +
                         double(plan.tile_n) * kernels::code_bits(op.format, op.weight) / 8) *
                        plan.tile_k * plan.stages,
      .unit_seconds = fit.next_tile,
      .flops = device.flops * fit.plain_efficiency * reuse / (reuse + fit.plain_half) *
               busy_share(tiles * 4, 4.0 * device.multiprocessors)};
}

void GemmTask::write_id(const Plan& plan, IdText& id) {
  id.add("{}x{}x{}/{}x{}/{}/{}", plan.tile_m, plan.tile_n, plan.tile_k, plan.thread_m,
         plan.thread_n, plan.stages, plan.resident);
}

namespace {

template <class Params>
Generated lower_gemm(const GemmTask& task, const Lowering& to, const kernels::GemmPlan& plan,
                     const ProductOperands& operands) {
  Generated out;
  KernelOf<Params> of(to, out, "gemm", task.op, plan);
  fill_product(of, of.params, to, task.op, task.shape, operands);
  of.launch({tiles_of(to, task.op, task.shape, plan.tile_m, plan.tile_n, operands.x), 1, 1},
            plan.threads(), plan.shared_bytes());
  return out;
}

}  // namespace

Generated GemmTask::lower(const Lowering& to, const Plan& plan, const Operands& operands) const {
  return op.format.is_plain() ? lower_gemm<kernels::GemmParams>(*this, to, plan, operands)
                              : lower_gemm<kernels::CodedGemmParams>(*this, to, plan, operands);
}

}  // namespace ac
