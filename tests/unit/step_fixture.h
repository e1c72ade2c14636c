// A decode step of two layers with all its plans, whose schedules are to be told apart.
#pragma once

#include "analyze/analyse.h"
#include "regions_models.h"
#include "tune/step_space.h"

namespace ac::test {

struct StepFixture {
  Regions regions = analyse(gemma_like(2, 1));
  Plans plans =
      plan(regions, device_info("sm_90"), {.max_candidates = 8, .at = {.S = -1, .T = 1, .P = 100}});

  const Space& of(int index) const { return plans.spaces[static_cast<std::size_t>(index)]; }

  // The first so many candidates, or the fallback where there is none.
  tune::PartChoices first() const {
    return [this](const CoverPart& part, std::size_t most) {
      std::vector<int> found;
      for (std::size_t i = 0; i < std::min(most, of(part.space).candidates.size()); ++i)
        found.push_back(static_cast<int>(i));
      if (found.empty()) found.push_back(-1);
      return found;
    };
  }
};

}  // namespace ac::test
