// The final admission: judges what a selector has chosen as it is used. The quick trials, by which
// it chose among many, are small.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/warning.h"
#include "select/select.h"

namespace ac {

// The fallback computes a part node by node.
std::vector<std::string> Selector::fallback_signatures(const CoverPart& part) const {
  std::vector<std::string> signatures;
  if (part.wanted)
    for (const NodeId id : part.wanted->region.nodes)
      if (is_compute(step().graph[id]))
        signatures.push_back(std::get<Region>(make_region(uses_, {id})).signature);
  if (chooses_token(part)) signatures.emplace_back(kArgmax);
  return signatures;
}

// Nothing is recorded that was not confirmed.
std::vector<Confirmed> Selector::confirmed_of(const CoverPart& part, int candidate) const {
  const auto admitted = [](const auto& known, const auto& key) {
    const auto found = known.find(key);
    const auto passed = [](const Confirmed& of) { return of.outcome.admitted(); };
    AC_ASSERT(found != known.end() && !found->second.empty() &&
              std::ranges::all_of(found->second, passed));
    return found->second;
  };
  if (candidate >= 0) return admitted(evidence_of(part).confirmed, candidate);
  std::vector<Confirmed> all;
  for (const std::string& signature : fallback_signatures(part))
    for (Confirmed& of : admitted(evidence_.confirmed_fallbacks, signature))
      all.push_back(std::move(of));
  return all;
}

std::vector<Selector::Unconfirmed> Selector::unconfirmed(const std::vector<ContextChoice>& chosen,
                                                         Progress& progress) {
  // A candidate, or what the fallback does.
  struct Asked {
    const CoverPart* part;
    int candidate;
    std::string what, signature;
  };
  std::vector<Asked> asked;
  std::vector<Request> requests;
  std::vector<std::size_t> whose;  // of each request
  std::vector<Unconfirmed> failed;
  const TrialSetting setting = trial_setting();
  const auto ask = [&](Asked of, std::vector<Request> needed) {
    for (Request& request : needed) {
      requests.push_back(std::move(request));
      whose.push_back(asked.size());
    }
    asked.push_back(std::move(of));
  };
  const auto ask_fallback = [&](const CoverPart& part) {
    if (chooses_token(part) && evidence_.confirmed_fallbacks.try_emplace(kArgmax).second)
      ask({&part, -1, "fallback argmax", kArgmax},
          confirmation_of_argmax(logits().dtype, logits().shape.back().constant(), setting));
    if (!part.wanted) return;
    for (const NodeId id : part.wanted->region.nodes) {
      if (!is_compute(step().graph[id])) continue;
      const Region node = std::get<Region>(make_region(uses_, {id}));
      if (evidence_.confirmed_fallbacks.try_emplace(node.signature).second)
        ask({&part, -1, fmt::format("fallback {}", info(step().graph[id].op).name), node.signature},
            confirmation_of_fallback(step(), node, setting));
    }
  };
  std::map<int, std::size_t> sites;  // by space, as alternatives() counts them
  std::set<std::pair<int, int>> seen;
  for (const CoverPart& part : parts_) {
    const std::size_t site = sites.emplace(part.space, sites.size()).first->second;
    const SpaceEvidence& evidence = evidence_of(part);
    const std::vector<int> options = options_of(part);
    for (const ContextChoice& choice : chosen) {
      const int candidate = options[choice.options[site]];
      if (candidate < 0) {
        ask_fallback(part);
        continue;
      }
      if (evidence.confirmed.contains(candidate) || !seen.emplace(part.space, candidate).second)
        continue;
      const Candidate& of = candidate_of(part, candidate);
      const bool is_unjudged = judged_of(part, candidate).outcome.kind == Outcome::Kind::unjudged;
      if (auto needed = confirmation_of(step(), part.wanted, of, setting)) {
        if (is_unjudged)
          needed->insert(needed->begin(), agenda_[at(part.space)].put_off.at(candidate));
        ask({&part, candidate, of.id, ""}, std::move(*needed));
        continue;
      }
      failed.push_back({&part, candidate, does_not_fit()});
    }
  }
  std::size_t done = 0;
  const std::vector<Outcome> outcomes = lab_.judge(requests, [&](std::size_t i) {
    progress.step("kernels confirmed", ++done, requests.size(), requests[i].name);
  });
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Asked& of = asked[whose[i]];
    const Purpose purpose = requests[i].trial.purpose;
    if (purpose == Purpose::quick) {
      judged_of(*of.part, of.candidate).outcome = outcomes[i];
      if (!outcomes[i].admitted()) failed.push_back({of.part, of.candidate, outcomes[i]});
      continue;
    }
    if (!outcomes[i].admitted()) {
      Outcome outcome = outcomes[i];
      outcome.why = fmt::format("final admission, {}: {}", to_string(purpose), outcome.why);
      if (of.candidate < 0)
        job_failed("the {} of {} was not admitted: {}", of.what, of.signature, outcome.why);
      failed.push_back({of.part, of.candidate, outcome});
    }
    std::vector<Confirmed>& confirmed =
        of.candidate < 0 ? evidence_.confirmed_fallbacks[of.signature]
                         : evidence_.spaces[at(of.part->space)].confirmed[of.candidate];
    confirmed.push_back({of.what, purpose, outcomes[i]});
  }
  return failed;
}

// What is refused is as if the quick trial had not admitted it: the next one is tried, and what is
// left races anew.
bool Selector::confirm(const std::vector<ContextChoice>& chosen, Progress& progress) {
  const std::vector<Unconfirmed> failed = unconfirmed(chosen, progress);
  for (const Unconfirmed& one : failed) {
    const Candidate& candidate = candidate_of(*one.part, one.candidate);
    std::map<int, Outcome>& refused = evidence_.spaces[at(one.part->space)].refused;
    if (!refused.emplace(one.candidate, one.outcome).second) continue;  // for several reasons
    warn("{}: {} ({}); the next best takes its place", candidate.id, to_string(one.outcome.kind),
         one.outcome.why);
    log_failure(*one.part, candidate, one.outcome);
  }
  if (failed.empty()) {
    progress.summary(so_far());
    return true;
  }
  race_left(progress);
  return false;
}

void Selector::race_left(Progress& progress) {
  try_all(parts_, progress);
  admit_left(progress);
}

void Selector::confirm_pinned(const std::vector<ContextChoice>& chosen, Progress& progress) {
  for (const Unconfirmed& one : unconfirmed(chosen, progress))
    job_failed("{} was not admitted: {}", candidate_of(*one.part, one.candidate).id,
               one.outcome.why);
}

}  // namespace ac
