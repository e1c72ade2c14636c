// Steps of several sequences, as they are chosen: what shares weights, what each row runs by
// itself, and that the whole gives each sequence the bits that it has alone.
#include <doctest/doctest.h>

#include <algorithm>

#include "capture/native.h"
#include "compile/compile.h"
#include "lab/check_steps.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/long_run.h"
#include "tests/unit/small_compilation.h"

using namespace ac;
using namespace ac::test;

namespace {

struct Fixture : FreshBuilder {
  Progress quiet{true};
  Stages stages{quiet};
  Model model;
  CompileOptions options;

  explicit Fixture(const char* dtype) {
    const Json config{{"architectures", {"Qwen3ForCausalLM"}},
                      {"model_type", "qwen3"},
                      {"hidden_size", 64},
                      {"intermediate_size", 96},
                      {"num_hidden_layers", 2},
                      {"num_attention_heads", 4},
                      {"num_key_value_heads", 2},
                      {"head_dim", 16},
                      {"vocab_size", 60},
                      {"rope_theta", 1000000},
                      {"torch_dtype", dtype}};
    model.graph = build_decoder(parse_config(config, "config.json"), "small");
    model.stores = {{"checkpoint", folder.path() / "none"}};  // the check takes random weights
    options.device = device_info("host");
    options.here = false;  // the first candidate that is admitted is taken, slow as it may be here
    options.max_context = 64, options.chunk = 8, options.short_prompt = 0;
    options.tries = 1, options.slots = 4;
    options.cache = folder.path() / "cache";
  }

  Compiled compiled() { return compile(model, options, builder, stages); }
};

bool is_product(const std::string& note) {
  return note.starts_with("gemv/") || note.starts_with("mma_gemv/");
}

void check_together(const char* dtype) {
  CAPTURE(dtype);
  Fixture f(dtype);
  const Compiled compiled = f.compiled();
  const Program& program = compiled.program;
  CHECK(program.longest_step(Rows::each) == 4);
  CHECK(program.phase_of(1, 0, Rows::each).name == "together 2");
  CHECK(program.phase_of(2, 0, Rows::each).name == "together 2");
  CHECK(program.phase_of(3, 0, Rows::each).name == "together 4");
  for (const std::int64_t rows : {2, 4}) {
    const Phase& phase = program.phase_of(rows, 0, Rows::each);
    const Phase& decode = program.phase_of(1, 0);
    int products = 0, of_decode = 0;
    for (std::size_t i = 0; i < phase.launches.size(); ++i) {
      CAPTURE(phase.notes[i]);
      CHECK(phase.launches[i].each_row != is_product(phase.notes[i]));
      CHECK((phase.launches[i].rows > 1) == phase.launches[i].each_row);
      products += is_product(phase.notes[i]);
    }
    for (const std::string& note : decode.notes) of_decode += is_product(note);
    CHECK(products == of_decode);
    CHECK(products >= 5);  // of a layer: q, k and v, o, gate and up, down; and the head
  }
  // Products were held to the bits of one token, and what runs for each row was one of several.
  for (const CompiledPhase& phase : compiled.phases)
    if (phase.spec.rows == Rows::each) {
      std::size_t alone = 0, rows = 0;
      for (const Selection& selection : phase.selections) {
        alone += selection.trials.at(0).contains("alone");
        rows += selection.trials.at(0).contains("rows");
      }
      CHECK(alone >= 5);
      CHECK(rows >= 2);  // attention and embedding
      CHECK(alone + rows == phase.selections.size());
    }
  CHECK(compiled.check.done);
  CHECK(compiled.check.ok());
  CHECK(program_from_json(to_json(program), "it") == program);
  // The check runs as many sequences as steps may have.
  const CheckSteps steps = check_steps(program, [](const CheckStep&) { return 1.; }, 1000);
  std::vector<std::int64_t> sequences;
  for (const CheckStep& step : steps.steps)
    if (step.kind == CheckStep::Kind::together) sequences.push_back(step.tokens);
  CHECK(sequences == std::vector<std::int64_t>{2, 4});
}

}  // namespace

TEST_CASE("together: products read weights once, all else runs for each row") {
  check_together("bfloat16");
}

// Python tests compile float32 for several sequences in every run (test_slots.py).
TEST_CASE("together: products read weights once, all else runs for each row, in float32" *
          doctest::skip(!is_long_run())) {
  check_together("float32");
}

TEST_CASE("together: more sequences than a step has tokens are refused") {
  Fixture f("float32");
  f.options.slots = 9;
  CHECK_THROWS_WITH_AS(f.compiled(), doctest::Contains("--slots 9"), Error);
}
