// What an advisor who is asked about the regions of a decode step says, and what that comes to in
// the space of the step's schedules: which of them to try, best first.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "advise/advisor.h"
#include "base/progress.h"
#include "search/strategy.h"
#include "tune/step_space.h"

namespace ac::tune {

struct StepAdvice {
  std::map<std::string, std::vector<std::string>> candidates;  // by signature, best first
  // Preferred to those that the regions came from: neighbourhood and option, in Plans.
  std::vector<std::pair<std::size_t, std::size_t>> fusions;
};

// Asks what the compiler would ask, and says which regions there is no advice about.
StepAdvice ask_about(Advisor& advisor, const Regions& regions, const Plans& plans,
                     Progress& progress);
StepAdvice advice_of(const std::vector<Question>& questions, const std::vector<Answer>& answers);

// First the point that has whatever is advised first, and where nothing is, the best predicted.
// Then points that differ from it in one site: in the second that is advised there, the sites that
// take longest first; then in the third, and so on. None if nothing advised is a choice.
search::Ranking advised_points(const StepSpace& space, const StepAdvice& advice);

}  // namespace ac::tune
