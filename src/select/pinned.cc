#include "select/pinned.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "select/choose_phase.h"

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

// Spaces and candidates that one of the cuts named.
void add_missing(Plans& to, const Plans& from) {
  for (const Space& space : from.spaces) {
    const auto known = std::ranges::find(to.spaces, space.signature, &Space::signature);
    if (known == to.spaces.end())
      to.spaces.push_back(space);
    else if (known->candidates.size() < space.candidates.size())
      known->candidates = space.candidates;
  }
}

// The cut whose regions the variant names, as far as there is one.
std::vector<CoverPart> cover_of(const Regions& regions, const Plans& plans,
                                const Pinned::Variant& variant) {
  const auto is_pinned = [&](int space) {
    return space >= 0 &&
           variant.candidates.contains(plans.spaces[static_cast<std::size_t>(space)].signature);
  };
  const SpaceCost cost = [&](int space) -> std::optional<double> {
    if (is_pinned(space)) return 0.0;
    return std::nullopt;
  };
  const auto take = [&](std::size_t neighbourhood) -> std::optional<std::size_t> {
    const Neighbourhood& around = plans.neighbourhoods[neighbourhood];
    if (!variant.fusions.empty()) {
      const std::size_t option = variant.fusions.at(neighbourhood);
      if (around.options.at(option).refused) return std::nullopt;
      return option;
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
  return choose_cover(regions, plans, cost, take);
}

}  // namespace

std::vector<std::string> pinned_signatures(const PhasePlan& phase, const Pinned::Variant& variant) {
  Plans plans = phase.plans;  // those of another cut are added
  std::vector<std::string> signatures;
  for (const CoverPart& part : whole_cover(cover_of(phase.regions, plans, variant)))
    signatures.push_back(
        plans
            .spaces[static_cast<std::size_t>(
                part.space >= 0 ? part.space
                                : find_or_plan(phase.regions.step, part.wanted, plans))]
            .signature);
  return signatures;
}

PhaseChoice choose_pinned(const PhasePlan& phase, const std::vector<StateSpec>& states,
                          const SelectOptions& options, const Pinned& pinned, Lab& lab,
                          Progress& progress) {
  PhaseChoice made;
  static_cast<PhasePlan&>(made.record) = phase;
  std::vector<Selection>& selections = made.record.selections;
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
    Selector selector(phase, states, options, lab);
    const std::vector<ContextChoice> choices = selector.run_pinned(cut, progress);
    selector.confirm_pinned(choices, progress);
    const Alternatives alternatives = selector.alternatives();
    for (const ContextChoice& choice : choices)
      made.variants.push_back(
          {choice.from, implemented(alternatives, choice), selector.choices(choice)});
    for (Selection& selection : selector.selections(choices)) {
      // Of one among several, too, it is said when it runs.
      if (cuts.size() > 1 && cut.size() == 1)
        selection.by_context = {{cut[0].from, selection.candidate}};
      selections.push_back(std::move(selection));
    }
    add_missing(made.record.plans, selector.plans());
  }
  merge_equal(selections);
  std::ranges::sort(made.variants, {}, &StepVariant::from);
  made.record.cuts = pinned.cuts;
  made.record.in_context = pinned.contexts;
  return made;
}

// The cut that the variants share, and of each of its regions what they say.
std::vector<ContextChoice> Selector::run_pinned(const std::vector<Pinned::Variant>& variants,
                                                Progress& progress) {
  parts_ = planned(cover_of(phase_.regions, plans_, variants.at(0)));

  std::vector<ContextChoice> choices;
  for (const Pinned::Variant& variant : variants) choices.push_back({variant.from, {}});
  std::vector<CoverPart> left;  // to the fallback, with one variant or another
  std::set<int> seen;
  for (const CoverPart& part : parts_) {
    if (!seen.insert(part.space).second) continue;
    const std::string signature = space_of(part).signature;
    std::vector<std::size_t>& order = evidence_.spaces[at(part.space)].order;
    Agenda& agenda = agenda_[at(part.space)];
    order.clear();
    for (std::size_t v = 0; v < variants.size(); ++v) {
      const auto found = variants[v].candidates.find(signature);
      if (found == variants[v].candidates.end())
        job_failed("the schedule says nothing of a region that it comes to: {}", signature);
      const int candidate = found->second.empty() ? -1 : index_of(part, found->second);
      auto option = std::ranges::find(agenda.fixed, candidate);
      if (option == agenda.fixed.end()) {
        agenda.fixed.push_back(candidate);
        option = agenda.fixed.end() - 1;
        if (candidate >= 0) order.push_back(static_cast<std::size_t>(candidate));
      }
      choices[v].options.push_back(static_cast<std::size_t>(option - agenda.fixed.begin()));
    }
    agenda.leaders = order.size();
    if (std::ranges::find(agenda.fixed, -1) != agenda.fixed.end()) left.push_back(part);
  }
  while (try_next(parts_, progress)) {
  }
  for (const CoverPart& part : parts_)
    for (const int candidate : agenda_[at(part.space)].fixed)
      if (candidate >= 0 && !is_admitted(evidence_of(part), candidate))
        job_failed("{} was not admitted", candidate_of(part, candidate).id);
  admit_fallbacks(left, progress);
  return choices;
}

int Selector::index_of(const CoverPart& part, const std::string& id) {
  Space& space = plans_.spaces[at(part.space)];
  const std::optional<std::size_t> index =
      part.wanted
          ? find_candidate(step(), *part.wanted, plans_.options.at, plans_.device, space, id)
          : index_in(space, id);
  if (!index)
    job_failed("this program plans no {} for {}: compile the model again", id, space.signature);
  return static_cast<int>(*index);
}

}  // namespace ac
