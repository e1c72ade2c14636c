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
#include "runtime/fingerprint.h"
#include "select/choose_phase.h"
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

LabOptions lab_options(const CompileOptions& options, Progress& progress) {
  LabOptions made;
  made.target = target_of(options.device);
  made.here = options.here;
  made.jobs = options.jobs;
  made.verdicts = options.cache / "verdicts";
  made.on_built = [&progress](std::size_t done, std::size_t total) {
    progress.step("kernels built", done, total);
  };
  return made;
}

// Stages 4 and 5 of one phase.
PhasePlan plan_phase(const StepGraph& step, const PhaseSpec& spec, const CompileOptions& options,
                     std::int64_t max_context, Stages& stages) {
  const Bindings at = priced_at(spec.tuned_at, max_context);
  PhasePlan phase{spec, {}, {}};
  phase.regions = stages.run(
      "regions", [&] { return analyse(instance_of(step, spec)); },
      [&](const Regions& regions) { return print(regions, at); }, spec.name);
  phase.plans = stages.run(
      "candidates",
      [&] {
        return plan(phase.regions, options.device,
                    {.max_candidates = options.max_candidates,
                     .families = options.families,
                     .at = at,
                     .fuse = options.fuse});
      },
      [&](const Plans& plans) { return print(plans, phase.regions, kShown); }, spec.name);
  return phase;
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

// What the selection of this phase will build first, beside what is timed of another. With an
// advisor, what it would rather have comes first.
void build_ahead(const PhasePlan& phase, const Program& sized, const CompileOptions& options,
                 Lab& lab) {
  if (!options.here || options.device.sm == 0 || options.advisor ||
      options.pinned.count(phase.spec.name) > 0)
    return;
  Selector selector(phase, sized.states, select_options(options, phase.spec, sized.max_context),
                    lab);
  lab.build_ahead(selector.first_sources());
}

// Stages 7 to 9 of one phase.
PhaseChoice choose(const PhasePlan& phase, const Program& sized, const CompileOptions& options,
                   Lab& lab, Guide* guide, Stages& stages) {
  const auto pinned = options.pinned.find(phase.spec.name);
  const ChooseOptions choosing{select_options(options, phase.spec, sized.max_context),
                               in_context_options(options, phase.spec),
                               pinned == options.pinned.end() ? nullptr : &pinned->second};
  const Lab::Spent before = lab.spent();
  PhaseChoice chosen = stages.run(
      "selection",
      [&] { return choose_phase(phase, sized, choosing, lab, guide, stages.progress()); },
      [](const PhaseChoice& made) { return print(made.record.selections); }, phase.spec.name);
  require_admitted(chosen, lab);
  const Lab::Spent& after = lab.spent();
  stages.progress().note(
      fmt::format("{}: {:.1f} s building kernels, {:.1f} s judging, {:.1f} s timing",
                  phase.spec.name, after.building - before.building, after.judging - before.judging,
                  after.timing - before.timing));
  return chosen;
}

// Stage 10.
void assemble(const std::vector<PhaseChoice>& choices, const Lab& lab, Compiled& into) {
  Program& program = into.program;
  Assembler assembler(program);
  for (const PhaseChoice& choice : choices) {
    const PhaseSpec& spec = choice.record.spec;
    const StepGraph& step = choice.record.regions.step;
    const NodeId logits = step.graph.outputs.at(0).node;
    for (const StepVariant& variant : choice.variants)
      program.phases.push_back(assembler.phase(step,
                                               {.name = spec.name,
                                                .min_tokens = spec.min_tokens,
                                                .max_tokens = spec.max_tokens,
                                                .from = variant.from,
                                                .rows = spec.rows},
                                               variant.parts,
                                               generate_draw(step, ids_of(step), logits)));
  }
  plan_memory(program);
  const std::string suffix = program.target == "host" ? ".so" : ".cubin";
  for (const Phase& phase : program.phases)
    for (const Launch* launch : phase.all()) {
      if (launch->product) continue;
      into.kernels.emplace(launch->kernel, lab.kernels().at(launch->kernel));
      program.kernels[launch->kernel] = launch->kernel + suffix;
    }
  into.constants = assembler.constants();
}

// The program as a package would have it, where nobody else sees it.
PackageCheck check_whole(const Compiled& compiled, Lab& lab, Progress& progress) {
  const TemporaryFolder folder;
  std::vector<std::string> warnings;  // whoever writes the package says them
  write_fingerprint(fingerprint_of(compiled.program, warnings), folder.path());
  write_runnable(folder.path(), compiled.program, compiled.constants, lab);
  PackageCheck check = check_package(folder.path(), compiled.program, compiled.step, lab, progress);
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
      "incrementalise", [&] { return incrementalise(normal); },
      [](const StepGraph& made) { return print(made); });
  compiled.step = prefill_instance(step);

  const std::int64_t most = max_context(step, options.max_context, known_positions(model));
  const std::vector<PhaseSpec> specs = phases_of(options, most);
  const Program sized = empty_program(model, step, options, most, longest_step(specs));
  std::vector<PhasePlan> plans;
  for (const PhaseSpec& spec : specs)
    plans.push_back(plan_phase(step, spec, options, most, stages));
  std::vector<Guide> guides = advise(plans, options, stages.progress());

  Lab lab(builder, lab_options(options, stages.progress()));
  std::vector<PhaseChoice> choices;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    if (i + 1 < plans.size()) build_ahead(plans[i + 1], sized, options, lab);
    choices.push_back(
        choose(plans[i], sized, options, lab, guides.empty() ? nullptr : &guides[i], stages));
  }

  compiled.program = stages.run(
      "program",
      [&] {
        compiled.program = sized;
        compiled.draw = admit_draw(sized, lab);
        assemble(choices, lab, compiled);
        return compiled.program;
      },
      [](const Program& program) { return to_json(program).dump(1) + "\n"; });
  compiled.check = stages.run(
      "check", [&] { return check_whole(compiled, lab, stages.progress()); },
      [](const PackageCheck& check) { return to_json(check).dump(1) + "\n"; });
  for (PhaseChoice& choice : choices) compiled.phases.push_back(std::move(choice.record));
  if (options.advisor) {
    compiled.advisor = options.advisor->name();
    compiled.advise_share = options.advisor->share();
  }
  compiled.times = stages.times();
  return compiled;
}

}  // namespace ac
