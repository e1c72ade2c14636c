// The options of commands that keep what was run of prompts.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "prefix/prefix_cache.h"

namespace ac {

struct CacheArguments {
  std::size_t memory = 0, disk = 0;   // bytes
  std::optional<std::size_t> device;  // else what suits it
  std::string folder;
  std::int64_t step = 0;

  // With their defaults; without, nothing is kept.
  void add_to(CLI::App& command);
  void check() const;
  bool is_on() const { return memory > 0 || device.value_or(0) > 0; }
  PrefixOptions options() const;
  std::vector<std::string> command() const;  // the same, for another process
};

}  // namespace ac
