#include "compile/compile.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "compile/assemble.h"
#include "compile/cover.h"
#include "compile/positions.h"
#include "compile/select.h"
#include "ir/incrementalise.h"
#include "ir/normalise.h"

namespace ac {
namespace {

constexpr std::int64_t kDefaultContext = 4096;

std::vector<CacheSpec> cache_specs(const StepGraph& step, std::int64_t max_context,
                                   std::int64_t chunk) {
  std::vector<CacheSpec> specs;
  for (const Cache& cache : step.caches) {
    std::int64_t slots = max_context;
    // A step of many tokens overwrites no token that its first one still sees.
    if (cache.window > 0) slots = std::min(slots, cache.window + chunk - 1);
    specs.push_back(
        {cache.dtype, cache.heads, cache.key_size, cache.value_size, cache.window, slots});
  }
  return specs;
}

std::int64_t max_context(const StepGraph& step, std::int64_t wanted) {
  const std::int64_t most = learned_positions(step);
  if (wanted > most)
    bad_input("the model knows {} positions: --max-context {} is too much", most, wanted);
  return wanted > 0 ? wanted : std::min(kDefaultContext, most);
}

// Makes the next step need nothing of the host.
Implemented ending(const StepGraph& step, std::int64_t max_context, Realiser& realiser) {
  NodeId ids = -1;
  for (std::size_t i = 0; i < step.graph.nodes.size(); ++i)
    if (step.graph.nodes[i].op == Op::input) ids = static_cast<NodeId>(i);
  if (ids < 0) bad_input("the model has no input: a package takes token ids");
  Implemented part{generate_advance(step, ids, max_context + 1), "advance"};
  realiser.build(part.made.sources);
  AC_ASSERT(realiser.kernels().count(part.made.sources[0].entry) > 0);
  return part;
}

}  // namespace

Compiled compile(const Model& model, const CompileOptions& options, KernelBuilder& builder,
                 Progress& progress) {
  progress.stage("normalise");
  const StepGraph step = incrementalise(normalise(model.graph));

  Compiled compiled;
  Program& program = compiled.program;
  program.model = step.graph.name;
  program.target = options.device.target;
  program.max_context = max_context(step, options.max_context);
  const std::int64_t chunk = std::min(options.chunk, program.max_context);
  program.caches = cache_specs(step, program.max_context, chunk);
  const TensorType& logits = step.graph.type(step.graph.outputs.at(0).node);
  program.vocab = logits.shape.back().constant();
  program.dtype = logits.dtype;
  for (const auto& [name, path] : model.stores)
    program.stores[name] = std::filesystem::absolute(path).lexically_normal().string();

  RealiseOptions realise;
  if (options.device.sm > 0) {
    realise.target.kind = Target::cuda;
    realise.target.arch = options.device.target + (options.device.sm >= 90 ? "a" : "");
  }
  realise.here = options.here;
  realise.jobs = options.jobs;
  realise.verdicts = options.cache / "verdicts";
  Realiser realiser(builder, realise);
  Assembler assembler(program);

  const auto run = [&](const char* name, const StepGraph& instance, std::int64_t tokens,
                       CompiledPhase& phase) {
    progress.stage(fmt::format("{}: analyse and plan", name));
    phase.nodes = instance.graph.nodes.size();
    phase.regions = analyse(instance);
    const Bindings at{
        .S = -1, .T = tokens, .P = std::min<std::int64_t>(1024, program.max_context - tokens)};
    phase.plans =
        plan(phase.regions, options.device, {.max_candidates = options.max_candidates, .at = at});
    Selector selector(phase, program.caches, options.tries, options.preferred, realiser);
    progress.stage(fmt::format("{}: build, admit and select", name));
    std::vector<Implemented> parts = selector.run(progress);
    parts.push_back(ending(phase.regions.step, program.max_context, realiser));
    return assembler.phase(phase.regions.step, tokens, parts);
  };
  program.prefill = run("prefill", prefill_instance(step), chunk, compiled.prefill);
  program.decode = run("decode", decode_instance(step), 1, compiled.decode);
  plan_memory(program);
  progress.done();

  for (const Phase* phase : {&program.prefill, &program.decode})
    for (const Launch& launch : phase->launches)
      compiled.kernels.emplace(launch.kernel, realiser.kernels().at(launch.kernel));
  for (const auto& [entry, built] : compiled.kernels)
    program.kernels[entry] = entry + (options.device.sm > 0 ? ".cubin" : ".so");
  compiled.constants = assembler.constants();
  verify(program, "compile");
  return compiled;
}

}  // namespace ac
