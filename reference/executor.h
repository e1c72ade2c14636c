// Runs a whole graph with the evaluators of ops.h: the truth that everything else is held to.
// Weights are converted while they are used, threads share the heavy ops, and an intermediate is
// freed after its last use, so that a model of 100 million parameters runs at a usable speed.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ir/graph.h"
#include "ir/step_graph.h"
#include "ir/weights.h"
#include "reference/value.h"

namespace ac {

// Every symbol that the graph uses must be bound. With P bound, positions start there. `inputs` has
// every input of the graph and nothing else. What does not fit (an input's shape, a weight's shape,
// an id outside its table) is an error (bad_input) naming it.
Values evaluate(const Graph& graph, const Bindings& bindings, const Values& inputs,
                const WeightLookup& weights, int threads = 1,
                Arithmetic arithmetic = Arithmetic::exact);

// Runs a step again and again, keeping the states of all tokens so far. Nodes that depend
// on no input and no symbol are evaluated once, here.
class StepExecutor {
 public:
  StepExecutor(StepGraph step, const WeightLookup& weights, int threads = 1,
               Arithmetic arithmetic = Arithmetic::exact);
  ~StepExecutor();
  StepExecutor(StepExecutor&&) noexcept;
  StepExecutor& operator=(StepExecutor&&) noexcept;

  // Runs `tokens` new tokens and returns the outputs. After an error, the state is as before.
  // `appended`: of each state, what these tokens are to have left of codes and scales (rounding may
  // go either way, where a number is near a border between two codes).
  Values step(std::int64_t tokens, const Values& inputs,
              const std::vector<StateData>* appended = nullptr);
  // The same for a graph whose one input is "ids".
  Values step(const std::vector<std::int64_t>& ids);

  std::int64_t position() const;       // how many tokens are cached
  void truncate(std::int64_t tokens);  // forgets all but the first `tokens`
  void reset() { truncate(0); }
  // As if `position` tokens had been run that left these states.
  void prime(std::int64_t position, std::vector<StateData> states);
  const StateData& state(std::size_t index) const;
  // In all steps so far.
  const ScoresSeen& scores_seen() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ac
