#include "select/choose_phase.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "admit/trials.h"
#include "base/error.h"
#include "base/warning.h"
#include "ir/positions.h"

namespace ac {
namespace {

// Of what there is one way to do, and no fallback: the errors call it `what`.
Selection admit_only(const Request& request, const std::vector<Request>& confirmation,
                     const std::string& signature, const std::string& what, Lab& lab) {
  std::vector<Request> requests = confirmation;
  requests.insert(requests.begin(), request);
  const std::vector<Outcome> outcomes = lab.judge(requests);
  for (std::size_t i = 0; i < requests.size(); ++i)
    if (!outcomes[i].admitted())
      job_failed("{} was not admitted ({}): {}", what, to_string(requests[i].trial.purpose),
                 outcomes[i].why);
  const Outcome& outcome = outcomes[0];
  Selection only;
  for (std::size_t i = 1; i < requests.size(); ++i)
    only.confirmed.push_back({request.name, requests[i].trial.purpose, outcomes[i]});
  only.signature = signature;
  only.uses = 1;
  only.candidate = only.family = request.name;
  only.ops = {request.name};
  only.attempts = {{request.name, 0, {}, outcome}};
  only.trials = {to_json(request.trial)};
  for (const KernelSource& source : request.sources) only.kernels.push_back(source.entry);
  return only;
}

// Makes the next step need nothing of the host.
Selection admit_ending(const PhasePlan& phase, const Program& program, Lab& lab) {
  const StepGraph& step = phase.regions.step;
  const DType dtype = step.graph.type(ids_of(step)).dtype;
  const std::int64_t tokens = phase.spec.max_tokens;
  return admit_only(trial_of_advance(dtype, tokens),
                    confirmation_of_advance(dtype, tokens, program.max_context), "advance",
                    "the kernel that ends a step", lab);
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

// Compares the fastest wanted option of each site with the fastest of all, each timed by itself.
// Gives the microseconds that a step would lose by the wanted one. Sites without one are left out.
std::map<std::size_t, double> losses_of(const Alternatives& all,
                                        const std::function<bool(const Implemented&)>& is_wanted) {
  std::map<std::size_t, double> losses;
  for (const Alternatives::Part& part : all.parts) {
    std::optional<double> best, wanted;
    for (std::size_t i = 0; i < part.options.size(); ++i) {
      const std::optional<double> us = part.alone_us[i];
      if (us && (!best || *us < *best)) best = us;
      if (us && is_wanted(part.options[i]) && (!wanted || *us < *wanted)) wanted = us;
    }
    if (wanted) losses[part.site] += *wanted - *best;
  }
  return losses;
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
    searched_->chosen = choose_in_context(phase_->regions.step, *program_, searched_->alternatives,
                                          last_, options_.in_context, *lab_, progress);
    // One of them may have broken the steps that others were to be timed in.
    const bool is_timed = std::ranges::all_of(
        searched_->chosen.contexts, [](const InContext& of) { return of.untimed.empty(); });
    if (is_timed || !selector.judge_left(progress)) break;
    selector.race_left(progress);
  }
  if (options_.for_several) choose_for_several(progress);
}

// Products that compute a few tokens as one, if no context's step takes more than a hundredth
// longer; otherwise all but those that lose most.
void PhaseChooser::choose_for_several(Progress& progress) {
  constexpr double kNextToNothing = 1.01;
  const Alternatives& all = searched_->alternatives;
  const std::vector<InContext>& before = searched_->chosen.contexts;
  InContextOptions quickly = options_.in_context;
  quickly.limit /= 4;
  const auto is_wanted = [](const Implemented& option) {
    return computes_few_as_one(option.note.substr(0, option.note.find('/')));
  };
  std::map<std::size_t, double> losses = losses_of(all, is_wanted);
  while (!losses.empty()) {
    const FewerAlternatives fewer = fewer_of(all, [&](std::size_t site, const Implemented& option) {
      return losses.contains(site) && is_wanted(option);
    });
    if (!fewer.is_fewer) return;
    progress.note(
        fmt::format("decode with products of {} kinds that sequences can share:", losses.size()));
    InContextChoices chosen = choose_in_context(phase_->regions.step, *program_, fewer.left, last_,
                                                quickly, *lab_, progress);
    const auto is_slower = [&](const InContext& of) {
      const auto known = std::ranges::find(before, of.context, &InContext::context);
      return !of.untimed.empty() || of.us > known->us * kNextToNothing;
    };
    if (std::ranges::none_of(chosen.contexts, is_slower)) {
      for (ContextChoice& choice : chosen.choices) choice = fewer.whole(choice);
      searched_->chosen = std::move(chosen);
      return;
    }
    progress.note("not taken: a step takes more than 1 % longer");
    losses.erase(std::ranges::max_element(losses, {}, [](const auto& of) { return of.second; }));
  }
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
  return admit_only(trial_of_draw(program.dtype, program.vocab),
                    confirmation_of_draw(program.dtype, program.vocab),
                    fmt::format("draw {}[{}]", dtype, program.vocab),
                    fmt::format("what draws a token from {} logits of {}", dtype, program.vocab),
                    lab);
}

Selection admit_mask(const Program& program, Lab& lab) {
  const std::string dtype(short_name(program.dtype));
  return admit_only(
      trial_of_mask(program.dtype, program.vocab),
      confirmation_of_mask(program.dtype, program.vocab),
      fmt::format("mask {}[{}]", dtype, program.vocab),
      fmt::format("what chooses under a mask from {} logits of {}", dtype, program.vocab), lab);
}

}  // namespace ac
