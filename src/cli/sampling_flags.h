// The options of `generate` and `chat` that say how tokens are chosen. What they leave open, the
// model's generation_config.json decides.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "program/penalties.h"
#include "program/sampling.h"
#include "text/generation_config.h"

namespace ac {

struct Choosing {
  Sampling sampling;
  Penalties penalties;
  std::optional<std::int64_t> max_new_tokens;  // not set: as many as there is room for
};

struct SamplingFlags {
  std::optional<double> temperature, top_p, min_p, repeat_penalty, presence_penalty;
  std::optional<std::int64_t> top_k, max_new_tokens;
  std::optional<std::uint64_t> seed;
  std::vector<std::string> stop;

  void add_to(CLI::App& command, const std::string& default_tokens);
  // That they go together, before anything is loaded.
  void check() const;
  // `origin` names the model's file in errors. A seed that nobody has given is a random one.
  Choosing with(const text::GenerationConfig& config, const std::string& origin) const;
};

}  // namespace ac
