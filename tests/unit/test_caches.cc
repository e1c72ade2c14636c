// How many tokens caches hold: the same wherever kernels are chosen.
#include "compile/caches.h"

#include <doctest/doctest.h>

#include "base/files.h"
#include "capture/native.h"
#include "ir/incrementalise.h"
#include "ir/normalise.h"
#include "small_compilation.h"
#include "study/workshop.h"

using namespace ac;

TEST_CASE(
    "caches: a window's is a ring with room for a chunk more, and no larger than the context") {
  StepGraph step;
  step.caches = {
      {.dtype = DType::f32, .heads = 2, .key_size = 4, .value_size = 8, .window = 16, .module = ""},
      {.dtype = DType::f16, .heads = 1, .key_size = 4, .value_size = 4, .window = 0, .module = ""}};
  const std::vector<CacheSpec> specs = cache_specs(step, 100, 32);
  REQUIRE(specs.size() == 2);
  CHECK(specs[0] == CacheSpec{DType::f32, 2, 4, 8, 16, 16 + 32 - 1});
  CHECK(specs[1] == CacheSpec{DType::f16, 1, 4, 4, 0, 100});
  CHECK(cache_specs(step, 40, 32)[0].slots == 40);
}

TEST_CASE("caches: regions are tuned with caches as large as a package's") {
  test::FreshBuilder f;
  const Json config{{"architectures", {"MistralForCausalLM"}},
                    {"model_type", "mistral"},
                    {"hidden_size", 32},
                    {"intermediate_size", 32},
                    {"num_hidden_layers", 1},
                    {"num_attention_heads", 2},
                    {"num_key_value_heads", 1},
                    {"vocab_size", 64},
                    {"sliding_window", 16},
                    {"max_position_embeddings", 8192},
                    {"rms_norm_eps", 1e-5},
                    {"hidden_act", "silu"},
                    {"rope_theta", 10000.0},
                    {"tie_word_embeddings", false},
                    {"torch_dtype", "float32"}};
  write_file(f.folder.path() / "config.json", config.dump());
  const Model model = capture_native(f.folder.path());
  study::WorkshopOptions options;
  options.device = device_info("host");
  options.cache = f.folder.path();
  const study::Workshop workshop(model, options, f.builder);
  const StepGraph step = incrementalise(normalise(model.graph));
  CHECK(workshop.caches() == cache_specs(step, 4096, default_chunk(options.device)));
  CHECK(workshop.caches().at(0).slots == 16 + 128 - 1);
}
