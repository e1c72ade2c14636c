// The options of `generate`, `chat` and `serve` that say how tokens are chosen. What they leave
// open, the model's generation_config.json decides.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "ask/choosing.h"
#include "text/generation_config.h"

namespace ac {

struct SamplingFlags : Wishes {
  std::vector<std::string> stop;

  void add_to(CLI::App& command, const std::string& default_tokens);
  // That they go together, before anything is loaded.
  void check() const;
  // `origin` names the model's file in errors.
  Choosing with(const text::GenerationConfig& config, const std::string& origin) const;
};

}  // namespace ac
