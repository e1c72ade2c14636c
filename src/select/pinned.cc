#include "select/pinned.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "select/select.h"

namespace ac {
namespace {

template <class T>
void add_missing(std::vector<T>& to, const std::vector<T>& from) {
  for (const T& item : from)
    if (std::find(to.begin(), to.end(), item) == to.end()) to.push_back(item);
}

// Cuts that have a region in common say so once.
void merge_equal(std::vector<Selection>& selections) {
  std::vector<Selection> merged;
  for (Selection& selection : selections) {
    const auto known = std::ranges::find(merged, selection.signature, &Selection::signature);
    if (known == merged.end()) {
      merged.push_back(std::move(selection));
      continue;
    }
    known->uses = std::max(known->uses, selection.uses);
    add_missing(known->kernels, selection.kernels);
    add_missing(known->trials, selection.trials);
    for (const Confirmed& of : selection.confirmed) known->confirmed.push_back(of);
    add_missing(known->by_context, selection.by_context);
    std::ranges::sort(known->by_context);
    for (const Attempt& attempt : selection.attempts)
      if (std::ranges::find(known->attempts, attempt.candidate, &Attempt::candidate) ==
          known->attempts.end())
        known->attempts.push_back(attempt);
  }
  selections = std::move(merged);
}

}  // namespace

std::vector<PinnedVariant> choose_pinned(CompiledPhase& phase, const std::vector<StateSpec>& states,
                                         const SelectOptions& options, const Pinned& pinned,
                                         Realiser& realiser, Progress& progress) {
  std::vector<PinnedVariant> made;
  std::vector<std::vector<Pinned::Variant>> cuts;  // variants of the same regions
  for (const Pinned::Variant& variant : pinned.variants) {
    const auto regions = [](const Pinned::Variant& of) {
      std::set<std::string> signatures;
      for (const auto& [signature, candidate] : of.candidates) signatures.insert(signature);
      return std::pair(of.fusions, signatures);
    };
    const auto same = std::ranges::find_if(
        cuts, [&](const auto& cut) { return regions(cut[0]) == regions(variant); });
    if (same == cuts.end())
      cuts.push_back({variant});
    else
      same->push_back(variant);
  }
  for (const std::vector<Pinned::Variant>& cut : cuts) {
    Selector selector(phase, states, options, realiser);
    const std::vector<ContextChoice> choices = selector.run_pinned(cut, progress);
    selector.confirm_pinned(choices, progress);
    const Alternatives alternatives = selector.alternatives();
    for (const ContextChoice& choice : choices)
      made.push_back({choice.from, implemented(alternatives, choice)});
    const std::size_t before = phase.selections.size();
    selector.record(choices);
    // Of one among several, too, it is said when it runs.
    for (std::size_t i = before; i < phase.selections.size(); ++i)
      if (cuts.size() > 1 && cut.size() == 1)
        phase.selections[i].by_context = {{cut[0].from, phase.selections[i].candidate}};
  }
  merge_equal(phase.selections);
  std::ranges::sort(made, {}, &PinnedVariant::from);
  phase.cuts = pinned.cuts;
  phase.in_context = pinned.contexts;
  return made;
}

// The cut that the variants share, and of each of its regions what they say.
std::vector<ContextChoice> Selector::run_pinned(const std::vector<Pinned::Variant>& variants,
                                                Progress& progress) {
  const Pinned::Variant& first = variants.at(0);
  Plans& plans = phase_.plans;
  const auto is_pinned = [&](int space) {
    return space >= 0 &&
           first.candidates.count(plans.spaces[static_cast<std::size_t>(space)].signature) > 0;
  };
  const SpaceCost cost = [&](int space) -> std::optional<double> {
    if (is_pinned(space)) return 0.0;
    return std::nullopt;
  };
  const auto take = [&](const Neighbourhood& around) -> std::optional<std::size_t> {
    const auto at = static_cast<std::size_t>(&around - plans.neighbourhoods.data());
    if (!first.fusions.empty()) {
      if (around.options.at(first.fusions.at(at)).refused) return std::nullopt;
      return first.fusions[at];
    }
    // The first of those with the fewest parts that are strange.
    std::optional<std::size_t> best;
    std::ptrdiff_t fewest = 0;
    for (std::size_t i = 0; i < around.options.size(); ++i) {
      if (around.options[i].refused) continue;
      const auto strange = std::ranges::count_if(
          around.options[i].parts, [&](const Part& part) { return !is_pinned(part.space); });
      if (!best || strange < fewest) best = i, fewest = strange;
    }
    return best;
  };
  parts_ = planned(choose_cover(phase_.regions, plans, cost, take));

  std::vector<ContextChoice> choices;
  for (const Pinned::Variant& variant : variants) choices.push_back({variant.from, {}});
  std::vector<CoverPart> left;  // to the fallback, with one variant or another
  std::set<int> seen;
  for (const CoverPart& part : parts_) {
    if (!seen.insert(part.space).second) continue;
    Space& space = plans.spaces[static_cast<std::size_t>(part.space)];
    State& state = states_[static_cast<std::size_t>(part.space)];
    state.order.clear();
    for (std::size_t v = 0; v < variants.size(); ++v) {
      const auto found = variants[v].candidates.find(space.signature);
      if (found == variants[v].candidates.end())
        job_failed("the schedule says nothing of a region that it comes to: {}", space.signature);
      const int candidate = found->second.empty() ? -1 : index_of(part, space, found->second);
      auto at = std::ranges::find(state.fixed, candidate);
      if (at == state.fixed.end()) {
        state.fixed.push_back(candidate);
        at = state.fixed.end() - 1;
        if (candidate >= 0) state.order.push_back(static_cast<std::size_t>(candidate));
      }
      choices[v].options.push_back(static_cast<std::size_t>(at - state.fixed.begin()));
    }
    state.leaders = state.order.size();
    if (state.order.empty()) state.raced = true;  // there is nothing to try
    if (std::ranges::find(state.fixed, -1) != state.fixed.end()) left.push_back(part);
  }
  while (try_next(parts_, progress)) {
  }
  for (const int space : seen) {
    State& state = states_[static_cast<std::size_t>(space)];
    for (const int candidate : state.fixed)
      if (candidate >= 0 && state.trials.count(candidate) == 0)
        job_failed("{} was not admitted", plans.spaces[static_cast<std::size_t>(space)]
                                              .candidates[static_cast<std::size_t>(candidate)]
                                              .id);
    state.winner = state.fixed[0];
  }
  admit_fallbacks(left, progress);
  return choices;
}

int Selector::index_of(const CoverPart& part, Space& space, const std::string& id) const {
  const std::optional<std::size_t> index =
      part.wanted ? find_candidate(step(), *part.wanted, phase_.plans.options.at,
                                   phase_.plans.device, space, id)
                  : index_in(space, id);
  if (!index)
    job_failed("this program plans no {} for {}: compile the model again", id, space.signature);
  return static_cast<int>(*index);
}

}  // namespace ac
