#include "cli/tuned_package.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "emit/plan_file.h"
#include "runtime/engine.h"

namespace ac {

TunedPackage::TunedPackage(const std::string& package)
    : package_(package),
      origin_(package + "/plan.json"),
      program_(read_program(PackageFiles(package))),
      plan_(read_plan_json(PackageFiles(package))),
      draft_(package, true) {}

void TunedPackage::check(const SourceArguments& source) const {
  const KvStorage kv = storage_of(program_.states);
  if (source.kv && *source.kv != kv)
    wrong_usage("{} was compiled with --kv {}, and not {}", package_, name_of(kv),
                name_of(*source.kv));
  if (source.dtype && source.dtype != program_.dtype)
    wrong_usage("{} computes in {}: tuning leaves that as it is (--dtype {} is another package)",
                package_, torch_name(program_.dtype), torch_name(*source.dtype));
}

void TunedPackage::check(const DeviceInfo& device) const {
  if (device.target != program_.target)
    wrong_usage("{} is for {}, and the GPU of this machine is {}", package_, program_.target,
                device.target);
}

void TunedPackage::check(const Model& model) const {
  if (model.graph.name != program_.model)
    wrong_usage("{} was compiled from {}, and SOURCE is {}", package_, program_.model,
                model.graph.name);
}

void TunedPackage::complete(TuneOptions& options) const {
  options.context = std::min<std::int64_t>(options.context, program_.max_context - 1);
  options.dtype = program_.dtype;
  options.states = program_.states;
  options.kv = storage_of(program_.states);
}

std::string TunedPackage::phase_after(std::int64_t context) const {
  return program_.phase_of(1, context).name;
}

CompileOptions TunedPackage::compile_options(const TuneOptions& options) const {
  CompileOptions compiling;
  compiling.device = options.device;
  compiling.dtype = program_.dtype;
  compiling.max_context = program_.max_context;
  compiling.phases = specs_of(program_, plan_, origin_);
  compiling.slots = program_.longest_step(Rows::each);
  compiling.max_candidates = options.max_candidates;
  compiling.jobs = options.jobs;
  compiling.cache = options.cache;
  return compiling;
}

Compiled TunedPackage::rewrite(const Model& model, const CompileOptions& options,
                               const std::filesystem::path& sources, KernelBuilder& builder,
                               Progress& progress) {
  Stages stages(progress);
  Compiled compiled = compile(model, options, builder, stages);
  draft_.write(compiled, model, sources);
  progress.done();
  return compiled;
}

TunedStep TunedPackage::tune_step(const Model& model, const StepTuneOptions& options,
                                  KernelBuilder& builder, Progress& progress) {
  const std::string phase = phase_after(options.context);
  TunedStep tuned =
      ac::tune_step(model, program_, pinned_as(plan_, phase, origin_), options, builder, progress);
  if (!tuned.decode) return tuned;
  CompileOptions compiling = compile_options(options);
  for (const PhaseSpec& spec : compiling.phases)
    compiling.pinned[spec.name] = pinned_as(plan_, spec.name, origin_);
  compiling.pinned[phase] = *tuned.decode;
  rewrite(model, compiling, options.sources, builder, progress);
  return tuned;
}

namespace {

// How many microseconds a step took in each attempt, in order. An attempt that could not be timed
// is null.
Json tried_json(const TunedStep& tuned) {
  Json tried = Json::array();
  for (const search::PointAttempt& attempt : tuned.trace.attempts)
    tried.push_back(attempt.outcome.ok() ? Json(attempt.outcome.microseconds) : Json());
  return tried;
}

}  // namespace

Json to_json(const TunedStep& tuned) {
  const auto number = [](const std::optional<double>& us) { return us ? Json(*us) : Json(); };
  Json calls = Json::array();
  for (const ProposalCall& call : tuned.calls) calls.push_back(to_json(call));
  return {{"signature", tuned.signature},
          {"sites", tuned.sites},
          {"attempts", tuned.attempts},
          {"known", tuned.known},
          {"advised", tuned.advised},
          {"calls", std::move(calls)},
          {"failed", tuned.failed},
          {"tried_us", tried_json(tuned)},
          {"first_us", tuned.first_us},
          {"before_us", number(tuned.before_us)},
          {"best_us", number(tuned.best_us)},
          {"improved", tuned.decode.has_value()},
          {"plan", tuned.plan}};
}

void print(const TunedStep& tuned, const std::string& package, const StepTuneOptions& options) {
  fmt::print("{} schedules were tried ({} known), of {} sites with a choice\n", tuned.attempts,
             tuned.known, tuned.sites);
  if (options.advisor) fmt::print("{} schedules were advised\n", tuned.advised);
  if (options.proposer) {
    std::size_t proposed = 0;
    for (const ProposalCall& call : tuned.calls)
      proposed += static_cast<std::size_t>(std::ranges::count_if(call.audit, &AuditItem::accepted));
    fmt::print("{} changes were proposed in {} calls\n", proposed, tuned.calls.size());
    for (const ProposalCall& call : tuned.calls)
      for (const FieldRequest& of : call.requests)
        fmt::print("people are asked for {}, which was not run{}: {}\n",
                   search::to_string({of.site, of.field, of.value}),
                   of.is_known ? " (known: the space has it)" : "", of.why);
  }
  if (tuned.before_us)
    fmt::print("a step after {} tokens: {:.1f} us before, {:.1f} us with the best\n",
               options.context, *tuned.before_us, *tuned.best_us);
  else
    fmt::print("a step after {} tokens: {:.1f} us; none was faster\n", options.context,
               tuned.first_us);
  if (tuned.decode)
    fmt::print("{} has it now: {}\n", package, tuned.plan);
  else
    fmt::print("{} stays as it is\n", package);
}

}  // namespace ac
