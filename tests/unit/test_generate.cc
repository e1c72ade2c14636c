// From candidates to kernels: equal regions share them, and what is wrong does not pass its trial.
#include <doctest/doctest.h>

#include <set>

#include "admit/judge.h"
#include "admit/trials.h"
#include "base/temporary_folder.h"
#include "families/list.h"
#include "plan/planner.h"
#include "regions_models.h"

using namespace ac;
using namespace ac::test;

namespace {

std::vector<std::string> texts(const Generated& made) {
  std::vector<std::string> found;
  for (const KernelSource& source : made.sources) found.push_back(source.text);
  return found;
}

Generated made_of(const StepGraph& step, const Region& region, const Candidate& candidate) {
  const Setting setting{4, std::vector<std::int64_t>(step.states.size(), 64)};
  return generate_for(step, Wanted{region}, candidate.choice, {.T = 1, .P = 64}, setting);
}

// Builds and judges a request with kernels of its own.
class KernelCourt {
 public:
  KernelCourt() {
    BuilderOptions options = builder_options(read_environment());
    options.cache = folder_.path(), options.jobs = 2;
    builder_.emplace(options);
  }

  std::optional<validate::Rejection> judge(const Request& request) {
    std::map<std::string, std::filesystem::path> files;
    for (const KernelSource& source : request.sources) {
      const BuildResult result = builder_->build(source, {});
      if (const auto* failure = std::get_if<CompileFailure>(&result)) FAIL(failure->log);
      files[source.entry] = std::get<Artifact>(result).file;
    }
    return ac::judge(request.trial, files).rejection;
  }

 private:
  TemporaryFolder folder_;
  std::optional<KernelBuilder> builder_;
};

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("equal regions of two layers are computed by the same kernels") {
  const StepGraph step = gpt2_like(3, 1);
  const Regions regions = analyse(step);
  const Plans plans = plan(regions, device_info("host"), {.max_candidates = 3});
  int compared = 0;
  for (const Equals& equals : regions.signatures) {
    if (equals.regions.size() < 2) continue;
    const auto region = [&](std::size_t i) -> const Region& {
      return regions.regions[static_cast<std::size_t>(equals.regions[i])];
    };
    const int space = plans.space_of_region[static_cast<std::size_t>(equals.regions[0])];
    for (const Candidate& candidate : plans.spaces[static_cast<std::size_t>(space)].candidates) {
      const Generated first = made_of(step, region(0), candidate);
      const Generated second = made_of(step, region(1), candidate);
      CHECK(texts(first) == texts(second));
      CHECK(first.launches == second.launches);  // which count the storages of their own
      CHECK(first.buffers != second.buffers);
      ++compared;
    }
  }
  CHECK(compared > 5);
}

TEST_CASE("kernels that compute something else do not pass their trial") {
  const StepGraph step = gpt2_like(1, 1);
  const Regions regions = analyse(step);
  const Plans plans = plan(regions, device_info("host"), {.max_candidates = 1});
  KernelCourt court;
  bool tried = false;
  for (std::size_t i = 0; i < regions.regions.size() && !tried; ++i) {
    const Region& region = regions.regions[i];
    const Space& space = plans.spaces[static_cast<std::size_t>(plans.space_of_region[i])];
    if (space.candidates.empty() || family_of(space.candidates[0].choice) != "gemv") continue;
    const auto request = trial_of(step, Wanted{region}, space.candidates[0], {1, {4, {64}}});
    REQUIRE(request);
    if (request->sources[0].text.find(".bias = true") == std::string::npos) continue;
    tried = true;
    CHECK_FALSE(court.judge(*request));

    Request other = *request;
    other.sources[0].text = replaced(other.sources[0].text, ".bias = true", ".bias = false");
    CHECK(court.judge(other));

    // As a file that is read again, it is the same trial.
    other = *request;
    other.trial = trial_from_json(to_json(request->trial), "trial");
    CHECK(to_json(other.trial) == to_json(request->trial));
    CHECK_FALSE(court.judge(other));

    int rejected = 0;
    const std::size_t pointers = request->trial.launches[0].pointers.size();
    for (std::size_t at = 0; at < pointers; ++at) {
      other = *request;
      other.trial.launches[0].pointers[at].offset = 2;  // one element late
      rejected += court.judge(other).has_value();
    }
    CHECK(rejected == static_cast<int>(pointers));
    other = *request;
    other.trial.launches.push_back(other.trial.launches[0]);
    CHECK_FALSE(court.judge(other));  // twice is as good
    other.trial.launches.clear();
    CHECK(court.judge(other));
  }
  CHECK(tried);
}
