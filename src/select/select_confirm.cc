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
  if (candidate >= 0) return admitted(state_of(part).confirmed, candidate);
  std::vector<Confirmed> all;
  for (const std::string& signature : fallback_signatures(part))
    for (Confirmed& of : admitted(confirmed_fallbacks_, signature)) all.push_back(std::move(of));
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
  const TrialSetting at = trial_setting();
  const auto ask = [&](Asked of, std::vector<Request> needed) {
    for (Request& request : needed) {
      requests.push_back(std::move(request));
      whose.push_back(asked.size());
    }
    asked.push_back(std::move(of));
  };
  const auto ask_fallback = [&](const CoverPart& part) {
    if (chooses_token(part) && confirmed_fallbacks_.try_emplace(kArgmax).second)
      ask({&part, -1, "fallback argmax", kArgmax},
          confirmation_of_argmax(logits().dtype, logits().shape.back().constant(), at));
    if (!part.wanted) return;
    for (const NodeId id : part.wanted->region.nodes) {
      if (!is_compute(step().graph[id])) continue;
      const Region node = std::get<Region>(make_region(uses_, {id}));
      if (confirmed_fallbacks_.try_emplace(node.signature).second)
        ask({&part, -1, fmt::format("fallback {}", info(step().graph[id].op).name), node.signature},
            confirmation_of_fallback(step(), node, at));
    }
  };
  std::map<int, std::size_t> sites;  // by space, as alternatives() counts them
  std::set<std::pair<int, int>> seen;
  for (const CoverPart& part : parts_) {
    const std::size_t site = sites.emplace(part.space, sites.size()).first->second;
    const State& state = state_of(part);
    const std::vector<int> options = leaders(state);
    for (const ContextChoice& choice : chosen) {
      const int candidate = options[choice.options[site]];
      if (candidate < 0) {
        ask_fallback(part);
        continue;
      }
      if (state.confirmed.contains(candidate) || !seen.emplace(part.space, candidate).second)
        continue;
      const Candidate& of = space_of(part).candidates[static_cast<std::size_t>(candidate)];
      if (auto needed = confirmation_of(step(), part.wanted, of, at)) {
        ask({&part, candidate, of.id, ""}, std::move(*needed));
        continue;
      }
      Outcome outcome;
      outcome.kind = Outcome::Kind::rejected;
      outcome.why = "interface: the plan does not fit the region when it is tried by itself";
      failed.push_back({&part, candidate, outcome});
    }
  }
  std::size_t done = 0;
  const std::vector<Outcome> outcomes = realiser_.realise(requests, [&](std::size_t i) {
    progress.step("kernels confirmed", ++done, requests.size(), requests[i].name);
  });
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Asked& of = asked[whose[i]];
    const Purpose purpose = requests[i].trial.purpose;
    if (!outcomes[i].admitted()) {
      Outcome outcome = outcomes[i];
      outcome.why = fmt::format("final admission, {}: {}", to_string(purpose), outcome.why);
      if (of.candidate < 0)
        job_failed("the {} of {} was not admitted: {}", of.what, of.signature, outcome.why);
      failed.push_back({of.part, of.candidate, outcome});
    }
    std::vector<Confirmed>& confirmed =
        of.candidate < 0
            ? confirmed_fallbacks_[of.signature]
            : states_[static_cast<std::size_t>(of.part->space)].confirmed[of.candidate];
    confirmed.push_back({of.what, purpose, outcomes[i]});
  }
  return failed;
}

// As if the quick trial had not admitted it: the next one is tried, and what is left races anew.
void Selector::give_up(const Unconfirmed& failed) {
  State& state = states_[static_cast<std::size_t>(failed.part->space)];
  const Candidate& candidate =
      space_of(*failed.part).candidates[static_cast<std::size_t>(failed.candidate)];
  for (Attempt& attempt : state.attempts)
    if (attempt.candidate == candidate.id) attempt.outcome = failed.outcome;
  log_failure(*failed.part, candidate, failed.outcome);
  state.trials.erase(failed.candidate);
  state.confirmed.erase(failed.candidate);
  state.raced = false;
  state.winner = -1;
  for (const std::size_t i : state.order)
    if (const auto next = static_cast<int>(i); state.winner < 0 && state.trials.contains(next))
      state.winner = next;
}

bool Selector::confirm(const std::vector<ContextChoice>& chosen, Progress& progress) {
  const std::vector<Unconfirmed> failed = unconfirmed(chosen, progress);
  for (const Unconfirmed& one : failed) {
    warn("{}: {} ({}); the next best takes its place",
         space_of(*one.part).candidates[static_cast<std::size_t>(one.candidate)].id,
         to_string(one.outcome.kind), one.outcome.why);
    give_up(one);
  }
  if (failed.empty()) {
    progress.summary(so_far());
    return true;
  }
  decide(parts_, progress);
  admit_left(progress);
  return false;
}

void Selector::confirm_pinned(const std::vector<ContextChoice>& chosen, Progress& progress) {
  for (const Unconfirmed& one : unconfirmed(chosen, progress))
    job_failed("{} was not admitted: {}",
               space_of(*one.part).candidates[static_cast<std::size_t>(one.candidate)].id,
               one.outcome.why);
}

}  // namespace ac
