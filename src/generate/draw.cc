// The launches of a package that draw a token.
#include <fmt/format.h>

#include <array>

#include "generate/endings.h"
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

template <class Logits>
void add_passes(const StepGraph& step, Generated& out, const Logits& logits, const TensorType& type,
                const Dim& tokens) {
  const auto vocab = static_cast<int>(type.shape.back().constant());
  constexpr DrawPlan plan{};
  const int grid = plan.grid(vocab);
  const Buffer memory{.bytes = kStateBytes + 8 * grid};
  const Buffer counters{.role = Buffer::Role::counters, .bytes = draw_bins_bytes + 4};
  for (const char* pass : kPasses) {
    out.sources.push_back(instantiate(
        "draw", "DrawOp", fmt::format("{{{}, DrawPass::{}}}", logits_type(type.dtype), pass),
        "DrawPlan", fmt::format("{{{}}}", plan.threads)));
    ParamsOf<DrawParams> of(step, out);
    of.point(of.params.logits, logits);
    of.params.vocab = vocab;
    of.count(of.params.tokens, tokens);
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
}

}  // namespace

const char* logits_type(DType dtype) {
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

void add_draw(const StepGraph& step, Generated& out, NodeId logits, const TensorType& type,
              const Dim& tokens) {
  add_passes(step, out, logits, type, tokens);
}
void add_draw(const StepGraph& step, Generated& out, const Buffer& logits, const TensorType& type,
              const Dim& tokens) {
  add_passes(step, out, logits, type, tokens);
}

Generated generate_draw(const StepGraph& step, NodeId ids, NodeId logits) {
  Generated out;
  add_draw(step, out, logits, step.graph.type(logits), product(step.graph.type(ids).shape));
  return out;
}

}  // namespace ac
