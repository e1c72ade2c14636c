#include "families/mma_gemv.h"

#include <algorithm>

namespace ac {

using namespace kernels;

Match<MmaGemvTask> MmaGemvTask::match(const Body& body) {
  const auto found = find_gemv(body);
  if (const auto* why = std::get_if<std::string>(&found)) return *why;
  const auto& [problem, operands] = std::get<FoundGemv>(found);
  if (const char* why = MmaGemvPlan{.rows = 16}.why_illegal(problem.op)) return why;
  return Matched<MmaGemvTask>{{problem}, operands};
}

std::vector<MmaGemvPlan> MmaGemvTask::plans() const {
  std::vector<MmaGemvPlan> plans;
  for (const int tokens : tokens_at_once())
    for (const int threads : {128, 256, 320, 384, 512, 640})
      for (const int rows : {16, 8, 4})
        for (const int depth : {2, 3, 4, 6, 8})
          for (const int split : {1, 2, 3, 4, 5, 8, 10, 16})
            for (const int resident : {1, 2, 3, 4})
              for (const Signal signal : {Signal::entry, Signal::last_group})
                for (const auto cache : {kernels::Cache::streaming, kernels::Cache::evict_first})
                  plans.push_back({.threads = threads,
                                   .rows = rows,
                                   .depth = depth,
                                   .split = split,
                                   .resident = resident,
                                   .signal = signal,
                                   .cache = cache,
                                   .tokens = tokens});
  return plans;
}

const char* MmaGemvTask::why_illegal(const Plan& plan, const DeviceInfo& device) const {
  if (const char* reason = GemvProblem::why_illegal(plan.tokens)) return reason;
  if (!device.async_copies) return "asynchronous copies need sm_80";
  return plan.why_illegal(op, k, device.max_shared_bytes);
}

Footprint MmaGemvTask::footprint(const Plan& plan, const DeviceInfo& device) const {
  const Calibration::Gemv& fit = device.constants().gemv;
  const double tiles = divide_up(n, plan.outputs_per_tile(op));
  const double slots = std::min(plan.depth, plan.steps(op, k));
  // One token gains that by itself too, and loses more of it in a step, where gemv hides more.
  const bool ends_sooner =
      plan.tokens > 1 && op.format.is_plain() && op.pair == kernels::Pair::none;
  return {.threads = plan.threads,
          .shared_bytes = plan.shared_bytes(op, k) + plan.sums_bytes(),
          .registers = 80,
          .blocks_per_sm = plan.resident,
          .grid = static_cast<long long>(plan.grid(op, n, device.multiprocessors)) *
                  passes(plan.tokens),
          .units = tiles * passes(plan.tokens),
          .units_at_once = double(plan.tiles_per_block()),
          .unit_in_flight = slots * MmaGemvPlan::slot_bytes(op) * plan.split,
          .unit_seconds = fit.next_shared_group,
          .block_seconds = fit.stage_element * plan.padded(op, k) * plan.tokens,
          .finish_seconds = (plan.signal == Signal::last_group ? fit.late_signal : 0) -
                            (ends_sooner ? fit.plain_by_mma : 0),
          .slowdown = (1 + fit.padding * (double(plan.padded(op, k)) / k - 1)) *
                      passes(plan.tokens) * (plan.split == 1 ? fit.whole_tile : 1),
          // A right matrix has eight columns, and decoding takes about as long as one: estimated.
          .flops = device.tensor_flops * plan.tokens / (8 * (plan.matrices(op) + 1))};
}

Extent MmaGemvTask::extent(const Plan& plan) const {
  const int block = plan.tiles_per_block() * plan.outputs_per_tile(op);
  return {.block = block,
          .at_once =
              std::max(plan.resident * int{kTrialProcessors}, blocks_of_scales(op.format, block)),
          .tokens = is_one ? 0 : plan.tokens};
}

void MmaGemvTask::write_id(const Plan& plan, IdText& id) {
  id.add("{}x{}x{}/split{}/{}", plan.threads, plan.rows, plan.depth, plan.split, plan.resident)
      .unless("signal", plan.signal, Signal::entry, "/late")
      .unless("cache", plan.cache, kernels::Cache::streaming, "/evict");
  if (plan.tokens > 1) id.add("/x{}", plan.tokens);
}

Generated MmaGemvTask::lower(const Lowering& to, const Plan& plan, const Operands& operands) const {
  return lower_few(*this, to, plan, operands, [](auto&, int) {});
}

}  // namespace ac
