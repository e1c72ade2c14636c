#include "tune/step_advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "advise/questions.h"

namespace ac::tune {

StepAdvice ask_about(Advisor& advisor, const Regions& regions, const Plans& plans,
                     Progress& progress) {
  progress.stage("advise: " + advisor.name());
  const std::vector<Question> questions =
      questions_about("decode", regions, plans, advisor.share());
  const std::vector<Answer> answers = advisor.ask(questions);
  for (const Answer& answer : answers)
    if (!answer.reply.failure.empty())
      progress.note(
          fmt::format("no advice about {}: {}", answer.prompt.name, answer.reply.failure));
  return advice_of(questions, answers);
}

StepAdvice advice_of(const std::vector<Question>& questions, const std::vector<Answer>& answers) {
  StepAdvice advice;
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const Advice& about = answers[i].advice;
    for (const Candidate& candidate : about.order)
      advice.candidates[questions[i].space.signature].push_back(candidate.id);
    if (about.preferred < 0) continue;
    const FusionChoice& choice = questions[i].fusions[static_cast<std::size_t>(about.preferred)];
    if (!choice.current) advice.fusions.emplace_back(choice.neighbourhood, choice.option);
  }
  return advice;
}

search::Ranking advised_points(const StepSpace& space, const StepAdvice& advice) {
  const search::ProductSpace& points = space.points();
  std::vector<std::vector<int>> advised(points.sites().size());  // choices of each site
  const auto add = [&](const std::optional<StepSpace::Choice>& found) {
    if (!found) return;
    std::vector<int>& of_site = advised[found->site];
    if (std::ranges::find(of_site, found->index) == of_site.end()) of_site.push_back(found->index);
  };
  for (const auto& [neighbourhood, option] : advice.fusions)
    add(space.find_fusion(neighbourhood, option));
  for (const auto& [signature, ids] : advice.candidates)
    for (const std::string& id : ids) add(space.find_candidate(signature, id));

  // What has no advice is as it is best predicted, in the cut that was asked about.
  std::vector<int> first(advised.size(), -1);
  std::vector<std::size_t> order;  // of the sites that something is advised for
  std::size_t ranks = 0;
  for (std::size_t site = 0; site < advised.size(); ++site) {
    if (advised[site].empty()) continue;
    first[site] = advised[site][0];
    order.push_back(site);
    ranks = std::max(ranks, advised[site].size());
  }
  std::ranges::stable_sort(order, std::greater{},
                           [&](std::size_t site) { return space.microseconds(site); });

  search::Ranking made;
  std::set<int> seen;  // what differs only in a site that is not there is the same point
  const auto propose = [&](const std::vector<int>& choices) {
    const int point = points.point(choices);
    if (seen.insert(point).second) made.order.push_back(point);
  };
  if (!order.empty()) propose(first);
  for (std::size_t rank = 1; rank < ranks; ++rank)
    for (const std::size_t site : order) {
      if (rank >= advised[site].size()) continue;
      std::vector<int> other = first;
      other[site] = advised[site][rank];
      propose(other);
    }
  return made;
}

}  // namespace ac::tune
