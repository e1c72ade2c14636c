// The launches that choose a token under a mask.
#include <fmt/format.h>

#include "base/error.h"
#include "generate/each_row.h"
#include "generate/endings.h"
#include "generate/params.h"
#include "generate/source.h"
#include "kernels/mask_logits_plan.h"

namespace ac {

using namespace kernels;

Generated generate_mask(const StepGraph& step, NodeId logits, const Buffer& masked) {
  const TensorType& type = step.graph.type(logits);
  const auto vocab = static_cast<int>(type.shape.back().constant());
  constexpr MaskLogitsPlan plan{};
  const int grid = plan.grid(vocab);
  Generated out;
  out.sources.push_back(instantiate("mask_logits", "MaskLogitsOp",
                                    fmt::format("{{{}}}", logits_type(type.dtype)),
                                    "MaskLogitsPlan", fmt::format("{{{}}}", plan.threads)));
  ParamsOf<MaskLogitsParams> of(step, out);
  of.point(of.params.logits, logits);
  of.point(of.params.allowed, {.role = Buffer::Role::allowed});
  of.point(of.params.masked, masked);
  of.point(of.params.block_best, {.bytes = 8 * grid});
  of.point(of.params.finished_blocks, {.role = Buffer::Role::counters, .bytes = 4});
  of.point(of.params.token, {.role = Buffer::Role::token});
  of.params.vocab = vocab;
  Launch launch = of.finish();
  launch.kernel = out.sources.back().entry;
  launch.grid = {grid, 1, 1};
  launch.threads = plan.threads;
  out.launches.push_back(std::move(launch));
  return out;
}

namespace {

// `tokens`: how far the position still has to move.
Generated masked(const StepGraph& step, NodeId ids, NodeId logits, std::int64_t positions,
                 const Dim& tokens) {
  const TensorType& type = step.graph.type(logits);
  const Buffer masked{
      .name = "masked logits",
      .dtype = type.dtype,
      .bytes = type.shape.back().constant() * static_cast<std::int64_t>(bytes_of(type.dtype))};
  Generated out = generate_mask(step, logits, masked);
  add_draw(step, out, masked, type, tokens);
  add_advance(step, out, ids, positions, tokens);
  return out;
}

}  // namespace

Generated generate_masked(const StepGraph& step, NodeId ids, NodeId logits,
                          std::int64_t positions) {
  return masked(step, ids, logits, positions, 0);
}

Generated generate_masked_rows(const StepGraph& step, NodeId ids, NodeId logits,
                               std::int64_t positions) {
  const Generated one = masked(step, ids, logits, positions, 1);
  std::optional<Generated> rows = for_rows(one, kMostRowsAtOnce, {0, one.launches.size() - 1});
  AC_ASSERT(rows);
  return *std::move(rows);
}

}  // namespace ac
