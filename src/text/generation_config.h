// How a model's makers want its tokens to be chosen: generation_config.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ac::text {

// What the file does not say is not set.
struct GenerationConfig {
  bool draws = false;  // do_sample: tokens are drawn, and not the likeliest taken
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<std::int64_t> top_k, max_new_tokens;
  // The names of settings that change what transformers generates, and that are unknown here.
  std::vector<std::string> unknown;
};

// Of the folder's file; without one, nothing is set. A value of the wrong type is an error
// (bad_input).
GenerationConfig read_generation_config(const std::filesystem::path& folder);

}  // namespace ac::text
