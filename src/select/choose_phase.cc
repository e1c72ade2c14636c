#include "select/choose_phase.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "admit/trials.h"
#include "base/error.h"
#include "base/warning.h"
#include "ir/positions.h"

namespace ac {
namespace {

// Judges kernels that have no alternative and no fallback; a kernel that is not admitted is an
// error, which calls it `what`. The first request is a quick trial.
Selection admit_only(const std::vector<Request>& requests, const std::string& signature,
                     const std::string& what, Lab& lab) {
  const std::vector<Outcome> outcomes = lab.judge(requests);
  Selection only;
  only.signature = signature;
  only.uses = 1;
  only.candidate = only.family = requests[0].name;
  only.ops = {requests[0].name};
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Request& request = requests[i];
    if (!outcomes[i].admitted())
      job_failed("{} was not admitted ({}): {}", what, to_string(request.trial.purpose),
                 outcomes[i].why);
    if (request.trial.purpose != Purpose::quick) {
      only.confirmed.push_back({request.name, request.trial.purpose, outcomes[i]});
      continue;
    }
    only.attempts.push_back({request.name, 0, {}, outcomes[i]});
    only.trials.push_back(to_json(request.trial));
    for (const KernelSource& source : request.sources) only.kernels.push_back(source.entry);
  }
  return only;
}

// With the trials that confirm it.
std::vector<Request> confirmed(Request quick, std::vector<Request> confirmation) {
  confirmation.insert(confirmation.begin(), std::move(quick));
  return confirmation;
}

std::vector<Request> of_rows(const std::vector<Request>& requests) {
  std::vector<Request> rows;
  for (const Request& request : requests) {
    std::optional<Request> of = trial_of_rows(request);
    AC_ASSERT(of);
    rows.push_back(*std::move(of));
  }
  return rows;
}

std::vector<Request> requests_of_advance(const StepGraph& step, std::int64_t tokens,
                                         std::int64_t max_context) {
  const DType dtype = step.graph.type(ids_of(step)).dtype;
  return confirmed(trial_of_advance(dtype, tokens),
                   confirmation_of_advance(dtype, tokens, max_context));
}

// Makes the next step need nothing of the host.
Selection admit_ending(const PhasePlan& phase, const Program& program, Lab& lab) {
  return admit_only(
      requests_of_advance(phase.regions.step, phase.spec.max_tokens, program.max_context),
      "advance", "the kernel that ends a step", lab);
}

// By the latency of whole steps, where that of their parts does not tell.
std::vector<TimedCut> choose_cut(Selector& selector, const PhasePlan& phase, const Program& program,
                                 const InContextOptions& in_context, const Implemented& last,
                                 Lab& lab, Progress& progress) {
  std::vector<NearCut> cuts = selector.near_cuts();
  if (cuts.size() < 2) return {};
  const std::vector<double> times = time_cuts(
      phase.regions.step, program, selector.as_implemented(cuts), last, in_context, lab, progress);
  if (times.empty()) return {};
  auto best = static_cast<std::size_t>(std::ranges::min_element(times) - times.begin());
  if (times[best] > times[0] * kWorthwhile) best = 0;
  std::vector<TimedCut> timed;
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    timed.push_back({cuts[i].what, times[i], i == best});
    if (i > 0)
      progress.note(fmt::format("{}: {:.1f} us a step, {:.1f} without{}", cuts[i].what, times[i],
                                times[0], i == best ? ": taken" : ""));
  }
  selector.take(std::move(cuts[best]), progress);
  return timed;
}

bool is_of_few(const Implemented& option) {
  return computes_few_as_one(option.note.substr(0, option.note.find('/')));
}

// The options that are wanted, by part and number; of sites that have none, all.
template <class IsWanted>
FewerAlternatives only(const Alternatives& all, const IsWanted& is_wanted) {
  std::vector<Options> kept(all.sites);
  for (const Alternatives::Part& part : all.parts) {
    Options& of = kept[part.site];
    if (!of.empty()) continue;
    for (std::size_t i = 0; i < part.options.size(); ++i)
      if (is_wanted(part, i)) of.push_back(i);
    if (!of.empty()) continue;
    of.resize(part.options.size());
    std::iota(of.begin(), of.end(), std::size_t{0});
  }
  return fewer_of(all, std::move(kept));
}

// In this run, by the quick trial and by the final admission.
bool is_admitted(const Selection& selection, const Lab& lab) {
  const auto is_confirmed = [](const Confirmed& of) { return of.outcome.admitted(); };
  return !selection.trials.empty() && !selection.confirmed.empty() &&
         std::ranges::all_of(selection.confirmed, is_confirmed) &&
         std::ranges::all_of(selection.trials,
                             [&](const Json& trial) { return lab.has_admitted(trial); });
}

}  // namespace

bool CompiledPhase::is_measured() const {
  // Rows that run by themselves are decode's.
  return (!selections.empty() || spec.rows == Rows::each) &&
         std::ranges::all_of(selections, [](const Selection& s) { return s.measured.has_value(); });
}

PhaseChooser::PhaseChooser(const PhasePlan& phase, const Program& program, ChooseOptions options,
                           Lab& lab, Guide* guide)
    : phase_(&phase),
      program_(&program),
      options_(std::move(options)),
      lab_(&lab),
      guide_(guide),
      last_{
          generate_advance(phase.regions.step, ids_of(phase.regions.step), program.max_context + 1),
          "advance"} {}

std::vector<KernelSource> PhaseChooser::first_sources() const {
  return Selector(*phase_, program_->states, options_.select, *lab_).first_sources();
}

void PhaseChooser::search(Progress& progress) {
  const InContextOptions& in_context = options_.in_context;
  lab_->build(last_.made.sources);
  searched_.emplace(
      Searched{Selector(*phase_, program_->states, options_.select, *lab_, guide_), {}, {}, {}});
  Selector& selector = searched_->selector;
  selector.run(progress);
  if (!in_context.contexts.empty())
    searched_->cuts = choose_cut(selector, *phase_, *program_, in_context, last_, *lab_, progress);
  choose_steps(progress);
}

// By the latency of whole steps, of what is left.
void PhaseChooser::choose_steps(Progress& progress) {
  Selector& selector = searched_->selector;
  for (;;) {
    searched_->alternatives = selector.alternatives();
    searched_->chosen = phase_->spec.shared ? choose_for_several(progress)
                                            : choose_among(searched_->alternatives, progress);
    // One of them may have broken the steps that others were to be timed in.
    const bool is_timed = std::ranges::all_of(
        searched_->chosen.contexts, [](const InContext& of) { return of.untimed.empty(); });
    if (is_timed || !selector.judge_left(progress)) break;
    selector.race_left(progress);
  }
}

InContextChoices PhaseChooser::choose_among(const Alternatives& alternatives, Progress& progress) {
  return choose_in_context(phase_->regions.step, *program_, alternatives, last_,
                           options_.in_context, *lab_, progress);
}

// The fastest step of one sequence and, at each context where it costs little more, the fastest one
// by products that compute a few tokens as one. All other parts are chosen anew for these: what is
// fastest beside one kind of product need not be so beside the other.
InContextChoices PhaseChooser::choose_for_several(Progress& progress) {
  const Alternatives& all = searched_->alternatives;
  if (options_.in_context.contexts.empty()) return choose_among(all, progress);
  using Part = Alternatives::Part;
  const FewerAlternatives as_alone =
      only(all, [](const Part& part, std::size_t i) { return !part.for_several[i]; });
  const FewerAlternatives few =
      only(all, [](const Part& part, std::size_t i) { return is_of_few(part.options[i]); });
  const auto choose = [&](const FewerAlternatives& fewer) {
    InContextChoices chosen = choose_among(fewer.left, progress);
    for (ContextChoice& choice : chosen.choices) choice = fewer.whole(choice);
    return chosen;
  };
  const InContextChoices one = choose(as_alone);
  if (few.options == as_alone.options) return one;
  progress.note("the same with products that several sequences can share:");
  const InContextChoices several = choose(few);
  InContextChoices made = merged(one, several, options_.slowdown);
  std::vector<std::int64_t> shared;
  for (std::size_t i = 0; i < made.contexts.size(); ++i)
    if (costs_little(one.contexts[i], several.contexts[i], options_.slowdown))
      shared.push_back(made.contexts[i].context);
  progress.note(shared.empty() ? fmt::format("not taken: no step takes at most {:g} % longer",
                                             100 * (options_.slowdown - 1))
                               : fmt::format("taken after {} tokens", fmt::join(shared, ", ")));
  return made;
}

PhaseChoice PhaseChooser::choose_searched(Progress& progress) {
  if (!searched_) search(progress);
  Selector& selector = searched_->selector;
  while (!selector.confirm(searched_->chosen.choices, progress)) choose_steps(progress);
  PhaseChoice made;
  CompiledPhase& record = made.record;
  static_cast<PhasePlan&>(record) = *phase_;
  record.plans = selector.plans();
  record.cuts = searched_->cuts;
  record.selections = selector.selections(searched_->chosen.choices);
  record.abandoned = selector.abandoned();
  record.in_context = searched_->chosen.contexts;
  if (guide_) record.advice = guide_->advised();
  for (const ContextChoice& choice : searched_->chosen.choices)
    made.variants.push_back(
        {choice.from, implemented(searched_->alternatives, choice), selector.choices(choice)});
  return made;
}

// Nothing where a known choice is not admitted here.
std::optional<PhaseChoice> PhaseChooser::take_known(Progress& progress) {
  const KnownPhase& known = *options_.known;
  try {
    PhaseChoice made =
        choose_pinned(*phase_, program_->states, options_.select, *known.whole, *lab_, progress);
    made.record.known = known.origin;
    return made;
  } catch (const Error& error) {
    if (error.fault() != Fault::job_failed) throw;
    warn("{}: its choice for {} is not taken ({}); it is selected anew", known.origin,
         phase_->spec.name, error.what());
    options_.known = nullptr;
    return std::nullopt;
  }
}

PhaseChoice PhaseChooser::choose(Progress& progress) {
  Selection ending = admit_ending(*phase_, *program_, *lab_);
  std::optional<PhaseChoice> chosen;
  if (options_.pinned)
    chosen = choose_pinned(*phase_, program_->states, options_.select, *options_.pinned, *lab_,
                           progress);
  else if (is_given())
    chosen = take_known(progress);
  PhaseChoice made = chosen ? *std::move(chosen) : choose_searched(progress);
  made.record.ending = std::move(ending);
  for (StepVariant& variant : made.variants) variant.parts.push_back(last_);
  return made;
}

std::optional<PhaseChoice> PhaseChooser::foresee() const {
  Progress quiet(true);
  PhaseChooser copy(*this);
  copy.options_.pinned = options_.taken();  // what cannot be taken is searched only in earnest
  if (!copy.options_.pinned && !searched_ && lab_->measures()) return std::nullopt;
  try {
    return copy.choose(quiet);
  } catch (const Error& error) {
    if (error.fault() != Fault::job_failed) throw;
    return std::nullopt;
  }
}

void verify(const PhaseChoice& chosen, const std::string&) {
  AC_ASSERT(!chosen.variants.empty() && chosen.variants[0].from == 0);
  for (const Selection& selection : chosen.record.selections) AC_ASSERT(selection.uses > 0);
}

void require_admitted(const PhaseChoice& chosen, const Lab& lab) {
  for (const Selection& selection : chosen.record.selections)
    AC_ASSERT(is_admitted(selection, lab));
  AC_ASSERT(is_admitted(chosen.record.ending, lab));
  for (const StepVariant& variant : chosen.variants)
    for (const Implemented& part : variant.parts)
      for (const KernelSource& source : part.made.sources)
        AC_ASSERT(lab.kernels().count(source.entry) > 0 &&
                  lab.has_admitted_kernel(source.entry, Purpose::quick) &&
                  lab.has_admitted_kernel(source.entry, Purpose::as_used));
}

Selection admit_draw(const Program& program, Lab& lab) {
  const std::string dtype(short_name(program.dtype));
  return admit_only(confirmed(trial_of_draw(program.dtype, program.vocab),
                              confirmation_of_draw(program.dtype, program.vocab)),
                    fmt::format("draw {}[{}]", dtype, program.vocab),
                    fmt::format("what draws a token from {} logits of {}", dtype, program.vocab),
                    lab);
}

Selection admit_mask(const Program& program, bool of_several, Lab& lab) {
  const std::string dtype(short_name(program.dtype));
  std::vector<Request> requests = confirmed(trial_of_mask(program.dtype, program.vocab),
                                            confirmation_of_mask(program.dtype, program.vocab));
  if (of_several) {
    const std::vector<Request> rows = of_rows(requests);
    requests.insert(requests.end(), rows.begin(), rows.end());
  }
  return admit_only(
      requests, fmt::format("mask {}[{}]", dtype, program.vocab),
      fmt::format("what chooses under a mask from {} logits of {}", dtype, program.vocab), lab);
}

Selection admit_ending_of_rows(const StepGraph& step, const Program& program, Lab& lab) {
  return admit_only(of_rows(requests_of_advance(step, 1, program.max_context)), "advance of rows",
                    "the kernel that ends a step of several sequences", lab);
}

}  // namespace ac
