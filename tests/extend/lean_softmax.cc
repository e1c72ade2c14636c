#include "tests/extend/lean_softmax.h"

#include "families/rows.h"

namespace ac::test {

using namespace kernels;

Match<LeanSoftmaxTask> LeanSoftmaxTask::match(const Body& body) {
  const auto found = SoftmaxTask::match(body);
  if (const auto* why = std::get_if<std::string>(&found)) return *why;
  const auto& [task, operands] = std::get<Matched<SoftmaxTask>>(found);
  return Matched<LeanSoftmaxTask>{{{task.op.x}, task.rows, task.columns}, operands};
}

Footprint LeanSoftmaxTask::footprint(const Plan& plan, const DeviceInfo&) const {
  return {.threads = plan.threads,
          .registers = kBaseRegisters,
          .blocks_per_sm = 1,
          .grid = plan.grid(rows),
          .units = double(rows),
          .units_at_once = double(plan.threads),
          .unit_in_flight = double(bytes_of(op.x))};
}

Generated LeanSoftmaxTask::lower(const Lowering& to, const Plan& plan, const Operands& o) const {
  Generated out;
  KernelOf<LeanSoftmaxParams> of(to, out, "lean_softmax", op, plan);
  LeanSoftmaxParams& p = of.params;
  of.point(p.x, o.x);
  p.x_pitch = to.pitch(o.x);
  of.point(p.y, o.y);
  of.count(p.rows, rows_of(to.shape(o.y)));
  p.columns = columns;
  p.scale = static_cast<float>(o.scale);
  of.launch({to.blocks(rows_of(to.shape(o.y)), plan.threads, false, 1), 1, 1}, plan.threads, 0);
  return out;
}

}  // namespace ac::test
