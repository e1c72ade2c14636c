// The subject that a fragment of a StepGraph is: truth and plain implementation are the reference
// executor's, run on the fragment itself. Only the launch is left for whoever has a kernel.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ir/step_graph.h"
#include "validate/subject.h"

namespace ac::validate {

struct GraphSubjectOptions {
  std::int64_t tokens = 1;
  // Slots of each state; one with a window may have fewer than the largest position, but not fewer
  // than its window.
  std::int64_t capacity = 256;
  // Cached tokens before the new ones: the cases that deserve a run of their own.
  std::vector<std::int64_t> positions = {};
  // Inputs of integers (ids) lie in [0, limit).
  std::map<std::string, std::int64_t> limits = {};
  // Outputs that overwrite an input: by the output's name, the input's. Their tensor is a state
  // that has the input's name.
  std::map<std::string, std::string> in_place = {};
  bool rounds_weights = false;  // as the plain implementation does, to their dtype
};

// Tensors, in this order: the graph's inputs, its weights (by key; each once), `position` (i32 [1],
// if the graph depends on P or has states), the tensors of each state (`state0.keys`, [rows,
// capacity, size], a token at its position % capacity), the graph's outputs. A graph that is no
// legal fragment, or options that do not fit it, are errors.
Subject subject_of(const StepGraph& step, const GraphSubjectOptions& options = {});

std::string name_of_state(std::int64_t index, const StateTensor& tensor);

// Where a tensor is in `subject.tensors`. Asserts that it is there.
std::size_t index_of(const Subject& subject, const std::string& name);

}  // namespace ac::validate
