// What selection tells the tuning database.
#include "select/select.h"

namespace ac {

void Selector::log(const CoverPart& part, const Candidate& candidate, search::Verdict verdict,
                   const std::string& why, const std::vector<double>& samples, std::int64_t tokens,
                   std::int64_t position) const {
  if (!options_.log) return;
  tuning::TimedAttempt attempt;
  attempt.key.region = space_of(part).signature;
  attempt.key.plan = candidate.id;
  attempt.key.setting = tuning::setting_of(tokens, position);
  attempt.verdict = verdict;
  attempt.why = why;
  attempt.samples = samples;
  attempt.predicted = candidate.cost.microseconds;
  options_.log->add(std::move(attempt), generate_for(part, candidate).sources);
}

void Selector::log_failure(const CoverPart& part, const Candidate& candidate,
                           const Outcome& outcome) const {
  if (!outcome.admitted())
    log(part, candidate, verdict_of(outcome.kind), outcome.why, {}, plans_.options.at.T,
        plans_.options.at.P);
}

// Of a race in which nobody was judged; one who was not timed calls what is not here.
void Selector::log_quick(const CoverPart& part, const std::vector<std::size_t>& candidates,
                         const Lab::Race& race, const MeasureOptions& options) const {
  for (std::size_t i = 0; i < candidates.size(); ++i)
    if (!race.samples[i].empty())
      log(part, space_of(part).candidates[candidates[i]], search::Verdict::measured,
          tuning::kUnjudged, race.samples[i], options.tokens, options.position);
}

// Of candidates that were admitted, and behind them the fallback.
void Selector::log_race(const CoverPart& part, const std::vector<int>& candidates,
                        const Lab::Race& race, const MeasureOptions& options) const {
  for (std::size_t i = 0; i < candidates.size(); ++i)
    if (!race.samples[i].empty())
      log(part, candidate_of(part, candidates[i]), search::Verdict::measured,
          judges_late(part.space) ? tuning::kUnjudged : "", race.samples[i], options.tokens,
          options.position);
}

}  // namespace ac
