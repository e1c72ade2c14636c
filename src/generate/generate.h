// From a candidate to what can be built and launched: kernel source, which is an include, perhaps a
// functor and an instantiation, and the launches that compute a region with it.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "build/compile.h"
#include "ir/step_graph.h"
#include "plan/operands.h"
#include "plan/task.h"
#include "program/launch.h"

namespace ac {

// What a launch's pointers refer to.
struct Storage {
  enum class Kind : std::uint8_t {
    value,  // what the node `node` leaves in memory; never a view
    keys,
    values,      // of the cache `cache`: [heads, capacity, size], a token at position % capacity
    position,    // i32[1]: tokens before these
    token,       // i32[1]: the token that was chosen
    log,         // i32[context + 1]: the token at each position, as far as steps chose it
    workspace,   // `bytes` of scratch
    counters,    // `bytes` that are 0 before the first launch, and after every one
    settings,    // of a request that draws its tokens (kernels/draw_plan.h)
    rope_table,  // f32[positions, rotary / 2, 2]: cosine and sine of position * inv_freq, * scale
  };
  Kind kind = Kind::value;
  NodeId node = -1;  // of rope_table: inv_freq
  std::int64_t cache = -1;
  Count bytes = {};
  double scale = 1;  // of rope_table
  bool operator==(const Storage&) const = default;
};

Json to_json(const Storage& storage);
Storage storage_from_json(const Json& json, const std::string& origin);

// One implementation of a region.
struct Generated {
  std::vector<KernelSource> sources;  // each once
  std::vector<Storage> storages;      // what Launch::Pointer::buffer counts; each once
  std::vector<Launch> launches;       // one after the other

  int refer(const Storage& storage);
};

// What the sizes of a launch depend on, besides the step.
struct Setting {
  int multiprocessors = 1;          // of the device that the launch is for
  std::vector<std::int64_t> slots;  // of each cache of the step
};

// `operands`: as matched in the very region that the launches are to compute; its candidates may
// have been planned for an equal one.
Generated generate(const StepGraph& step, const Choice& choice, const Operands& operands,
                   const Setting& setting);
// What ends a step over the input `ids` (kernels/advance_plan.h), with a log of so many positions.
Generated generate_advance(const StepGraph& step, NodeId ids, std::int64_t positions);
// Of the sampling kernel, over logits that a step has left.
Generated generate_sampling(const StepGraph& step, const Implementation<SamplingTask>& sampling,
                            NodeId logits, const Setting& setting);
// Of the kernels that draw a token from logits that a step over `ids` has left, after the greedy
// choice.
Generated generate_draw(const StepGraph& step, NodeId ids, NodeId logits);

}  // namespace ac
