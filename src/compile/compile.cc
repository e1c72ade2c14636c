#include "compile/compile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <future>

#include "admit/trials.h"
#include "base/error.h"
#include "base/timing_turn.h"
#include "base/warning.h"
#include "compile/effort.h"
#include "compile/model_folder.h"
#include "compile/stages.h"
#include "compile/states.h"
#include "generate/assemble.h"
#include "ir/assumptions.h"
#include "ir/graph_text.h"
#include "ir/incrementalise.h"
#include "ir/normalise.h"
#include "ir/positions.h"
#include "ir/verify.h"
#include "lab/trial_package.h"
#include "runtime/fingerprint.h"
#include "select/choose_together.h"
#include "select/guide.h"

namespace ac {
namespace {

constexpr std::size_t kShown = 8;  // candidates of a space

// Kernels do not look at what is assumed of attention scores: it must have been measured before.
void require_measured_scores(const Model& model, const Graph& graph) {
  const NodeId strictest = strictest_assumption(graph);
  if (strictest < 0 || model.scores == ScoresMeasured::of_the_model) return;
  const std::string assumed =
      fmt::format("{}: {}", describe(graph, strictest), what_is_assumed(graph[strictest]));
  if (model.scores == ScoresMeasured::of_a_small_model)
    return warn("{}; that was measured with small sizes and random weights alone: {}", assumed,
                model.checked);
  bad_input(
      "{}, and nobody has measured them ({}): capture the model with its check (--thorough for a "
      "large one), or let it hide with -inf or torch.finfo(dtype).min",
      assumed, model.checked.empty() ? "the capture says nothing of a check" : model.checked);
}

LabOptions lab_options(const CompileOptions& options, bool quick, Stages& stages) {
  LabOptions made;
  made.target = target_of(options.device);
  made.here = options.here, made.times = !quick;
  made.jobs = options.jobs;
  made.verdicts = options.cache / "verdicts";
  made.timeline = &stages.timeline();
  made.turns = turns_file(options.cache, options.here && options.device.sm > 0);
  made.on_built = [&progress = stages.progress()](std::size_t done, std::size_t total) {
    progress.step("kernels built", done, total);
  };
  return made;
}

// Stages 4 and 5. The phases' plans are made side by side.
std::vector<PhasePlan> plan_all(const StepGraph& step, const std::vector<PhaseSpec>& specs,
                                const CompileOptions& options, std::int64_t max_context,
                                Stages& stages) {
  std::vector<PhasePlan> phases;
  for (const PhaseSpec& spec : specs) {
    const Bindings at = priced_at(spec.tuned_at, max_context);
    PhasePlan& phase = phases.emplace_back(PhasePlan{spec, {}, {}});
    phase.regions = stages.run(
        "regions", [&] { return analyse(instance_of(step, spec)); },
        [&](const Regions& regions) { return print(regions, at); }, spec.name);
  }
  std::vector<std::future<Plans>> plans;
  for (const PhasePlan& phase : phases)
    plans.push_back(std::async(std::launch::async, [&] {
      return plan(phase.regions, options.device,
                  {.max_candidates = options.max_candidates,
                   .families = options.families,
                   .at = priced_at(phase.spec.tuned_at, max_context),
                   .fuse = options.fuse,
                   .shared = phase.spec.shared});
    }));
  for (std::size_t i = 0; i < phases.size(); ++i)
    phases[i].plans = stages.run(
        "candidates", [&] { return plans[i].get(); },
        [&](const Plans& made) { return print(made, phases[i].regions, kShown); },
        phases[i].spec.name);
  return phases;
}

// What a compilation selects: by search, as known choices say, or quickly.
struct Phases {
  std::vector<PhasePlan> plans;
  std::vector<KnownPhase> known;
  bool quick = false;

  bool is_all_known() const {
    return std::ranges::all_of(known, [](const KnownPhase& of) { return of.whole.has_value(); });
  }
};

// Stages 4 and 5 of all phases. A quick compilation has fewer, unless all are known: those cost as
// little.
Phases plan_phases(const StepGraph& step, const CompileOptions& options, std::int64_t max_context,
                   Stages& stages) {
  Phases made;
  const std::vector<PhaseSpec> specs = phases_of(options, max_context);
  const bool foresees = !options.quick || !options.known.empty();
  made.plans = plan_all(step, foresees ? specs : quick_phases(specs), options, max_context, stages);
  const auto look_up = [&] {
    made.known.clear();
    for (const PhasePlan& phase : made.plans) made.known.push_back(known_of(phase, options.known));
  };
  look_up();
  made.quick = options.quick && !made.is_all_known();
  if (!made.quick || !foresees) return made;
  std::vector<PhasePlan> quick;
  for (const PhaseSpec& spec : quick_phases(specs)) {
    const auto planned = std::ranges::find(made.plans, spec.name,
                                           [](const PhasePlan& phase) { return phase.spec.name; });
    quick.push_back(*std::move(planned));
    quick.back().spec = spec;
  }
  made.plans = std::move(quick);
  look_up();
  return made;
}

void say_known(const Phases& phases, const CompileOptions& options, Progress& progress) {
  if (options.known.empty()) return;
  std::vector<std::string> whole;
  for (std::size_t i = 0; i < phases.plans.size(); ++i)
    if (phases.known[i].whole)
      whole.push_back(fmt::format("{} by {}", phases.plans[i].spec.name, phases.known[i].origin));
  if (!whole.empty())
    progress.note(
        fmt::format("known choices, which are built, judged and checked, and not timed: {}",
                    fmt::join(whole, ", ")));
  for (const KnownChoices& known : options.known)
    if (!known.stale.empty())
      progress.note(
          fmt::format("{}: {}: its choices are tried first, and timed", known.origin, known.stale));
}

Program empty_program(const Model& model, const StepGraph& step, const CompileOptions& options,
                      const Phases& phases, std::int64_t most) {
  std::int64_t longest = 1;
  for (const PhasePlan& phase : phases.plans) longest = std::max(longest, phase.spec.max_tokens);
  Program program;
  program.model = step.graph.name;
  program.target = options.device.target;
  program.max_context = most;
  if (const TokenLimit limit = token_limit(step); limit.tokens < kMostTokens)
    program.positions = limit.tokens, program.positions_because = limit.why;
  program.states = sized_states(step, most, longest);
  const TensorType& logits = step.graph.type(step.graph.outputs.at(0).node);
  program.vocab = logits.shape.back().constant();
  program.dtype = logits.dtype;
  for (const auto& [name, path] : model.stores)
    program.stores[name] = std::filesystem::absolute(path).lexically_normal().string();
  return program;
}

// Stage 6, all phases at once: whoever answers sees all questions together. None without an
// advisor.
std::vector<Guide> advise(const std::vector<PhasePlan>& plans, const CompileOptions& options,
                          Progress& progress) {
  std::vector<Guide> guides;
  if (!options.advisor) return guides;
  for (const PhasePlan& phase : plans) guides.emplace_back(phase, *options.advisor);
  std::vector<Guide*> all;
  for (Guide& guide : guides) all.push_back(&guide);
  ask(*options.advisor, all, progress);
  return guides;
}

// How the phases are chosen.
class PhaseChoosing {
 public:
  PhaseChoosing(const Phases& phases, const Program& sized, const CompileOptions& options,
                std::vector<Guide>& guides, Lab& lab, Stages& stages)
      : phases_(phases), sized_(sized), options_(options), lab_(lab), stages_(stages) {
    for (std::size_t i = 0; i < phases.plans.size(); ++i)
      choosers_.emplace_back(phases.plans[i], sized, options_of(i), lab,
                             guides.empty() ? nullptr : &guides[i]);
  }

  // Times phase by phase: steps of few tokens first, as their kernels are built soonest. Kernels of
  // the other phases are built meanwhile, unless an advisor says which come first.
  void search() {
    if (!lab_.measures()) return;
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < choosers_.size(); ++i)
      if (!choosers_[i].is_given()) order.push_back(i);
    std::ranges::stable_sort(order, {},
                             [&](std::size_t i) { return phases_.plans[i].spec.max_tokens; });
    if (lab_.on_gpu() && !options_.advisor)
      for (const std::size_t i : order) lab_.build_ahead(choosers_[i].first_sources());
    for (const std::size_t i : order)
      stages_.run_alone("search", phases_.plans[i].spec.name,
                        [&] { choosers_[i].search(stages_.progress()); });
  }

  // The choices if nothing is refused, and what they ask of the gate; no choices where one fails.
  struct Foreseen {
    std::vector<PhaseChoice> choices;
    std::vector<Request> requests;
  };
  Foreseen foresee() {
    Foreseen made;
    made.requests = lab_.rehearse([&] {
      admit_draw(sized_, lab_);
      admit_mask(sized_, options_.slots > 1, lab_);
      for (const PhaseChooser& chooser : choosers_)
        if (std::optional<PhaseChoice> choice = chooser.foresee())
          made.choices.push_back(*std::move(choice));
    });
    if (made.choices.size() < choosers_.size()) made.choices.clear();
    return made;
  }

  // Stages 7 to 9 of one phase.
  PhaseChoice choose(std::size_t i) {
    const PhasePlan& phase = phases_.plans[i];
    PhaseChoice chosen = stages_.run(
        "selection", [&] { return choosers_[i].choose(stages_.progress()); },
        [](const PhaseChoice& made) { return print(made.record.selections); }, phase.spec.name);
    require_admitted(chosen, lab_);
    return chosen;
  }

 private:
  ChooseOptions options_of(std::size_t i) const {
    const PhaseSpec& spec = phases_.plans[i].spec;
    const auto pinned = options_.pinned.find(spec.name);
    ChooseOptions choosing{
        .select = select_options(options_, phases_.quick, spec, sized_.max_context),
        .in_context = in_context_options(options_, phases_.quick, spec),
        .slowdown = 1 + options_.slots_cost / 100,
        .pinned = pinned == options_.pinned.end() ? nullptr : &pinned->second,
        .known = &phases_.known[i]};
    for (const auto& [signature, candidates] : phases_.known[i].order) {
      std::vector<std::string>& first = choosing.select.preferred[signature];
      first.insert(first.end(), candidates.begin(), candidates.end());
    }
    return choosing;
  }

  const Phases& phases_;
  const Program& sized_;
  const CompileOptions& options_;
  Lab& lab_;
  Stages& stages_;
  std::vector<PhaseChooser> choosers_;
};

// Stages 7 to 9 of steps of several sequences.
std::vector<PhaseChoice> choose_together(const StepGraph& step,
                                         const std::vector<PhaseChoice>& choices,
                                         const Program& sized, const CompileOptions& options,
                                         bool quick, Lab& lab, Stages& stages) {
  const auto is_decode = [](const PhaseChoice& choice) {
    const PhaseSpec& spec = choice.record.spec;
    return spec.max_tokens == 1 && spec.rows == Rows::last;
  };
  const auto decode = std::ranges::find_if(choices, is_decode);
  AC_ASSERT(decode != choices.end());
  std::int64_t longest = 1;
  for (const PhaseChoice& choice : choices)
    longest = std::max(longest, choice.record.spec.max_tokens);
  std::vector<PhaseChoice> together;
  for (const PhaseSpec& spec : together_phases(options, longest)) {
    const TogetherOptions how{
        .device = options.device,
        .max_candidates = options.max_candidates,
        .families = options.families,
        .tries = select_options(options, quick, spec, sized.max_context).tries};
    together.push_back(stages.run(
        "selection",
        [&] { return choose_together(spec, step, *decode, sized, how, lab, stages.progress()); },
        [](const PhaseChoice& made) { return print(made.record.selections); }, spec.name));
    require_admitted(together.back(), lab);
  }
  return together;
}

// Stage 10.
void assemble(const std::vector<PhaseChoice>& choices, const Lab& lab, Compiled& into) {
  Program& program = into.program;
  Assembler assembler(program);
  for (const PhaseChoice& choice : choices) {
    const PhaseSpec& spec = choice.record.spec;
    const StepGraph& step = choice.record.regions.step;
    const NodeId logits = step.graph.outputs.at(0).node, ids = ids_of(step);
    const bool of_several = spec.rows == Rows::each;
    const Generated draw = of_several ? Generated{} : generate_draw(step, ids, logits);
    const Generated masked = (of_several ? generate_masked_rows : generate_masked)(
        step, ids, logits, program.max_context + 1);
    for (const StepVariant& variant : choice.variants)
      program.phases.push_back(assembler.phase(step,
                                               {.name = spec.name,
                                                .min_tokens = spec.min_tokens,
                                                .max_tokens = spec.max_tokens,
                                                .from = variant.from,
                                                .rows = spec.rows},
                                               variant.parts, draw, masked));
  }
  plan_memory(program);
  const std::string suffix = program.target == "host" ? ".so" : ".cubin";
  for (const Phase& phase : program.phases)
    for (const Launch* launch : phase.all()) {
      if (launch->product) continue;
      into.kernels.emplace(launch->kernel, lab.kernels().at(launch->kernel));
      program.kernels[launch->kernel] = launch->kernel + suffix;
    }
  // What trials run beside them: whoever admits the package again needs it.
  for (const PhaseChoice& choice : choices)
    for (const Selection& selection : choice.record.selections)
      for (const Json& trial : selection.trials)
        for (const Json& launch : trial.value("alone", Json::array())) {
          const auto kernel = launch.at("kernel").get<std::string>();
          into.kernels.emplace(kernel, lab.kernels().at(kernel));
        }
  into.constants = assembler.constants();
}

// The program as a package would have it, where nobody else sees it.
PackageCheck check_alone(const Compiled& compiled, Lab& lab, Progress& progress,
                         PackageCheckOptions options = {}) {
  const TemporaryFolder folder;
  std::vector<std::string> warnings;  // whoever writes the package says them
  write_fingerprint(fingerprint_of(compiled.program, warnings), folder.path());
  write_runnable(folder.path(), compiled.program, compiled.constants, lab);
  options.quick = compiled.program.quick;
  return check_package(folder.path(), compiled.program, compiled.step, lab, progress, options);
}

// The check of the program that is chosen if nothing is refused.
struct CheckedBeside {
  Program program;
  std::optional<PackageCheck> check;

  bool holds_for(const Program& chosen) const {
    return check && check->done && check->ok() && to_json(program) == to_json(chosen);
  }
};

// Judges what is chosen if nothing is refused, all at once. On a GPU, its program is checked
// meanwhile: judging keeps the cores busy, and the check the GPU.
CheckedBeside judge_at_once(PhaseChoosing::Foreseen foreseen, const Compiled& sized, Lab& lab) {
  CheckedBeside made;
  if (!lab.on_gpu() || foreseen.choices.empty()) {
    lab.judge(foreseen.requests);
    return made;
  }
  std::vector<KernelSource> sources;
  for (const Request& request : foreseen.requests)
    sources.insert(sources.end(), request.sources.begin(), request.sources.end());
  lab.build(sources);
  Compiled compiled = sized;
  assemble(foreseen.choices, lab, compiled);
  made.program = compiled.program;
  lab.build(check_sources(compiled.program, compiled.step));
  std::future<void> judging = std::async(std::launch::async, [&] { lab.judge(foreseen.requests); });
  Progress quiet(true);
  try {
    made.check = check_alone(compiled, lab, quiet, {.beside_judges = true});
  } catch (const Error& error) {
    if (error.fault() != Fault::job_failed) throw;  // what is wrong is said when it is done alone
  }
  judging.get();
  return made;
}

PackageCheck check_whole(const Compiled& compiled, const CheckedBeside& beside, Lab& lab,
                         Progress& progress) {
  const PackageCheck check =
      beside.holds_for(compiled.program) ? *beside.check : check_alone(compiled, lab, progress);
  if (!check.ok())
    job_failed(
        "the whole program does not compute what plain kernels do, one an op, though each of its "
        "kernels was admitted: {}",
        check.fault);
  progress.summary(summary_of(to_json(check)));
  return check;
}

}  // namespace

bool Compiled::is_measured() const {
  return !phases.empty() && std::ranges::all_of(phases, &CompiledPhase::is_measured);
}

Compiled compile(const Model& model, const CompileOptions& options, KernelBuilder& builder,
                 Stages& stages) {
  check_families(options.families);
  if (const std::string unused = unused_layers(model); !unused.empty()) warn_of(unused);
  Compiled compiled;
  const Graph normal = stages.run(
      "normalise",
      [&] {
        const Graph graph = normalise(model.graph);
        compiled.own_dtype = main_dtype(graph);
        compiled.dtype = options.dtype.value_or(compiled.own_dtype);
        return compute_in(graph, compiled.dtype);
      },
      [](const Graph& graph) { return print(graph); });
  require_measured_scores(model, normal);
  const StepGraph step = stages.run(
      "incrementalise", [&] { return incrementalise(normal, options.kv); },
      [](const StepGraph& made) { return print(made); });
  compiled.step = prefill_instance(step);

  const std::int64_t most = max_context(step, options.max_context, known_positions(model));
  const Phases phases = plan_phases(step, options, most, stages);
  say_known(phases, options, stages.progress());
  const Program sized = empty_program(model, step, options, phases, most);
  std::vector<Guide> guides = advise(phases.plans, options, stages.progress());

  Lab lab(builder, lab_options(options, phases.quick, stages));
  PhaseChoosing choosing(phases, sized, options, guides, lab, stages);
  choosing.search();
  compiled.program = sized;
  compiled.program.quick = phases.quick;
  CheckedBeside beside;
  stages.run_alone("admission", "",
                   [&] { beside = judge_at_once(choosing.foresee(), compiled, lab); });
  std::vector<PhaseChoice> choices;
  for (std::size_t i = 0; i < phases.plans.size(); ++i) choices.push_back(choosing.choose(i));
  for (PhaseChoice& choice :
       choose_together(step, choices, sized, options, phases.quick, lab, stages))
    choices.push_back(std::move(choice));
  const Lab::Spent& spent = lab.spent();
  stages.progress().note(fmt::format("{:.1f} s building kernels, {:.1f} s judging, {:.1f} s timing",
                                     spent.building, spent.judging, spent.timing));

  compiled.program = stages.run(
      "program",
      [&] {
        compiled.draw = admit_draw(sized, lab);
        compiled.mask = admit_mask(sized, options.slots > 1, lab);
        assemble(choices, lab, compiled);
        return compiled.program;
      },
      [](const Program& program) { return to_json(program).dump(1) + "\n"; });
  compiled.check = stages.run(
      "check", [&] { return check_whole(compiled, beside, lab, stages.progress()); },
      [](const PackageCheck& check) { return to_json(check).dump(1) + "\n"; });
  for (PhaseChoice& choice : choices) compiled.phases.push_back(std::move(choice.record));
  if (options.advisor) {
    compiled.advisor = options.advisor->name();
    compiled.advise_share = options.advisor->share();
  }
  compiled.made_on = options.made_on;
  compiled.times = stages.times();
  return compiled;
}

}  // namespace ac
