#include "compile/compile.h"

#include <fmt/format.h>

#include <algorithm>

#include "admit/trials.h"
#include "base/error.h"
#include "base/warning.h"
#include "compile/effort.h"
#include "compile/model_folder.h"
#include "compile/stages.h"
#include "compile/states.h"
#include "generate/assemble.h"
#include "ir/assumptions.h"
#include "ir/incrementalise.h"
#include "ir/normalise.h"
#include "ir/positions.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "lab/trial_package.h"
#include "plan/cover.h"
#include "runtime/fingerprint.h"
#include "select/guide.h"
#include "select/select.h"

namespace ac {
namespace {

constexpr std::size_t kShown = 8;  // candidates of a space

// What computes a step after so many tokens and more, in order.
struct Variant {
  std::int64_t from = 0;
  std::vector<Implemented> parts;
};

// Stage 9's result.
struct Chosen {
  const CompiledPhase& phase;
  const Realiser& realiser;
  std::vector<Variant> variants;
};

// In this run, by the quick trial and by the final admission.
bool is_admitted(const Selection& selection, const Realiser& realiser) {
  const auto is_confirmed = [](const Confirmed& of) { return of.outcome.admitted(); };
  return !selection.trials.empty() && !selection.confirmed.empty() &&
         std::ranges::all_of(selection.confirmed, is_confirmed) &&
         std::ranges::all_of(selection.trials,
                             [&](const Json& trial) { return realiser.has_admitted(trial); });
}

// Nothing is selected that was not built, and admitted in this run.
void verify(const Chosen& chosen, const std::string&) {
  const Realiser& realiser = chosen.realiser;
  for (const Selection& selection : chosen.phase.selections)
    AC_ASSERT(selection.uses > 0 && is_admitted(selection, realiser));
  AC_ASSERT(is_admitted(chosen.phase.ending, realiser));
  for (const Variant& variant : chosen.variants)
    for (const Implemented& part : variant.parts)
      for (const KernelSource& source : part.made.sources)
        AC_ASSERT(realiser.kernels().count(source.entry) > 0 &&
                  realiser.has_admitted_kernel(source.entry, Purpose::quick) &&
                  realiser.has_admitted_kernel(source.entry, Purpose::as_used));
}

// Of what there is one way to do, and no fallback: the errors call it `what`.
Selection admit_only(const Request& request, const std::vector<Request>& confirmation,
                     const std::string& signature, const std::string& what, Realiser& realiser) {
  std::vector<Request> requests = confirmation;
  requests.insert(requests.begin(), request);
  const std::vector<Outcome> outcomes = realiser.realise(requests);
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

Selection admit_draw(const Program& program, Realiser& realiser) {
  const std::string dtype(short_name(program.dtype));
  return admit_only(trial_of_draw(program.dtype, program.vocab),
                    confirmation_of_draw(program.dtype, program.vocab),
                    fmt::format("draw {}[{}]", dtype, program.vocab),
                    fmt::format("what draws a token from {} logits of {}", dtype, program.vocab),
                    realiser);
}

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

Program empty_program(const Model& model, const StepGraph& step, const CompileOptions& options,
                      std::int64_t most, std::int64_t longest) {
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

RealiseOptions realise_options(const CompileOptions& options, Progress& progress) {
  RealiseOptions realise;
  realise.target = target_of(options.device);
  realise.here = options.here;
  realise.jobs = options.jobs;
  realise.verdicts = options.cache / "verdicts";
  realise.on_built = [&progress](std::size_t done, std::size_t total) {
    progress.step("kernels built", done, total);
  };
  return realise;
}

// Stages 4, 5, 7 to 9 for one phase after the other.
class PhaseCompiler {
 public:
  PhaseCompiler(const CompileOptions& options, const Program& program, Realiser& realiser,
                Stages& stages)
      : options_(options), program_(program), realiser_(realiser), stages_(stages) {}

  void plan(const StepGraph& instance, CompiledPhase& phase) {
    const Bindings at = priced_at(phase.spec.tuned_at, program_.max_context);
    phase.nodes = instance.graph.nodes.size();
    phase.regions = stages_.run(
        "regions", [&] { return analyse(instance); },
        [&](const Regions& regions) { return print(regions, at); }, phase.spec.name);
    phase.plans = stages_.run(
        "candidates",
        [&] {
          return ac::plan(phase.regions, options_.device,
                          {.max_candidates = options_.max_candidates,
                           .families = options_.families,
                           .at = at,
                           .fuse = options_.fuse});
        },
        [&](const Plans& plans) { return print(plans, phase.regions, kShown); }, phase.spec.name);
  }

  // What the selection of this phase will build first, beside what is timed of another.
  void build_ahead(CompiledPhase& phase) {
    if (!options_.here || options_.device.sm == 0 || options_.pinned.count(phase.spec.name) > 0)
      return;
    Selector selector(phase, program_.states, selecting(phase), realiser_);
    realiser_.build_ahead(selector.first_sources());
  }

  std::vector<Variant> select(CompiledPhase& phase, Guide* guide) {
    const std::string& name = phase.spec.name;
    const Realiser::Spent before = realiser_.spent();
    Chosen chosen = stages_.run(
        "selection",
        [&] {
          const auto pinned = options_.pinned.find(name);
          return Chosen{phase, realiser_,
                        pinned == options_.pinned.end() ? choose(phase, guide)
                                                        : as_pinned(phase, pinned->second)};
        },
        [&](const Chosen&) { return print(phase.selections); }, name);
    const Realiser::Spent& after = realiser_.spent();
    stages_.progress().note(
        fmt::format("{}: {:.1f} s building kernels, {:.1f} s judging, {:.1f} s timing", name,
                    after.building - before.building, after.judging - before.judging,
                    after.timing - before.timing));
    return std::move(chosen.variants);
  }

 private:
  SelectOptions selecting(const CompiledPhase& phase) const {
    return select_options(options_, phase.spec, program_.max_context);
  }

  std::vector<Variant> choose(CompiledPhase& phase, Guide* guide) {
    Selector selector(phase, program_.states, selecting(phase), realiser_, guide);
    const Implemented last = end(phase);
    selector.run(stages_.progress());
    const InContextOptions in_context = in_context_options(options_, phase.spec);
    if (!in_context.contexts.empty()) choose_cut(selector, in_context, last, phase);
    Alternatives alternatives;
    InContextChoices chosen;
    do {
      alternatives = selector.alternatives();
      chosen = choose_in_context(phase.regions.step, program_, alternatives, last, in_context,
                                 realiser_, stages_.progress());
    } while (!selector.confirm(chosen.choices, stages_.progress()));
    selector.record(chosen.choices);
    phase.in_context = std::move(chosen.contexts);
    std::vector<Variant> variants;
    for (const ContextChoice& choice : chosen.choices) {
      variants.push_back({choice.from, implemented(alternatives, choice)});
      variants.back().parts.push_back(last);
    }
    return variants;
  }

  // By the latency of whole steps, where that of their parts does not tell.
  void choose_cut(Selector& selector, const InContextOptions& in_context, const Implemented& last,
                  CompiledPhase& phase) {
    std::vector<NearCut> cuts = selector.near_cuts();
    if (cuts.size() < 2) return;
    const std::vector<double> times =
        time_cuts(phase.regions.step, program_, selector.as_implemented(cuts), last, in_context,
                  realiser_, stages_.progress());
    if (times.empty()) return;
    std::size_t best = static_cast<std::size_t>(std::ranges::min_element(times) - times.begin());
    if (times[best] > times[0] * kWorthwhile) best = 0;
    for (std::size_t i = 0; i < cuts.size(); ++i) {
      phase.cuts.push_back({cuts[i].what, times[i], i == best});
      if (i > 0)
        stages_.progress().note(fmt::format("{}: {:.1f} us a step, {:.1f} without{}", cuts[i].what,
                                            times[i], times[0], i == best ? ": taken" : ""));
    }
    selector.take(std::move(cuts[best]));
  }

  std::vector<Variant> as_pinned(CompiledPhase& phase, const Pinned& pinned) {
    const Implemented last = end(phase);
    std::vector<Variant> variants;
    for (PinnedVariant& variant : choose_pinned(phase, program_.states, selecting(phase), pinned,
                                                realiser_, stages_.progress())) {
      variants.push_back({variant.from, std::move(variant.parts)});
      variants.back().parts.push_back(last);
    }
    return variants;
  }

  // Makes the next step need nothing of the host.
  Implemented end(CompiledPhase& phase) {
    const StepGraph& step = phase.regions.step;
    const NodeId ids = ids_of(step);
    const DType dtype = step.graph.type(ids).dtype;
    phase.ending =
        admit_only(trial_of_advance(dtype, phase.spec.max_tokens),
                   confirmation_of_advance(dtype, phase.spec.max_tokens, program_.max_context),
                   "advance", "the kernel that ends a step", realiser_);
    return {generate_advance(step, ids, program_.max_context + 1), "advance"};
  }

  const CompileOptions& options_;
  const Program& program_;
  Realiser& realiser_;
  Stages& stages_;
};

// A phase on its way through the stages.
struct Job {
  CompiledPhase& phase;
  StepGraph instance;
  std::optional<Guide> guide = {};
  std::vector<Variant> variants = {};
};

// The program as a package would have it, where nobody else sees it.
PackageCheck check_whole(const Compiled& compiled, Realiser& realiser, Progress& progress) {
  const TemporaryFolder folder;
  std::vector<std::string> warnings;  // whoever writes the package says them
  write_fingerprint(fingerprint_of(compiled.program, warnings), folder.path());
  write_runnable(folder.path(), compiled.program, compiled.constants, realiser);
  PackageCheck check =
      check_package(folder.path(), compiled.program, compiled.step, realiser, progress);
  if (!check.ok())
    job_failed(
        "the whole program does not compute what plain kernels do, one an op, though each of its "
        "kernels was admitted: {}",
        check.fault);
  progress.summary(summary_of(to_json(check)));
  return check;
}

}  // namespace

bool CompiledPhase::is_measured() const {
  return !selections.empty() &&
         std::ranges::all_of(selections, [](const Selection& s) { return s.measured.has_value(); });
}

bool Compiled::is_measured() const {
  return !phases.empty() && std::ranges::all_of(phases, &CompiledPhase::is_measured);
}

Compiled compile(const Model& model, const CompileOptions& options, KernelBuilder& builder,
                 Stages& stages) {
  check_families(options.families);
  Compiled compiled;
  if (const std::string unused = unused_layers(model); !unused.empty()) warn_of(unused);
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
      "incrementalise", [&] { return incrementalise(normal); },
      [](const StepGraph& made) { return print(made); });

  compiled.step = prefill_instance(step);
  const std::int64_t most = max_context(step, options.max_context, known_positions(model));
  const std::vector<PhaseSpec> specs = phases_of(options, most);
  for (const PhaseSpec& spec : specs) compiled.phases.emplace_back().spec = spec;
  const Program empty = empty_program(model, step, options, most, longest_step(specs));
  Realiser realiser(builder, realise_options(options, stages.progress()));
  PhaseCompiler phases(options, empty, realiser, stages);
  std::vector<Job> jobs;
  for (CompiledPhase& phase : compiled.phases)
    jobs.push_back({phase, instance_of(step, phase.spec)});
  for (Job& job : jobs) phases.plan(job.instance, job.phase);
  // All steps at once: whoever answers sees all questions together.
  if (options.advisor) {
    compiled.advisor = options.advisor->name();
    compiled.advise_share = options.advisor->share();
    std::vector<Guide*> guides;
    for (Job& job : jobs)
      guides.push_back(&job.guide.emplace(job.phase.spec.name, job.phase, *options.advisor));
    ask(*options.advisor, guides, stages.progress());
  }
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    Job& job = jobs[i];
    // What an advisor would rather have comes first.
    if (i + 1 < jobs.size() && !options.advisor) phases.build_ahead(jobs[i + 1].phase);
    job.variants = phases.select(job.phase, job.guide ? &*job.guide : nullptr);
  }

  compiled.program = stages.run(
      "program",
      [&] {
        Program program = empty;
        compiled.draw = admit_draw(program, realiser);
        Assembler assembler(program);
        for (const Job& job : jobs) {
          const PhaseSpec& spec = job.phase.spec;
          const StepGraph& instance = job.phase.regions.step;
          const NodeId logits = instance.graph.outputs.at(0).node;
          for (const Variant& variant : job.variants)
            program.phases.push_back(
                assembler.phase(instance,
                                {.name = spec.name,
                                 .min_tokens = spec.min_tokens,
                                 .max_tokens = spec.max_tokens,
                                 .from = variant.from,
                                 .rows = spec.rows},
                                variant.parts, generate_draw(instance, ids_of(instance), logits)));
        }
        plan_memory(program);
        for (const Phase& phase : program.phases)
          for (const Launch* launch : phase.all()) {
            if (launch->product) continue;
            compiled.kernels.emplace(launch->kernel, realiser.kernels().at(launch->kernel));
            program.kernels[launch->kernel] =
                launch->kernel + (options.device.sm > 0 ? ".cubin" : ".so");
          }
        compiled.constants = assembler.constants();
        return program;
      },
      [](const Program& program) { return to_json(program).dump(1) + "\n"; });
  compiled.check = stages.run(
      "check", [&] { return check_whole(compiled, realiser, stages.progress()); },
      [](const PackageCheck& check) { return to_json(check).dump(1) + "\n"; });
  compiled.times = stages.times();
  return compiled;
}

}  // namespace ac
