// Missing barriers are found exactly, whatever the order in which threads ran; and no kernel family
// has one.
#include <functional>
#include <vector>

#include "kernels/shim/race_check.h"
#include "tests/race/race_kernels.h"
#include "tests/unit/attention_case.h"
#include "tests/unit/draw_case.h"
#include "tests/unit/gemm_case.h"
#include "tests/unit/gemv_case.h"
#include "tests/unit/layers_case.h"
#include "tests/unit/prefill_attention_case.h"
#include "tests/unit/rope_append_case.h"
#include "tests/unit/rows_case.h"
#include "tests/unit/sampling_case.h"

extern "C" {
void* __tsan_memcpy(void* to, const void* from, unsigned long bytes);
void* __tsan_memmove(void* to, const void* from, unsigned long bytes);
void* __tsan_memset(void* to, int value, unsigned long bytes);
}

namespace ac::kernels {
namespace {

std::string run(void (*kernel)(const float*, float*, Fault), unsigned threads, Fault fault,
                Schedule schedule = Schedule::forward) {
  alignas(16) static float in[128];
  float out[128];
  const HostLaunch launch{.name = "planted",
                          .block = {threads},
                          .shared_bytes = 128 * 4,
                          .schedule = schedule,
                          .check_races = true};
  return host_launch(launch, kernel, in, out, fault).error;
}

TEST_CASE("race: a planted missing barrier is found in every schedule") {
  for (Schedule schedule : {Schedule::forward, Schedule::reverse, Schedule::shuffled}) {
    CHECK(run(sum_neighbours, 64, Fault::none, schedule) == "");
    std::string error = run(sum_neighbours, 64, Fault::missing_barrier, schedule);
    CHECK(error.find("race: kernel planted") == 0);
    error = run(sum_neighbours, 64, Fault::write_after_read, schedule);
    CHECK(error.find("race: kernel planted") == 0);
  }
}

TEST_CASE("race: warp barriers order a warp, also before a bulk copy overwrites") {
  CHECK(run(swap_in_warp, 64, Fault::none) == "");
  CHECK(run(swap_in_warp, 64, Fault::missing_warp_barrier).find("race") == 0);
  CHECK(run(bulk_ring, 32, Fault::none) == "");
  CHECK(run(bulk_ring, 32, Fault::missing_warp_barrier, Schedule::reverse).find("race") == 0);
}

TEST_CASE("race: barriers in shared memory order who arrives before who waits, and nobody else") {
  for (Schedule schedule : {Schedule::forward, Schedule::reverse, Schedule::shuffled}) {
    CHECK(run(loader_ring, 64, Fault::none, schedule) == "");
    for (Fault fault : {Fault::missing_barrier, Fault::missing_warp_barrier,
                        Fault::copy_not_waited_for, Fault::readers_not_waited_for}) {
      CAPTURE(static_cast<int>(fault));
      // A barrier that nobody has made yet is an error of its own.
      const std::string error = run(loader_ring, 64, fault, schedule);
      CHECK(
          error.find(fault == Fault::missing_barrier ? "kernel planted" : "race: kernel planted") !=
          std::string::npos);
    }
  }
}

TEST_CASE("race: products see what threads wrote, published and brought to a barrier") {
  for (Schedule schedule : {Schedule::forward, Schedule::reverse, Schedule::shuffled}) {
    const auto error = [&](Fault fault) {
      alignas(16) float in[64] = {}, out[128];
      in[5] = 2, in[60] = 1;
      const HostLaunch launch{.name = "planted",
                              .block = {128},
                              .shared_bytes = 2 * 64 * 128,
                              .schedule = schedule,
                              .check_races = true};
      const std::string found = host_launch(launch, products_of_writes, in, out, fault).error;
      if (fault == Fault::none) CHECK(out[77] == 3);
      return found;
    };
    CHECK(error(Fault::none) == "");
    CHECK(error(Fault::missing_fence).find("not published") != std::string::npos);
    CHECK(error(Fault::fence_before_the_writes).find("not published") != std::string::npos);
    CHECK(error(Fault::missing_barrier).find("race: kernel planted") == 0);
  }
}

TEST_CASE("race: a write before the wait for the previous kernel") {
  CHECK(run(sum_neighbours, 64, Fault::early_write).find("before the wait") != std::string::npos);
}

TEST_CASE("race: blocks are ordered by who counts last, with fences before and after") {
  constexpr unsigned kBlocks = 3, kThreads = 64;
  const auto error = [&](Fault fault, unsigned seed, bool check_races = true) {
    std::vector<float> in(kThreads, 1), partial(kBlocks * kThreads), out(kThreads);
    unsigned finished = 0, total = 0;
    const BlockSums sums{partial.data(), out.data(), &finished, &total};
    const HostLaunch launch{.name = "planted",
                            .grid = {kBlocks},
                            .block = {kThreads},
                            .seed = seed,
                            .check_races = check_races};
    const std::string found = host_launch(launch, sum_of_blocks, in.data(), sums, fault).error;
    if (fault == Fault::none) CHECK(out[5] == 3 + 1 + 2 + 3);
    return found;
  };
  for (const unsigned seed : {1u, 2u, 3u, 4u}) {
    CHECK(error(Fault::none, seed) == "");
    for (const Fault fault : {Fault::missing_fence, Fault::fence_before_the_writes,
                              Fault::missing_barrier, Fault::missing_fence_after,
                              Fault::not_the_last, Fault::written_twice, Fault::not_atomic}) {
      CAPTURE(static_cast<int>(fault));
      CHECK(error(fault, seed).find("race: kernel planted") == 0);
    }
    for (const bool check_races : {false, true})
      CHECK(error(Fault::outside, seed, check_races).find("outside of") != std::string::npos);
  }
}

TEST_CASE("race: what blocks of a cluster send each other is ordered by barriers") {
  const auto error = [](Fault fault, Schedule schedule) {
    float out[2 * 32] = {};
    const HostLaunch launch{.name = "planted",
                            .grid = {2},
                            .block = {32},
                            .shared_bytes = 32 * 16,
                            .cluster = 2,
                            .schedule = schedule,
                            .check_races = true};
    return host_launch(launch, pass_around, out, fault).error;
  };
  for (const Schedule schedule : {Schedule::forward, Schedule::reverse, Schedule::shuffled}) {
    CHECK(error(Fault::none, schedule) == "");
    CHECK(error(Fault::write_after_read, schedule) == "");  // before they meet
    for (const Fault fault :
         {Fault::missing_barrier, Fault::readers_not_waited_for, Fault::copy_not_waited_for}) {
      CAPTURE(static_cast<int>(fault));
      CHECK(error(fault, schedule) != "");
    }
  }
}

TEST_CASE("race: copies and fills are accesses, by the names that clang gives them") {
  alignas(512) char shared[16] = {};
  alignas(512) char own[16] = {};
  const auto races = [&](const std::function<void()>& one, const std::function<void()>& other) {
    host::RaceChecker checker;
    checker.begin_cluster(2);
    checker.add_shared(shared, sizeof shared);
    checker.add_stack(own, sizeof own);
    host::race_checker = &checker;
    host::race_moment = {0, true}, one();
    host::race_moment = {1, true}, other();
    host::race_checker = nullptr;
    return checker.found();
  };
  const auto read = [&] { __tsan_memcpy(own, shared, sizeof own); };
  const auto write = [&] { __tsan_memcpy(shared, own, sizeof own); };
  const auto read_moved = [&] { __tsan_memmove(own, shared, sizeof own); };
  const auto fill = [&] { __tsan_memset(shared, 7, sizeof shared); };
  CHECK(!races(read, read));
  CHECK(!races(read, read_moved));
  CHECK(races(read, write));
  CHECK(races(fill, read));
  CHECK(own[15] == 7);
  CHECK(races(read_moved, fill));
}

TEST_CASE("race: the GEMV has none") {
  std::vector<GemvCase> cases = {
      {.name = "registers", .op = race_op, .plan = race_registers, .kernel = race_gemv_registers},
      {.name = "async", .op = race_op, .plan = race_async, .kernel = race_gemv_async},
      {.name = "bulk", .op = race_op, .plan = race_bulk, .kernel = race_gemv_bulk},
      {.name = "slow", .op = race_op, .plan = race_slow, .kernel = race_gemv_slow},
      {.name = "head", .op = race_head, .plan = race_registers, .kernel = race_gemv_head},
  };
  for (GemvCase& c : cases) {
    c.rows = {40}, c.k = 1048, c.check_races = true;
    CHECK(run_gemv(c) == "");
  }
}

TEST_CASE("race: attention has none") {
  for (int position : {0, 7, 150}) {
    AttentionCase c{.name = "mma", .op = race_attention_op, .plan = race_mma};
    c.kernel = race_attention_mma, c.position = position, c.check_races = true;
    CHECK(run_attention(c) == "");
    c.name = "scalar", c.plan = race_scalar, c.kernel = race_attention_scalar;
    CHECK(run_attention(c) == "");
  }
}

GemmCase::Launch launch_tma(const GemmOp& op, const GemmShape& shape) {
  return {.illegal = race_tma.why_illegal(op, shape, 227 * 1024),
          .grid = static_cast<int>(race_tma.grid(op, shape, 5)),
          .threads = race_tma.threads(),
          .shared_bytes = race_tma.shared_bytes(op)};
}

TEST_CASE("race: the matrix products have none") {
  std::vector<GemmCase> cases = {
      {.name = "double", .kernel = race_gemm_double_stage, .launch = launch_of<race_gemm_double>},
      {.name = "single", .kernel = race_gemm_single_stage, .launch = launch_of<race_gemm_single>},
      {.name = "deep", .kernel = race_mma_gemm_deep, .launch = launch_of<race_mma_deep>},
      {.name = "short", .kernel = race_mma_gemm_short, .launch = launch_of<race_mma_short>},
      {.name = "groups", .kernel = race_mma_gemm_groups, .launch = launch_of<race_mma_wgmma>},
      {.name = "tma", .kernel = race_tma_gemm, .launch = launch_tma},
  };
  for (GemmCase& c : cases) {
    c.op = race_gemm_op, c.shape = {40, {20, 20}, 456}, c.check_races = true;
    CHECK(run_gemm(c) == "");
  }
  GemmCase codes{.name = "codes", .op = race_codes_op, .launch = launch_tma};
  codes.coded = race_tma_codes, codes.shape = {70, {20, 20}, 448}, codes.check_races = true;
  CHECK(run_gemm(codes) == "");
}

TEST_CASE("race: prefill attention has none") {
  for (int window : {0, 20}) {
    PrefillAttentionCase c{.name = "short", .op = race_prefill_op, .plan = race_prefill_mma};
    c.kernel = race_prefill_mma_short, c.check_races = true;
    c.position = 60, c.tokens = 40, c.capacity = 110, c.window = window;
    CHECK(run_prefill_attention(c) == "");
    c.name = "deep", c.plan = race_prefill_deep, c.kernel = race_prefill_mma_deep;
    CHECK(run_prefill_attention(c) == "");
    c.name = "split", c.plan = race_prefill_split, c.kernel = race_prefill_mma_split;
    CHECK(run_prefill_attention(c) == "");
    c.name = "scalar", c.plan = race_prefill_scalar, c.kernel = race_prefill_any;
    CHECK(run_prefill_attention(c) == "");
    // Enough keys for each slot to be filled again, where no window keeps them out.
    c.position = 500, c.capacity = 700;
    c.name = "wgmma", c.plan = race_prefill_wgmma, c.kernel = race_prefill_groups;
    CHECK(run_prefill_attention(c) == "");
    c.name = "wgmma, kept", c.plan = race_prefill_kept, c.kernel = race_prefill_groups_kept;
    CHECK(run_prefill_attention(c) == "");
  }
}

// Several rows a block, so that one row's end meets the next one's beginning.
TEST_CASE("race: the row-wise kernels have none") {
  const RowsShape shape{.rows = 7, .columns = 301, .check_races = true};
  CHECK(run_reduction({"reduction", race_sum, race_rows, race_reduction}, shape) == "");
  CHECK(run_softmax({"online", race_softmax_op, race_online, race_softmax_online}, shape) == "");
  CHECK(run_softmax({"two", race_softmax_op, race_two_shared, race_softmax_two_shared}, shape) ==
        "");
  CHECK(run_norm({"rms", race_rms, race_norm_registers, race_norm_rms_registers}, shape) == "");
  CHECK(run_norm({"rms", race_rms, race_norm_shared, race_norm_rms_shared}, shape) == "");
  CHECK(run_norm({"layer", race_layer, race_norm_shared, race_norm_layer_shared}, shape) == "");
  CHECK(run_norm({"welford", race_layer, race_norm_welford, race_norm_layer_welford}, shape) == "");
}

// Blocks hand words to each other, so that what a warp does to shared memory must be known to be
// over.
TEST_CASE("race: all layers in one launch have none") {
  for (const Schedule schedule : {Schedule::forward, Schedule::ahead})
    CHECK(run_layers<race_layers_op, race_blocks_of_layers>(race_layers, schedule, 2, {0, 70},
                                                            true) == "");
}

TEST_CASE("race: RoPE and append, and sampling, have none") {
  RopeAppendCase rope{.name = "rope", .op = race_rope_op, .plan = race_rope_plan};
  rope.kernel = race_rope_append, rope.tokens = 5, rope.position = 9, rope.check_races = true;
  CHECK(run_rope_append(rope) == "");
  SamplingCase sampling{.name = "sampling", .op = race_logits, .plan = race_blocks};
  sampling.kernel = race_sampling, sampling.check_races = true;
  std::vector<float> logits(1003);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 7919 % 1009);
  CHECK(run_sampling(sampling, logits) == "");
}

TEST_CASE("race: drawing a token has none") {
  DrawCase c{.name = "draw", .plan = race_draws};
  c.kernels = {race_draw_coarse, race_draw_top_k, race_draw_top_p, race_draw_choose};
  c.check_races = true;
  std::vector<float> logits(2003);
  for (std::size_t i = 0; i < logits.size(); ++i)
    logits[i] = static_cast<float>(i * 7919 % 2011) * 0.01f;
  DrawRun run(c, logits);
  for (const DrawSettings& settings :
       {DrawSettings{1, 0, 1, 0.1f, 1}, DrawSettings{1, 300, 0.8f, 0, 1},
        DrawSettings{1, 0, 0.8f, 0, 1}})
    CHECK(run.draw(settings, 9) >= 0);
  CHECK(run.error() == "");
}

}  // namespace
}  // namespace ac::kernels
