// States: how many tokens they hold, what is kept of them, how far back they go; and that regions
// are tuned with states as large as a package's.
#include "compile/states.h"

#include <doctest/doctest.h>

#include <limits>

#include "base/files.h"
#include "capture/native.h"
#include "ir/incrementalise.h"
#include "ir/normalise.h"
#include "small_compilation.h"
#include "tune/workshop.h"

using namespace ac;

TEST_CASE(
    "states: a window's is a ring with room for a chunk more, and no larger than the context") {
  StepGraph step;
  step.states = {kv_state(DType::f32, 2, 4, 8, 16, "layer"), kv_state(DType::f16, 1, 4, 4, 0)};
  const std::vector<StateSpec> specs = sized_states(step, 100, 32);
  REQUIRE(specs.size() == 2);
  CHECK(specs[0] == kv_state(DType::f32, 2, 4, 8, 16, "", 16 + 32 - 1));
  CHECK(specs[1] == kv_state(DType::f16, 1, 4, 4, 0, "", 100));
  CHECK(sized_states(step, 40, 32)[0].slots == 40);
}

TEST_CASE("states: memory") {
  const StateSpec state = kv_state(DType::f16, 2, 4, 8, 0, "", 10);
  CHECK(why_impossible(state) == nullptr);
  CHECK(elements_of_token(state) == 2 * (4 + 8));
  CHECK(bytes_of(state, kKeys) == 2 * 10 * 4 * 2);
  CHECK(bytes_of(state, kValues) == 2 * 10 * 8 * 2);
  CHECK(element_at(state.tensors[kValues], 10, 1, 23) == (10 + 3) * 8);
  StateSpec other = state;
  other.tensors.pop_back();
  CHECK(why_impossible(other) != nullptr);
  other = state, other.tensors[kKeys].rows = 3;
  CHECK(why_impossible(other) != nullptr);
  other = state, other.tensors[kKeys].size = 0;
  CHECK(why_impossible(other) != nullptr);
}

// What each says is held to a ring that is written token by token.
TEST_CASE("states: what a ring holds, and how far back it goes") {
  for (const std::int64_t window : {0, 3, 5})
    for (const std::int64_t slots : {5, 8, 20}) {
      const StateSpec state = kv_state(DType::f32, 1, 1, 1, window, "", slots);
      for (std::int64_t reached = 0; reached <= 20; ++reached) {
        if (window == 0 && reached > slots) continue;
        std::vector<std::int64_t> ring(static_cast<std::size_t>(slots), -1);
        for (std::int64_t token = 0; token < reached; ++token)
          ring[static_cast<std::size_t>(token % slots)] = token;
        for (std::int64_t tokens = 0; tokens <= reached; ++tokens) {
          bool is_there = true;
          const std::int64_t first =
              window > 0 ? std::max<std::int64_t>(tokens - window + 1, 0) : 0;
          for (std::int64_t token = first; token < tokens; ++token)
            is_there &= ring[static_cast<std::size_t>(token % slots)] == token;
          CAPTURE(window);
          CAPTURE(slots);
          CAPTURE(reached);
          CAPTURE(tokens);
          CHECK(can_rewind(state, tokens, reached) == is_there);
          // A piece from there on lies where its slots are said to be, in the order of its tokens.
          is_there = true;
          for (std::int64_t token = tokens; token < reached; ++token)
            is_there &= ring[static_cast<std::size_t>(token % slots)] == token;
          if (tokens < reached) CHECK(holds(state, tokens, reached) == is_there);
          if (is_there) {
            std::vector<std::int64_t> piece, wanted;
            for (const SlotRun& run : slots_of(state, tokens, reached))
              for (std::int64_t slot = run.first; slot < run.first + run.count; ++slot)
                piece.push_back(ring[static_cast<std::size_t>(slot)]);
            for (std::int64_t token = tokens; token < reached; ++token) wanted.push_back(token);
            CHECK(piece == wanted);
          }
          if (reached - tokens <= slack(state, 1000)) CHECK(can_rewind(state, tokens, reached));
        }
        CHECK(can_rewind(state, reached, reached));
      }
    }
  CHECK(slack(kv_state(DType::f32, 1, 1, 1, 3, "", 8), 20) == 5);
  CHECK(slack(kv_state(DType::f32, 1, 1, 1, 0, "", 20), 20) == 20);
  CHECK(slots_touched(kv_state(DType::f32, 1, 1, 1, 3, "", 8), 30, 2) == 4);
  CHECK(slots_touched(kv_state(DType::f32, 1, 1, 1, 0, "", 40), 30, 2) == 32);
  const StateSpec endless =
      kv_state(DType::f32, 1, 1, 1, std::numeric_limits<std::int64_t>::max(), "", 40);
  CHECK(slots_for(endless, 40, 8) == 40);
  CHECK(slots_touched(endless, 30, 2) == 32);
  CHECK(can_hold(kv_state(DType::f32, 1, 1, 1, 3), 4, 100, 1));
  CHECK(!can_hold(kv_state(DType::f32, 1, 1, 1, 0), 4, 4, 1));
}

TEST_CASE("states: regions are tuned with states as large as a package's") {
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
  tune::WorkshopOptions options;
  options.device = device_info("host");
  options.cache = f.folder.path();
  const tune::Workshop workshop(model, options, f.builder);
  const StepGraph step = incrementalise(normalise(model.graph));
  CHECK(workshop.states() == sized_states(step, 4096, default_chunk(options.device)));
  CHECK(workshop.states().at(0).slots == 16 + 128 - 1);
}
TEST_CASE("states: keys and values as codes of FP8") {
  const StateSpec state = kv_state(DType::bf16, 2, 64, 32, 0, "", 10, KvStorage::fp8);
  CHECK(why_impossible(state) == nullptr);
  CHECK(storage_of(state) == KvStorage::fp8);
  CHECK(storage_of(kv_state(DType::bf16, 2, 64, 32, 0)) == KvStorage::elements);
  CHECK(to_string(state) == "bf16 heads=2 key=64 value=32 window=0 fp8");
  CHECK(bytes_of(state, kKeys) == 2 * 10 * 64);
  CHECK(bytes_of(state, kValueScales) == 2 * 10 * 4);
  CHECK(bytes_of_token(state) == 2 * (64 + 32) + 2 * 2 * 4);
  CHECK(bytes_of_token(kv_state(DType::bf16, 2, 64, 32, 0)) == 2 * (64 + 32) * 2);
  CHECK(part_of(state, kValues) == WeightPart::Kind::codes);
  CHECK(part_of(state, kKeyScales) == WeightPart::Kind::scales);
  CHECK(!may_be_huge(state, kValues));
  const auto refused = [&](const auto& change) {
    StateSpec other = state;
    change(other);
    CHECK(why_impossible(other) != nullptr);
  };
  refused([](StateSpec& s) { s.tensors.pop_back(); });
  refused([](StateSpec& s) { s.tensors[kKeyScales].rows = 3; });
  refused([](StateSpec& s) { s.tensors[kKeyScales].size = 2; });
  refused([](StateSpec& s) { s.tensors[kValueScales].dtype = DType::bf16; });
  refused([](StateSpec& s) { s.tensors[kValues].dtype = DType::bf16; });
  refused([](StateSpec& s) { std::swap(s.tensors[kKeyScales], s.tensors[kValueScales]); });
}
