// What `bench` and `report` time of a package, each measurement as a JSON object and as a line for
// people.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/engine.h"

namespace ac {

struct Measurement {
  Json figures;
  std::string text;
};

// A request end to end: tokens of the prompt, and tokens that are generated.
struct Workload {
  std::int64_t input = 0, output = 0;

  std::string name() const { return fmt::format("i{}/o{}", input, output); }
  std::int64_t tokens() const { return input + output; }
};

class EngineBench {
 public:
  // What `more` has is said of every measurement, behind the model.
  EngineBench(const EngineArguments& arguments, const std::string& package, Json more);

  Engine& engine() const { return *opened_.engine; }
  const Program& program() const { return opened_.engine->program(); }

  // As `run` does it: the prompt, then token by token until all have been handed over.
  Measurement request(const Workload& workload, int repeats, int warm_ups) const;
  Measurement prefill(std::int64_t tokens) const;
  Measurement decode(std::int64_t context, std::int64_t new_tokens) const;
  // So many steps of as many sequences as the engine was opened for, each after `context` tokens.
  Measurement together(std::int64_t context, std::int64_t steps) const;
  // Each kind of launch, of the last chunk of a prompt or of a decode step.
  std::vector<Measurement> prefill_kernels(std::int64_t tokens) const;
  std::vector<Measurement> decode_kernels(std::int64_t context) const;
  // Each launch of a decode step, in their order, with its parts where it says when they are done.
  std::vector<Measurement> timeline(std::int64_t context) const;

 private:
  Measurement measured(Json figures, const std::string& text) const;
  double streaming_limit() const;
  std::vector<std::int64_t> random_ids(std::int64_t tokens) const;
  void pretend(Engine& engine, std::int64_t context) const;
  std::vector<Measurement> kernels(const char* phase, const Phase& of_phase, std::int64_t tokens,
                                   std::int64_t context) const;

  const std::string package_;
  const Json more_;
  const EngineArguments::Opened opened_;
  const std::int64_t sequences_;
  std::filesystem::path measuring_;
};

}  // namespace ac
