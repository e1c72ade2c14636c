// The decoders that the benchmarks measure.
#pragma once

namespace ac::bench {

struct Model {
  const char* name;
  int hidden, layers, heads, kv_heads, head_dim, intermediate, vocabulary;
};
inline const Model models[] = {
    {"Llama-3.2-1B", 2048, 16, 32, 8, 64, 8192, 128256},
    {"Qwen3-1.7B", 2048, 28, 16, 8, 128, 6144, 151936},
    {"Qwen3-4B", 2560, 36, 32, 8, 128, 9728, 151936},
};

}  // namespace ac::bench
