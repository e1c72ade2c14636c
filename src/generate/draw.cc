// The launches of a package that draw a token.
#include <fmt/format.h>

#include <array>

#include "generate/generate.h"
#include "generate/params.h"
#include "generate/source.h"
#include "kernels/draw_plan.h"

namespace ac {
namespace {

using namespace kernels;

constexpr std::array<const char*, draw_passes> kPasses = {"coarse", "top_k", "top_p", "choose"};
// The state of all passes and what blocks leave to one another, in one piece of memory each.
constexpr std::int64_t kStateBytes = 64;
static_assert(sizeof(DrawState) <= kStateBytes);

const char* type_text(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "Type::f32";
    case DType::f16:
      return "Type::f16";
    case DType::bf16:
      return "Type::bf16";
    default:
      bad_input("logits of the type {}: tokens can be drawn from f32, f16 and bf16 only",
                short_name(dtype));
  }
}

}  // namespace

Generated generate_draw(const StepGraph& step, NodeId ids, NodeId logits) {
  const TensorType& type = step.graph.type(logits);
  const auto vocab = static_cast<int>(type.shape.back().constant());
  constexpr DrawPlan plan{};
  const int grid = plan.grid(vocab);
  const Buffer memory{.bytes = kStateBytes + 8 * grid};
  const Buffer counters{.role = Buffer::Role::counters, .bytes = draw_bins_bytes + 4};
  Generated out;
  for (const char* pass : kPasses) {
    out.sources.push_back(instantiate(
        "draw", "DrawOp", fmt::format("{{{}, DrawPass::{}}}", type_text(type.dtype), pass),
        "DrawPlan", fmt::format("{{{}}}", plan.threads)));
    ParamsOf<DrawParams> of(step, out);
    of.point(of.params.logits, logits);
    of.params.vocab = vocab;
    of.count(of.params.tokens, product(step.graph.type(ids).shape));
    of.point(of.params.position, {.role = Buffer::Role::position});
    of.point(of.params.settings, {.role = Buffer::Role::settings});
    of.point(of.params.bins, counters);
    of.point(of.params.finished_blocks, counters, draw_bins_bytes);
    of.point(of.params.state, memory);
    of.point(of.params.block_best, memory, kStateBytes);
    of.point(of.params.token, {.role = Buffer::Role::token});
    Launch launch = of.finish();
    launch.kernel = out.sources.back().entry;
    launch.grid = {grid, 1, 1};
    launch.threads = plan.threads;
    out.launches.push_back(std::move(launch));
  }
  return out;
}

}  // namespace ac
