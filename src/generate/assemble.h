// Puts the implementations of a step's parts together into a phase of a program.
#pragma once

#include <map>

#include "generate/generate.h"
#include "program/program.h"

namespace ac {

struct Implemented {
  Generated made;    // over the nodes of the step
  std::string note;  // "gemv/R256x1x8/768 at model.layers.0.mlp"
  // It was generated for a step of one token, whose graph has the same nodes, and runs once for
  // each row.
  bool each_row = false;
};

class Assembler {
 public:
  explicit Assembler(Program& program) : program_(program) {}

  // `phase` with what runs its steps. Of steps of several sequences, the step gives all logits.
  Phase phase(const StepGraph& step, Phase phase, const std::vector<Implemented>& parts,
              const Generated& draw, const Generated& masked);

  const std::vector<std::byte>& constants() const { return constants_; }

 private:
  // The program's buffer for one of a step.
  std::int32_t place(const StepGraph& step, Buffer buffer, std::map<NodeId, std::int32_t>& values,
                     std::int64_t max_tokens, bool each_row = false);
  // Of an implementation, with buffers of the program.
  std::vector<Launch> launches(const StepGraph& step, const Generated& made,
                               std::map<NodeId, std::int32_t>& values, std::int64_t max_tokens,
                               bool each_row = false);
  std::int32_t value(const StepGraph& step, NodeId id, std::map<NodeId, std::int32_t>& values);
  std::int32_t constant(const StepGraph& step, Buffer buffer);
  // The buffer of this name, made if there is none.
  std::int32_t shared(const std::string& key, const Buffer& buffer);
  std::int32_t add(Buffer buffer);

  Program& program_;
  std::map<std::string, std::int32_t> shared_;
  std::vector<std::byte> constants_;
};

}  // namespace ac
