// The trial of what draws a token: the kernels pass it, and with faults planted in them they do
// not.
#include <doctest/doctest.h>

#include "admit/trials.h"
#include "tests/unit/court.h"
#include "tests/unit/expect_error.h"

namespace ac::test {
namespace {

enum Pass : std::size_t { kCoarse, kTopK, kTopP, kChoose };

TEST_CASE("draw trial: what is right is admitted, for every type and size") {
  Court court("kernels/draw.cuh");
  for (const DType logits : {DType::f32, DType::f16, DType::bf16})
    for (const std::int64_t vocab : {300, 151'936}) {
      const Request request = trial_of_draw(logits, vocab);
      Request read = request;
      read.trial = trial_from_json(to_json(request.trial), "trial");
      CHECK(to_json(read.trial) == to_json(request.trial));
      CHECK(court.judge(read) == "");  // as it comes to the process that judges
    }
}

TEST_CASE("draw trial: what launches keep for each other begins with zeros") {
  Court court("kernels/draw.cuh");
  Request request = trial_of_draw(DType::f32, 3000);
  int kept = 0;
  for (Buffer& buffer : request.trial.buffers)
    if (buffer.role == Buffer::Role::counters) buffer.role = Buffer::Role::kept, ++kept;
  REQUIRE(kept == 1);
  request.trial = trial_from_json(to_json(request.trial), "trial");
  CHECK(court.judge(request) == "");
  // Left as they were, they are no zeros for the next launch.
  CHECK_FALSE(court.admits(request, kTopP, "i < 2 * draw_bins;\n", "i < draw_bins;\n"));
}

TEST_CASE("draw trial: planted faults are not admitted") {
  Court court("kernels/draw.cuh");
  const Request request = trial_of_draw(DType::f32, 151'936);
  const auto rejects = [&](Pass pass, const std::string& from, const std::string& to) {
    CAPTURE(from);
    CHECK_FALSE(court.admits(request, pass, from, to));
  };
  rejects(kCoarse, "if (first + e >= p.vocab) continue;",
          "if (first + e >= p.vocab - 1) continue;");
  rejects(kCoarse, "(high << half) + block_bins", "(high << (half - 1)) + block_bins");
  rejects(kCoarse, "state.k_mass = found.mass;", "state.k_mass = 0;");
  rejects(kTopK, "settings.top_k - state.k_count", "settings.top_k - state.k_count + 1");
  rejects(kTopK, "for (int i = threadIdx.x; i < 2 * draw_bins", "for (int i = 2; i < 0");
  rejects(kTopP, "state.target - state.p_mass", "state.target - state.p_mass + state.target / 9");
  rejects(kTopP, "i < 2 * draw_bins;\n", "i < draw_bins;\n");
  rejects(kChoose, "-logf(settings.min_p)", "-2 * logf(settings.min_p)");
  rejects(kChoose, "<= state.limit", "<= state.limit / 2");
  rejects(kChoose, "load_fresh(p.position) + p.tokens", "load_fresh(p.position)");
  rejects(kChoose, "draw_stream(settings.seed", "draw_stream(settings.seed / 2");
  rejects(kChoose, "if (likeliest < 0) return;", "");
  rejects(kChoose, "-distance - logf", "-0.9f * distance - logf");
}

TEST_CASE("draw trial: launches that are left out, doubled or misplaced are not admitted") {
  Court court("kernels/draw.cuh");
  const Request request = trial_of_draw(DType::f16, 3000);
  for (std::size_t i = 0; i < request.trial.launches.size(); ++i) {
    Request other = request;
    other.trial.launches.erase(other.trial.launches.begin() + static_cast<std::ptrdiff_t>(i));
    CAPTURE(i);
    CHECK(court.judge(other) != "");
  }
  Request other = request;
  other.trial.launches.insert(other.trial.launches.begin(), other.trial.launches[0]);
  CHECK(court.judge(other) != "");
  other = request;
  other.trial.launches.back().grid[0] = 2;  // of 3 blocks
  CHECK(court.judge(other) != "");
}

TEST_CASE("draw trial: files that make no sense are refused") {
  const Request request = trial_of_draw(DType::f16, 3000);
  const auto refused = [&](const char* part, const std::function<void(Trial&)>& harm) {
    Trial trial = request.trial;
    harm(trial);
    CHECK_BAD_INPUT(verify(trial, "plan.json"), "plan.json", part);
  };
  refused("nothing to draw from", [](Trial& t) { t.vocab = 0, t.positions = {0}; });
  refused("no position", [](Trial& t) { t.draws = false; });
}

}  // namespace
}  // namespace ac::test
