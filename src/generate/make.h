// What families' launches are made with: a make() for each, which fills in the parameter struct and
// says the shape of the grid.
#pragma once

#include <algorithm>

#include "generate/generate.h"
#include "generate/params.h"
#include "generate/source.h"
#include "plan/body.h"
#include "plan/space.h"

namespace ac {

struct MakeContext {
  const StepGraph& step;
  const Choice& choice;
  const Setting& setting;

  const Node& operator[](NodeId id) const { return step.graph[id]; }
  const Shape& shape(NodeId id) const { return step.graph.type(id).shape; }
  // Distances are those between two tokens: they depend on no number of tokens.
  Body body() const {
    static const Region none;
    return Body(step, none, {.T = 2, .P = 0});
  }
};

// rows * each / per, bounded by what is resident if the grid is persistent.
inline Count work(const Dim& units, std::int64_t per, bool persistent, int blocks_per_sm,
                  const Setting& setting) {
  Count count = count_of(units);
  count.per = per;
  if (persistent)
    count.at_most = static_cast<std::int64_t>(setting.multiprocessors) * blocks_per_sm;
  return count;
}

inline Dim rows_of(const Shape& shape) {
  return shape.empty() ? Dim(1) : product({shape.begin(), shape.end() - 1});
}
inline int number(const Dim& dim) { return static_cast<int>(dim.constant()); }

// Elements from row to row of a value whose rows lie at equal distances.
inline std::int64_t pitch_of(const MakeContext& c, NodeId value) {
  return *c.body().row_pitch(value);
}

inline Launch shaped(Launch launch, const KernelSource& source, std::array<Count, 3> grid,
                     int threads, int shared_bytes) {
  launch.kernel = source.entry;
  launch.grid = grid;
  launch.threads = threads;
  launch.shared_bytes = shared_bytes;
  return launch;
}

inline Buffer workspace(const Count& bytes) { return {.bytes = bytes}; }
inline Buffer counters(const Count& bytes) {
  return {.role = Buffer::Role::counters, .bytes = bytes};
}
inline Count scaled(Count count, std::int64_t factor) {
  count.times *= factor;
  return count;
}

// Of what goes row by row (rows.cc).
Generated make(const MakeContext& c, const Implementation<NormTask>& made, const NormOperands& o);
Generated make(const MakeContext& c, const Implementation<SoftmaxTask>& made,
               const SoftmaxOperands& o);
Generated make(const MakeContext& c, const Implementation<ReductionTask>& made,
               const ReductionOperands& o);
Generated make(const MakeContext& c, const Implementation<ElementwiseTask>& made,
               const ElementwiseOperands& o);
Generated make(const MakeContext& c, const Implementation<EmbeddingTask>& made,
               const EmbeddingOperands& o);

}  // namespace ac
