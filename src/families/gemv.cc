#include "families/gemv.h"

#include <algorithm>

namespace ac {

using namespace kernels;

std::variant<FoundGemv, std::string> find_gemv(const Body& body) {
  const auto product = find_product(body, true);
  if (const auto* why = std::get_if<std::string>(&product)) return *why;
  const auto& [op, shape, operands] = std::get<FoundProduct>(product);
  if (body.argmax() && op.matrices > 1) return "argmax is over one matrix";
  const bool is_one = rows_of(body.graph().type(operands.y[0]).shape) == Dim(1);
  if (body.argmax() && !is_one) return "argmax is of one token";
  const GemvProblem problem{
      {.weight = op.weight,
       .x = op.x,
       .y = op.y,
       .norm = operands.norm >= 0,
       .pair = op.pair,
       .bias = op.bias,
       .residual = op.residual,
       .argmax = body.argmax(),
       .matrices = op.matrices,
       .format = op.format},
      op.pair != Pair::none ? shape.rows[0] : shape.rows[0] + shape.rows[1] + shape.rows[2],
      shape.k,
      std::max(shape.m, 1),
      is_one};
  return FoundGemv{problem, operands};
}

std::vector<int> GemvProblem::tokens_at_once() const {
  if (is_one) return {1};
  if (tokens > most_gemv_tokens) return {};
  const int all = std::max(tokens, 2);
  return all > 4 ? std::vector<int>{all, divide_up(all, 2)} : std::vector<int>{all};
}

Match<GemvTask> GemvTask::match(const Body& body) {
  const auto found = find_gemv(body);
  if (const auto* why = std::get_if<std::string>(&found)) return *why;
  const auto& [problem, operands] = std::get<FoundGemv>(found);
  return Matched<GemvTask>{{problem}, operands};
}

std::vector<GemvPlan> GemvTask::plans() const {
  struct Memory {
    Ring ring;
    int depth, chunks;
    kernels::Cache cache = kernels::Cache::streaming;
  };
  std::vector<Memory> memory{{Ring::none, 1, 1}};
  for (const int depth : {4, 5, 8, 10, 16})
    for (const auto cache :
         {kernels::Cache::streaming, kernels::Cache::no_allocate, kernels::Cache::evict_first})
      memory.push_back({Ring::registers, depth, 1, cache});
  for (const int depth : {5, 8, 12, 16}) memory.push_back({Ring::async_copy, depth, 1});
  for (const int chunks : {2, 4, 8})
    for (const int depth : {2, 3, 4, 6, 8}) memory.push_back({Ring::bulk_copy, depth, chunks});

  std::vector<GemvPlan> plans;
  for (const int tokens : tokens_at_once())
    for (const Memory& m : memory)
      for (const int threads : {128, 256, 320, 384, 512, 768, 1024})
        for (const int rows : {1, 2, 4})
          for (const int split : {1, 2})
            for (const int blocks : {1, 2, 3, 4})
              for (const bool persistent : {true, false})
                for (const Signal signal : {Signal::entry, Signal::last_group})
                  plans.push_back({.threads = threads,
                                   .rows = rows,
                                   .depth = m.depth,
                                   .chunks = m.chunks,
                                   .ring = m.ring,
                                   .split = split,
                                   .resident = threads * blocks,
                                   .persistent = persistent,
                                   .signal = signal,
                                   .cache = m.cache,
                                   .tokens = tokens});
  return plans;
}

const char* GemvTask::why_illegal(const Plan& plan, const DeviceInfo& device) const {
  if (const char* reason = GemvProblem::why_illegal(plan.tokens)) return reason;
  if (const char* reason = plan.why_illegal(op, k, device.max_shared_bytes)) return reason;
  if (plan.ring == Ring::bulk_copy && !device.bulk_copies) return "bulk copies need sm_90";
  if (plan.ring == Ring::async_copy && !device.async_copies)
    return "asynchronous copies need sm_80";
  return nullptr;
}

namespace {

constexpr int kGemvRegisters = 26;  // so that measured plans of 64 registers stay legal

// Operations a second where each weight meets several tokens. Instructions are counted: a weight is
// unpacked once; x is loaded once for all rows of a warp, and unpacked unless it is float32. So are
// the cycles of shared memory, which gives 128 bytes of x a cycle, while four warps multiply.
double flops_of(const GemvTask& task, const GemvPlan& plan, const DeviceInfo& device) {
  if (plan.tokens == 1) return 0;
  const bool wide = task.op.wide_x();
  const double unpacking = task.op.format.is_plain() ? 1 : 2, of_x = wide ? 0.25 : 1.2;
  const double instructions = plan.tokens * (1 + of_x / plan.rows) + unpacking;
  const double reads = plan.tokens * (wide ? 4.0 : 2.0) / plan.rows;
  return device.flops * plan.tokens / std::max(instructions, reads);
}

double slowdown_of(const GemvTask& task, const GemvPlan& plan, double padded,
                   const Calibration::Gemv& fit) {
  double factor = (1 + fit.padding * (padded / task.k - 1)) * task.passes(plan.tokens);
  if (plan.ring == Ring::async_copy) factor *= fit.async_copies;
  if (plan.ring == Ring::bulk_copy) factor *= fit.bulk_copies;
  if (plan.ring == Ring::registers && plan.cache != kernels::Cache::streaming)
    factor *= fit.cache_hint;
  return factor;
}

}  // namespace

Footprint GemvTask::footprint(const Plan& plan, const DeviceInfo& device) const {
  const Calibration::Gemv& fit = device.constants().gemv;
  const bool in_registers = plan.ring == Ring::registers || plan.ring == Ring::none;
  const int held = plan.ring == Ring::registers ? plan.rows * plan.depth * 4 : 8;
  const int grid = plan.grid(op, n, device.multiprocessors);
  const double groups = divide_up(n, plan.outputs_per_group(op));
  const double at_once = std::min(groups, double(grid) * plan.groups_per_block());
  // Rings in shared memory run on into the next group, where there is one.
  const int steps = plan.steps(op, k);
  const int depth = in_registers || groups <= at_once ? std::min(plan.depth, steps) : plan.depth;
  const double load = plan.ring == Ring::none ? code_bits(op.format, op.weight) / 4.0 : 16.0;
  // Of a format, a vector of x and one of a row are longer, and each row has scales.
  const bool plain = op.format.is_plain();
  int further = plain ? 0 : 2 * (op.vector() - 16 / bytes_of(op.weight)) + 4 * plan.rows + 8;
  if (op.format.many_scales()) further += 8 * plan.rows;  // where those of the next group are
  if (op.format.outer > 0) further += 4 * plan.rows;
  if (const int high = high_bits_of(op.format.codes); high > 0) further += (4 + high) * plan.rows;
  // Rows of several tokens are unpacked once for all of them.
  if (plain && plan.tokens > 1) further += plan.rows * op.vector();
  const double padded = double(plan.padded_vectors(op, k)) * op.vector();
  return {.threads = plan.threads,
          .shared_bytes = plan.shared_bytes(op, k) + 2048 + plan.sums_bytes(),
          .registers = kGemvRegisters + held + plan.rows * 2 * plan.tokens + further,
          .blocks_per_sm = plan.blocks_per_sm(),
          .grid = static_cast<long long>(grid) * passes(plan.tokens),
          .units = groups * passes(plan.tokens),
          .units_at_once = double(plan.groups_per_block()),
          .unit_in_flight = load * 32 * plan.split * plan.rows * depth * plan.chunks,
          .unit_seconds = in_registers ? fit.next_group : fit.next_shared_group,
          .block_seconds = fit.stage_element * padded * plan.tokens,
          .finish_seconds = fit.further_row * (plan.rows - 1) +
                            (plan.signal == Signal::last_group ? fit.late_signal : 0),
          .slowdown = slowdown_of(*this, plan, padded, fit),
          .flops = flops_of(*this, plan, device)};
}

Extent GemvTask::extent(const Plan& plan) const {
  const int block = plan.groups_per_block() * plan.outputs_per_group(op);
  return {.block = block,
          .at_once = std::max(plan.blocks_per_sm() * int{kTrialProcessors},
                              blocks_of_scales(op.format, block)),
          .tokens = is_one ? 0 : plan.tokens};
}

void GemvTask::write_id(const Plan& plan, IdText& id) {
  constexpr std::string_view kRings[] = {"N", "R", "S", "B"};
  id.add("{}{}x{}x{}", kRings[static_cast<int>(plan.ring)], plan.threads, plan.rows, plan.depth)
      .unless("chunks", plan.chunks, 1, "x{}", plan.chunks)
      .grid(plan.persistent, plan.resident)
      .unless("split", plan.split, 1, "/split{}", plan.split)
      .unless("signal", plan.signal, Signal::entry, "/late")
      .unless("cache", plan.cache, kernels::Cache::streaming, "{}",
              plan.cache == kernels::Cache::no_allocate ? "/noalloc" : "/evict");
  if (plan.tokens > 1) id.add("/x{}", plan.tokens);
}

Generated GemvTask::lower(const Lowering& to, const Plan& plan, const Operands& operands) const {
  return lower_few(*this, to, plan, operands, [&](auto& of, int grid) {
    if (!op.argmax) return;
    of.point(of.params.block_best, workspace(8 * grid));
    of.point(of.params.finished_blocks, counters(4));
    of.point(of.params.best_row, {.role = Buffer::Role::token});
  });
}

}  // namespace ac
