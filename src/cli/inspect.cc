#include <fmt/format.h>

#include <functional>
#include <memory>
#include <optional>

#include "analyze/analyse.h"
#include "base/error.h"
#include "base/print_stderr.h"
#include "cli/choice.h"
#include "cli/commands.h"
#include "cli/source_arguments.h"
#include "emit/package_stages.h"
#include "emit/plan_file.h"
#include "ir/graph_text.h"
#include "ir/incrementalise.h"
#include "ir/rewrite.h"
#include "plan/planner.h"

namespace ac {
namespace {

enum class Stage {
  capture,
  graph,
  step,
  decode,
  prefill,
  regions,
  candidates,
  advice,
  verdicts,
  selection,
  stats,
};

// Of a package, what it remembers of a stage; nothing if it remembers none.
std::optional<PackageStage> in_package(Stage stage) {
  switch (stage) {
    case Stage::regions:
      return PackageStage::regions;
    case Stage::candidates:
      return PackageStage::candidates;
    case Stage::advice:
      return PackageStage::advice;
    case Stage::verdicts:
      return PackageStage::verdicts;
    case Stage::selection:
      return PackageStage::selection;
    case Stage::stats:
      return PackageStage::stats;
    default:
      return std::nullopt;
  }
}

struct Inspect {
  SourceArguments source;
  Stage stage = Stage::graph;
  bool json = false;
  std::string against;
  std::string target = "sm_90";
  std::size_t max_candidates = PlanOptions{}.max_candidates;
  std::int64_t tokens = 1;  // of the step that is divided

  // The stage of a model, as a step when it is one.
  StepGraph reach(const SourceArguments& from) const {
    const Model model = from.capture();
    if (!model.checked.empty() && from.source.ends_with(".json"))
      print_stderr("{}: {}\n", from.source, model.checked);
    Graph graph = model.graph;
    if (stage == Stage::capture) return {std::move(graph), {}};
    graph = from.normal_form(graph);
    if (stage == Stage::graph) return {std::move(graph), {}};
    const StepGraph step = incrementalise(graph, from.kv_storage());
    const bool divided = stage == Stage::regions || stage == Stage::candidates;
    if (stage == Stage::decode || (divided && tokens == 1)) return decode_instance(step);
    if (stage == Stage::prefill || divided) return prefill_instance(step);
    return step;
  }

  void run() const {
    if (std::filesystem::exists(std::filesystem::path(source.source) / "program.json"))
      return show_package(source.source);
    if (stage == Stage::capture && source.dtype)
      wrong_usage("--dtype: --stage capture shows the model as it was captured");
    if (stage > Stage::candidates)
      wrong_usage("{} is no package: this stage is what compile comes to", source.source);
    const StepGraph result = reach(source);
    if (!against.empty()) return compare(result);
    if (stage == Stage::regions) return show_regions(analyse(result));
    if (stage == Stage::candidates) return show_candidates(analyse(result));
    const bool is_step = stage >= Stage::step;
    if (json)
      fmt::print("{}\n", (is_step ? to_json(result) : to_json(result.graph)).dump(1));
    else
      fmt::print("{}", is_step ? print(result) : print(result.graph));
  }

  void show_package(const std::filesystem::path& package) const {
    const auto kept = in_package(stage);
    if (!kept || !against.empty() || source.dtype)
      wrong_usage(
          "{} is a package: give --stage regions, candidates, advice, verdicts, selection or stats",
          package.string());
    const Json plan = read_plan_json(PackageFiles(package));
    const std::string origin = (package / "plan.json").string();
    if (json)
      fmt::print("{}\n", stage_json(plan, *kept, origin).dump(1));
    else
      fmt::print("{}", stage_text(plan, *kept, origin));
  }

  Bindings at() const { return {.S = -1, .T = tokens, .P = 1024}; }

  void show_regions(const Regions& regions) const {
    verify(regions, "analyse");
    if (json)
      fmt::print("{}\n", to_json(regions, at()).dump(1));
    else
      fmt::print("{}", print(regions, at()));
  }

  void show_candidates(const Regions& regions) const {
    constexpr std::size_t kShown = 8;  // the JSON has them all
    const Plans plans =
        plan(regions, device_info(target), {.max_candidates = max_candidates, .at = at()});
    if (json)
      fmt::print("{}\n", to_json(plans, regions).dump(1));
    else
      fmt::print("{}", print(plans, regions, kShown));
  }

  void compare(const StepGraph& result) const {
    SourceArguments other = source;
    other.source = against;
    other.options = {};
    const std::string difference = first_difference(result.graph, reach(other).graph);
    if (json)
      fmt::print("{}\n", Json{{"equal", difference.empty()}, {"difference", difference}}.dump(1));
    else
      fmt::print("{}\n", difference.empty() ? "equal" : difference);
    if (!difference.empty()) job_failed("{} and {} differ", source.source, against);
  }
};

}  // namespace

void add_inspect_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "inspect", "Show a model, or a package, as a stage of the compiler sees it");
  const auto inspect = std::make_shared<Inspect>();
  inspect->source.add_to(*command, true);
  add_choice<Stage>(
      *command, "--stage",
      {{"capture", Stage::capture},
       {"graph", Stage::graph},
       {"normalise", Stage::graph},
       {"step", Stage::step},
       {"incrementalise", Stage::step},
       {"decode", Stage::decode},
       {"prefill", Stage::prefill},
       {"regions", Stage::regions},
       {"candidates", Stage::candidates},
       {"advice", Stage::advice},
       {"verdicts", Stage::verdicts},
       {"selection", Stage::selection},
       {"stats", Stage::stats}},
      [inspect = inspect.get()](Stage stage) { inspect->stage = stage; },
      "For a model: capture (as the front end gave it), graph or normalise (the normal form; "
      "default), step or incrementalise (T new tokens after P cached ones), decode and prefill "
      "(the instances that run), regions (what is compiled as one, with its work), candidates (the "
      "kernels that could compute it). For a package: regions, candidates, advice (the advisor's "
      "questions and replies), verdicts (the outcome of each candidate), selection (what computes "
      "each region), stats (counts, and shares of a step)");
  command
      ->add_option("--tokens", inspect->tokens,
                   "Tokens of the step, for a model's regions and candidates")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 16));
  command->add_option("--target", inspect->target,
                      "The device that candidates are for: sm_80, sm_89, sm_90, sm_100 or host");
  command
      ->add_option("--max-candidates", inspect->max_candidates, "The most candidates of a region")
      ->check(kPositive);
  command->add_flag("--json", inspect->json, "Print JSON");
  command->add_option("--against", inspect->against,
                      "Say whether another SOURCE gives the same graph (exit code 1 if not)");
  command->footer(
      "Examples:\n"
      "  agentcompile inspect MODEL --stage step         # what the compiler makes of a model\n"
      "  agentcompile inspect MODEL --stage candidates --target sm_90\n"
      "  agentcompile inspect PKG --stage selection      # what computes each region, and why\n"
      "  agentcompile inspect MODEL --against OTHER      # do both give the same graph?");
  command->callback([inspect] { inspect->run(); });
}

}  // namespace ac
