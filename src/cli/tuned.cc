#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/table.h"
#include "build/compile.h"
#include "cli/commands.h"
#include "emit/plan_file.h"
#include "runtime/engine.h"
#include "select/known.h"

namespace ac {
namespace {

struct TunedFiles {
  std::string package, output, folder;
  bool json = false;

  void write() const {
    const PackageFiles files(package);
    const std::string origin = package + "/plan.json";
    const Json plan = read_plan_json(files);
    const Program program = read_program(files);
    KnownChoices known = reading_plan(origin, [&] {
      return KnownChoices{.origin = output,
                          .model = program.model,
                          .device = plan.at("device"),
                          .toolkit = plan.at("toolkit"),
                          .headers = {},
                          .phases = {}};
    });
    std::vector<std::string> left_out;
    for (const PhaseSpec& spec : specs_of(program, plan, origin))
      if (is_timed(plan, spec.name, origin))
        known.phases.push_back({spec.name, spec.tuned_at, spec.contexts,
                                pinned_as(plan, spec.name, origin), spec.shared});
      else
        left_out.push_back(spec.name);
    if (known.phases.empty())
      wrong_usage(
          "{}: its kernels were not timed where it was compiled, so that it knows no choices: "
          "compile it with --device and --no-tuned",
          package);
    known.headers =
        header_digests(sources_of(program, known, plan_file(plan, origin)), files.folder());
    const std::string text = to_json(known).dump(1) + "\n";
    known_choices_from_json(parse_json(text, output), output);
    write_file_atomically(output, text);
    fmt::print("{}: the choices of {} for {}, {}\n", output, known.model, known.device,
               known.toolkit);
    if (!left_out.empty())
      fmt::print("left out, as it was not timed where the package was compiled: {}\n",
                 fmt::join(left_out, ", "));
  }

  // The kernels that the known phases launch, and those of steps of several sequences that share
  // such a choice. A change of other kernels changes no choice.
  static std::vector<KernelSource> sources_of(const Program& program, const KnownChoices& known,
                                              const PlanFile& plan) {
    std::set<std::string> launched;
    for (const Phase& phase : program.phases) {
      const auto is_it = [&](const KnownChoices::Phase& of) {
        return of.name == phase.name || (of.shared && phase.rows == Rows::each);
      };
      if (std::ranges::none_of(known.phases, is_it)) continue;
      for (const Launch* launch : phase.all()) launched.insert(launch->kernel);
    }
    std::vector<KernelSource> sources;
    for (const auto& [entry, source] : plan.kernels)
      if (launched.contains(entry)) sources.push_back(source);
    return sources;
  }

  // A phase whose choice came from a file of known choices was not timed.
  static bool is_timed(const Json& plan, const std::string& phase, const std::string& origin) {
    return reading_plan(origin, [&] { return phase_in(plan, phase).at("measured").get<bool>(); });
  }

  void list() const {
    const BuilderOptions building = builder_options(read_environment());
    const std::filesystem::path from =
        folder.empty() ? building.sources / kTunedFolder : std::filesystem::path(folder);
    if (!folder.empty() && !std::filesystem::is_directory(from))
      bad_input("{}: there is no such folder", folder);
    Json all = Json::array();
    Table table({"file", "model", "device", "toolkit", "phases", "kernels"});
    for (const KnownChoices& known : read_known_choices(from)) {
      std::string phases;
      for (const KnownChoices::Phase& phase : known.phases)
        phases += (phases.empty() ? "" : ", ") + phase.name;
      const std::string changed = changed_header(known, building.sources);
      all.push_back({{"file", known.origin},
                     {"model", known.model},
                     {"device", known.device},
                     {"toolkit", known.toolkit},
                     {"phases", phases},
                     {"changed", changed}});
      table.add({known.origin, known.model, known.device, known.toolkit, phases,
                 changed.empty() ? "as they are" : changed + " is another one since"});
    }
    if (json)
      fmt::print("{}\n", all.dump());
    else if (all.empty())
      fmt::print("{}: no known choices\n", from.string());
    else
      fmt::print("{}", table.text());
  }
};

}  // namespace

void add_tuned_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "tuned", "Known choices: what compilations on real devices chose, for others to take");
  command->require_subcommand(1);
  const auto tuned = std::make_shared<TunedFiles>();
  CLI::App* to = command->add_subcommand("export", "Write what a package's compilation chose");
  to->add_option("PACKAGE", tuned->package, "A package whose kernels were timed")->required();
  to->add_option("-o,--output", tuned->output, "The file, such as tuned/h100-qwen3-1.7b.json")
      ->type_name("FILE")
      ->required();
  to->callback([tuned] { tuned->write(); });
  CLI::App* list = command->add_subcommand("list", "Which known choices there are");
  list->add_option("--tuned", tuned->folder, "A folder of them, instead of the program's own")
      ->type_name("FOLDER");
  list->add_flag("--json", tuned->json, "Print JSON");
  list->callback([tuned] { tuned->list(); });
  command->footer(
      "Examples:\n"
      "  agentcompile tuned export PKG -o tuned/h100-qwen3-1.7b.json\n"
      "  agentcompile tuned list\n"
      "compile takes a choice that is known for all regions of a phase on this very kind of "
      "device:\n"
      "it is built, judged and checked as any other, and not timed. --no-tuned leaves them out.");
}

}  // namespace ac
