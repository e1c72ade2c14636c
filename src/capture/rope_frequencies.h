// The inverse frequencies of rotary position embeddings and the factor on their cosines and sines,
// as transformers computes them (modeling_rope_utils.py): step by step in float32, because a model
// was trained with those very values.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace ac {

enum class RopeType : std::uint8_t { plain, linear, llama3, yarn };

struct RopeConfig {
  RopeType type = RopeType::plain;
  double theta = 10000;
  double factor = 1;              // linear, llama3, yarn
  std::int64_t original_max = 0;  // llama3, yarn: positions that the model was first trained on
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn, and all below
  std::optional<double> attention_factor;
  double mscale = 0, mscale_all_dim = 0;  // 0: not given
  bool truncate = true;
  std::vector<float> divisors = {};  // of the frequencies that all this gives; empty: of none
};

struct RopeFrequencies {
  std::vector<float> inverse;  // [head_dim / 2]
  double scale;                // of cosines and sines
};

RopeFrequencies rope_frequencies(const RopeConfig& config, std::int64_t head_dim);

}  // namespace ac
