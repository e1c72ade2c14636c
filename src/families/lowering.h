// What families make launches with: they fill in the parameter struct and say the shape of the
// grid.
#pragma once

#include <algorithm>

#include "families/body.h"
#include "generate/params.h"
#include "generate/source.h"

namespace ac {

struct Lowering {
  const StepGraph& step;
  const Setting& setting;

  const Node& operator[](NodeId id) const { return step.graph[id]; }
  const Shape& shape(NodeId id) const { return step.graph.type(id).shape; }
  // Distances are those between two tokens: they depend on no number of tokens.
  Body body() const {
    static const Region none;
    return Body(step, none, {.T = 2, .P = 0});
  }
  // Elements from row to row of a value whose rows lie at equal distances.
  std::int64_t pitch(NodeId value) const { return *body().row_pitch(value); }

  // units / per blocks, bounded by what is resident if the grid is persistent.
  Count blocks(const Dim& units, std::int64_t per, bool persistent, int blocks_per_sm) const {
    Count count = count_of(units);
    count.per = per;
    if (persistent)
      count.at_most = static_cast<std::int64_t>(setting.multiprocessors) * blocks_per_sm;
    return count;
  }
};

inline Dim rows_of(const Shape& shape) {
  return shape.empty() ? Dim(1) : product({shape.begin(), shape.end() - 1});
}
inline int number(const Dim& dim) { return static_cast<int>(dim.constant()); }

// A kernel, and one launch of it: what `of` is given becomes its parameters.
template <class Params>
class KernelOf : public ParamsOf<Params> {
 public:
  template <class Op, class Plan>
  KernelOf(const Lowering& to, Generated& out, std::string_view family, const Op& op,
           const Plan& plan, const std::string& functor = {})
      : ParamsOf<Params>(to.step, out), out_(out) {
    out.sources.push_back(source_of(family, op, plan, functor));
    entry_ = out.sources.back().entry;
  }

  void launch(const std::array<Count, 3>& grid, int threads, int shared_bytes) {
    Launch& launch = out_.launches.emplace_back(this->finish());
    launch.kernel = entry_;
    launch.grid = grid;
    launch.threads = threads;
    launch.shared_bytes = shared_bytes;
  }

 private:
  Generated& out_;
  std::string entry_;
};

inline Buffer workspace(const Count& bytes) { return {.bytes = bytes}; }
inline Buffer counters(const Count& bytes) {
  return {.role = Buffer::Role::counters, .bytes = bytes};
}
inline Count scaled(Count count, std::int64_t factor) {
  count.times *= factor;
  return count;
}

}  // namespace ac
