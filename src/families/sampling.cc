#include "families/sampling.h"

#include "families/rows.h"

namespace ac {

using namespace kernels;

std::vector<SamplingPlan> SamplingTask::plans() const { return flat_plans<SamplingPlan>(); }

Footprint SamplingTask::footprint(const Plan& plan, const DeviceInfo& device) const {
  return flat_footprint(plan, plan.grid(vocab, device.multiprocessors),
                        divide_up(vocab, plan.vector), plan.vector,
                        plan.vector * bytes_of(op.logits), device);
}

void SamplingTask::write_id(const Plan& plan, IdText& id) {
  id.add("{}/v{}", plan.threads, plan.vector).grid(plan.persistent, plan.resident);
}

Generated SamplingTask::lower(const Lowering& to, const Plan& plan, const Operands& o) const {
  Generated out;
  KernelOf<SamplingParams> of(to, out, "sampling", op, plan);
  SamplingParams& p = of.params;
  const int grid = plan.grid(vocab, to.setting.multiprocessors);
  of.point(p.logits, o.logits);
  p.vocab = vocab;
  of.point(p.block_best, workspace(8ll * grid));
  of.point(p.finished_blocks, counters(4));
  of.point(p.token, {.role = Buffer::Role::token});
  of.launch({grid, 1, 1}, plan.threads, plan.shared_bytes());
  return out;
}

}  // namespace ac
