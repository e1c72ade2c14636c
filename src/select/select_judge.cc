// Judging late: what is timed is judged once it is chosen, or when something is wrong.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "select/select.h"

namespace ac {

// As if it were admitted, until it is chosen.
void Selector::put_off(int space, std::size_t candidate, Request request) {
  SpaceEvidence& evidence = evidence_.spaces[at(space)];
  Outcome outcome;
  outcome.kind = Outcome::Kind::unjudged;
  evidence.judged.push_back({static_cast<int>(candidate), outcome});
  evidence.trials.emplace(candidate, request.trial);
  agenda_[at(space)].put_off.emplace(candidate, std::move(request));
}

SpaceEvidence::Judged& Selector::judged_of(const CoverPart& part, int candidate) {
  std::vector<SpaceEvidence::Judged>& judged = evidence_.spaces[at(part.space)].judged;
  return *std::ranges::find(judged, candidate, &SpaceEvidence::Judged::candidate);
}

bool Selector::judge_left(Progress& progress) { return judge(parts_, progress); }

bool Selector::judge(const std::vector<CoverPart>& parts, Progress& progress) {
  std::vector<Request> requests;
  std::vector<std::pair<const CoverPart*, int>> whose;
  std::set<int> seen;
  for (const CoverPart& part : parts)
    if (seen.insert(part.space).second)
      for (const SpaceEvidence::Judged& judged : evidence_of(part).judged) {
        if (judged.outcome.kind != Outcome::Kind::unjudged) continue;
        requests.push_back(agenda_[at(part.space)].put_off.at(judged.candidate));
        whose.emplace_back(&part, judged.candidate);
      }
  if (requests.empty()) return false;
  std::size_t done = 0;
  const std::vector<Outcome> outcomes = lab_.judge(requests, [&](std::size_t i) {
    progress.step("candidates judged", ++done, requests.size(), requests[i].name);
  });
  bool refused = false;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto& [part, candidate] = whose[i];
    judged_of(*part, candidate).outcome = outcomes[i];
    if (outcomes[i].admitted()) continue;
    const Candidate& of = candidate_of(*part, candidate);
    log_failure(*part, of, outcomes[i]);
    progress.note(fmt::format("{}: {} ({})", of.id, to_string(outcomes[i].kind), outcomes[i].why));
    evidence_.spaces[at(part->space)].refused.emplace(candidate, outcomes[i]);
    refused = true;
  }
  return refused;
}

}  // namespace ac
