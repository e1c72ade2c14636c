#include <fmt/format.h>

#include <memory>
#include <thread>

#include "base/error.h"
#include "base/table.h"
#include "cli/advisor.h"
#include "cli/choice.h"
#include "cli/command_page.h"
#include "cli/commands.h"
#include "cli/gpu.h"
#include "cli/source_arguments.h"
#include "cli/tuned_package.h"
#include "device/devices.h"

namespace ac {
namespace {

struct Tune {
  SourceArguments source;
  std::string package, space = "region";
  std::string phase;  // of the package, whose steps of one token are tuned
  StepTuneOptions options;
  const CLI::Option* context = nullptr;
  AdvisorOptions advising;
  bool quiet = false, json = false;

  void run() {
    TunedPackage tuned_package(package);
    const Environment environment = read_environment();
    if (options.proposals.wanted > 0 && (space != "step" || advising.who == "none"))
      wrong_usage("--proposals needs --space step and an --advisor");
    if (options.takes_requests && options.proposals.wanted == 0)
      wrong_usage("--requests needs --proposals");
    // Asked about regions before the search, or about schedules during it.
    const std::unique_ptr<Advisor> advisor =
        options.proposals.wanted > 0 ? nullptr : open_advisor(advising, environment);
    options.advisor = advisor.get();
    const std::unique_ptr<Provider> proposer =
        options.proposals.wanted > 0 ? open_provider(advising, environment) : nullptr;
    options.proposer = proposer.get();
    BuilderOptions building = builder_options(environment);
    building.jobs = options.jobs;
    options.cache = building.cache;
    options.sources = building.sources;
    if (options.database.empty()) options.database = building.cache / "tuning.sqlite";
    const Program& before = tuned_package.program();
    choose_device(before);
    tuned_package.check(options.device);
    tuned_package.check(source);
    if (context->count() > 0 && options.context >= before.max_context)
      wrong_usage("--context {}: {} has room for {} tokens, and the step adds one", options.context,
                  package, before.max_context);
    tuned_package.complete(options);
    KernelBuilder builder(building);
    Progress progress(quiet);
    progress.stage("capture");
    const Model model = source.capture(quiet);
    tuned_package.check(model);
    if (space == "step") {
      report(tuned_package.tune_step(model, options, builder, progress));
      return;
    }
    options.cover_only = true;
    const Tuned tuned = tune_regions(model, options, builder, progress);
    CompileOptions compiling = tuned_package.compile_options(options);
    compiling.preferred = tuned.preferred;
    phase = tuned_package.phase_after(options.context);
    report(tuned, tuned_package.rewrite(model, compiling, options.sources, builder, progress));
  }

  void choose_device(const Program& before) {
    if (before.target == "host") {
      options.device = device_info("host"), options.device_name = find_devices().cpu;
      return;
    }
    const Gpu gpu = the_gpu();
    options.device = gpu.info, options.device_name = gpu.name;
  }

  void report(const TunedStep& tuned) const {
    if (!json) return print(tuned, package, options);
    Json report{{"package", package}, {"context", options.context}};
    report.update(to_json(tuned));
    fmt::print("{}\n", report.dump());
  }

  void report(const Tuned& tuned, const Compiled& compiled) const {
    const auto is_selected = [&](const TunedRegion& region) {
      const auto tuned_one = std::ranges::find(
          compiled.phases, phase, [](const CompiledPhase& of) { return of.spec.name; });
      return std::ranges::any_of(tuned_one->selections, [&](const Selection& selection) {
        return selection.signature == region.signature && selection.candidate == region.plan;
      });
    };
    Json regions = Json::array();
    Table table({"attempts", "known", "first us", "best us", "region", "plan", "selected"});
    for (const TunedRegion& region : tuned.regions) {
      regions.push_back({{"signature", region.signature},
                         {"description", region.description},
                         {"uses", region.uses},
                         {"attempts", region.attempts},
                         {"known", region.known},
                         {"advised", region.advised},
                         {"first_us", region.first ? Json(*region.first) : Json()},
                         {"best_us", region.best ? Json(*region.best) : Json()},
                         {"plan", region.plan},
                         {"selected", is_selected(region)}});
      const auto text = [](const std::optional<double>& us) {
        return us ? fmt::format("{:.2f}", *us) : "";
      };
      table.add({fmt::format("{}", region.attempts), fmt::format("{}", region.known),
                 text(region.first), text(region.best), region.description, region.plan,
                 is_selected(region) ? "yes" : ""});
    }
    if (json)
      fmt::print("{}\n", Json{{"package", package}, {"regions", std::move(regions)}}.dump());
    else
      fmt::print("{}", table.text());
  }
};

}  // namespace

void add_tune_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "tune",
      "Search for faster kernels of a package's decode step, and compile it anew with them");
  const auto tune = std::make_shared<Tune>();
  command->add_option("PACKAGE", tune->package, "A package for the device at hand")->required();
  tune->source.add_to(*command);
  command
      ->add_option(
          "--space", tune->space,
          "What is searched: each region's candidates, or the schedules of the whole decode "
          "step (what is fused, and which plan computes each part); an --advisor is asked about "
          "the regions of the step for either")
      ->capture_default_str()
      ->check(CLI::IsMember({"region", "step"}));
  std::vector<std::string> names;
  for (const search::StrategyInfo& info : search::strategies()) names.emplace_back(info.name);
  command->add_option("--search", tune->options.search, "The strategy")
      ->capture_default_str()
      ->check(CLI::IsMember(names));
  command
      ->add_option("--budget", tune->options.budget.attempts,
                   "Attempts at each region, or at the step")
      ->capture_default_str()
      ->check(kPositive);
  tune->options.proposals.wanted = 0;
  command
      ->add_option("--proposals", tune->options.proposals.wanted,
                   "With --space step: the --advisor sees what was tried, and proposes so many "
                   "changes of a schedule at a time, instead of advice before the search")
      ->capture_default_str()
      ->check(CLI::Range(0, 16));
  command->add_flag("--requests", tune->options.takes_requests,
                    "With --proposals: the advisor may also ask people for values that the space "
                    "lacks, which are printed and not run");
  command
      ->add_option("--seconds", tune->options.budget.seconds,
                   "Seconds for each region, or for the step, beside the budget")
      ->check(kPositive);
  command->add_option("--seed", tune->options.seed, "Seed of the strategy")
      ->capture_default_str()
      ->group(kRare);
  command
      ->add_option("--max-candidates", tune->options.max_candidates,
                   "The most candidates of a region")
      ->capture_default_str()
      ->check(kPositive)
      ->group(kRare);
  command
      ->add_option("--plans", tune->options.plans,
                   "Candidates of each part, the best of different outline, in the step space")
      ->capture_default_str()
      ->check(CLI::Range(1, 64))
      ->group(kRare);
  tune->context =
      command->add_option("--context", tune->options.context, "Tokens in the cache while timing")
          ->capture_default_str()
          ->check(CLI::Range(0, 1 << 20));
  command
      ->add_option("--db", tune->options.database,
                   "The tuning database (default: tuning.sqlite in the cache folder)")
      ->type_name("FILE")
      ->group(kRare);
  add_advisor_options(*command, tune->advising);
  tune->options.jobs = std::max(1u, std::thread::hardware_concurrency());
  command->add_option("--jobs,-j", tune->options.jobs, "Kernels that are built at once")
      ->check(CLI::Range(1, 1024))
      ->group(kRare);
  command->add_flag("--quiet,-q", tune->quiet, "No progress on stderr");
  command->add_flag("--json", tune->json, "Print JSON");
  command->footer(
      "Examples:\n"
      "  agentcompile tune PKG MODEL                 # candidates of each region\n"
      "  agentcompile tune PKG MODEL --space step    # schedules of the whole decode step\n"
      "MODEL is what PKG was compiled from. Next: agentcompile bench PKG");
  command->callback([tune] { tune->run(); });
}

}  // namespace ac
