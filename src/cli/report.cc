#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "base/print_stderr.h"
#include "base/temporary_folder.h"
#include "cli/command_page.h"
#include "cli/commands.h"
#include "cli/engine_bench.h"
#include "cli/gpu.h"
#include "emit/plan_file.h"
#include "report/document.h"
#include "report/html.h"
#include "runtime/packages.h"

namespace ac {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostContexts = 6;
constexpr double kMilliseconds = 300;     // of decoding at each context, if it is not said
constexpr std::int64_t kMostTokens = 64;  // likewise

// Checks, before the work, that a file can be written there.
void check_writable(const std::string& option, const fs::path& file) {
  if (fs::exists(file) && !fs::is_regular_file(file))
    wrong_usage("{}: {} is there, and is no file that can be replaced", option, file.string());
  const fs::path folder = fs::absolute(file).parent_path();
  if (!fs::is_directory(folder)) wrong_usage("{}: there is no folder {}", option, folder.string());
  const TemporaryFolder probe(folder, ".agentcompile-report-");
}

struct Report {
  std::string given, output, trace, bench;
  bool no_run = false, quiet = false;
  std::vector<std::int64_t> contexts;
  std::int64_t new_tokens = 0;  // 0: as many as take a moment
  EngineArguments arguments;

  void run() {
    check_writable("--output", output);
    if (!trace.empty()) check_writable("--trace", trace);
    const std::string chosen = choose_package(given, arguments.device);
    const PackageFiles package(chosen);
    const Program program = read_program(package);
    const Json plan = read_plan_json(package);
    // What the package says is read before anything is timed.
    const Json said = report_document(package, program, plan, {});
    const Measurements measurements = measure(chosen, program, said.at("package"));
    const Json document = report_document(package, program, plan, measurements);
    if (!trace.empty()) {
      const Json& events = document.at("trace");
      if (events.is_null())
        job_failed("--trace: no step was timed{}{}", measurements.why_none.empty() ? "" : ": ",
                   measurements.why_none);
      write_file_atomically(trace, events.dump() + "\n");
    }
    write_file_atomically(output, html_of(document));
    if (!quiet) print_stderr("{}\n", output);
  }

  Measurements measure(const std::string& package, const Program& program, const Json& said) {
    if (!bench.empty()) return read_measurements(bench, program);
    if (no_run) return {{}, {}, "Not measured: --no-run was given."};
    if (program.target != "host" && arguments.device != "host") {
      const std::optional<Gpu> gpu = find_gpu();
      if (!gpu || !runs_on(program.target, gpu->info.sm))
        return {{},
                {},
                fmt::format("Not measured here: the package is for {}, and {}.", program.target,
                            gpu ? "the GPU here is " + gpu->name : "there is no GPU here")};
    }
    arguments.quiet = quiet;
    const EngineBench timed(arguments, package, Json::object());
    Measurements measurements{{}, package, {}};
    const auto add = [&](const Measurement& of) { measurements.lines.push_back(of.figures); };
    for (const std::int64_t context : contexts_for(program)) {
      say(fmt::format("timing tokens after {}", context));
      add(timed.decode(context, tokens_at(timed, context)));
    }
    const std::int64_t context = context_of_step(program, said);
    say(fmt::format("timing each launch after {}", context));
    for (const Measurement& of : timed.timeline(context)) add(of);
    return measurements;
  }

  void say(const std::string& text) const {
    if (!quiet) print_stderr("{}\n", text);
  }

  // The contexts of --context; or powers of four, and the longest context that fits.
  std::vector<std::int64_t> contexts_for(const Program& program) const {
    if (!contexts.empty()) return contexts;
    const std::int64_t longest = std::max<std::int64_t>(
        1, program.max_context - (new_tokens == 0 ? kMostTokens : new_tokens));
    std::vector<std::int64_t> list;
    for (std::int64_t context = 8; context < longest / 4 * 3; context *= 4) list.push_back(context);
    if (list.size() >= kMostContexts)
      list.erase(list.begin(), list.end() - static_cast<std::ptrdiff_t>(kMostContexts) + 1);
    list.push_back(longest);
    return list;
  }

  std::int64_t tokens_at(const EngineBench& timed, std::int64_t context) const {
    if (new_tokens > 0) return new_tokens;
    const double ms = timed.decode(context, 1).figures.at("ms").get<double>();
    const std::int64_t fits = timed.program().max_context - context;
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(kMilliseconds / ms), 1,
                                    std::min(kMostTokens, fits));
  }

  // What the plan says of FLOPs is for this context.
  std::int64_t context_of_step(const Program& program, const Json& said) const {
    return std::clamp<std::int64_t>(said.at("planned_context").get<std::int64_t>(), 1,
                                    std::max<std::int64_t>(1, program.max_context - 1));
  }
};

}  // namespace

void add_report_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "report", "Write a page about a package: what was compiled, how, and how fast it is");
  const auto report = std::make_shared<Report>();
  command->add_option("PACKAGE", report->given, "A package")->required();
  command
      ->add_option("--output,-o", report->output,
                   "The page: one HTML file, which needs nothing else and no network")
      ->type_name("FILE")
      ->required();
  command
      ->add_option("--trace", report->trace,
                   "Also write the decode step as a trace for chrome://tracing or Perfetto")
      ->type_name("FILE");
  CLI::Option* const bench =
      command
          ->add_option("--bench", report->bench,
                       "Take measurements from what bench PKG --context ... --timeline -o json "
                       "wrote, instead of measuring")
          ->type_name("FILE");
  CLI::Option* const no_run =
      command->add_flag("--no-run", report->no_run, "Measure nothing: what the package says alone")
          ->excludes(bench)
          ->excludes("--trace");
  command
      ->add_option("--context", report->contexts,
                   "Numbers of cached tokens to time a token after: 128,2048 (default: some of "
                   "what the package has room for)")
      ->type_name("LIST")
      ->delimiter(',')
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24))
      ->excludes(bench)
      ->excludes(no_run);
  command
      ->add_option("--new", report->new_tokens,
                   "Tokens to decode at each context (default: up to 64 that take a moment)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20))
      ->excludes(bench)
      ->excludes(no_run);
  command->add_flag("--quiet,-q", report->quiet, "No progress on stderr");
  report->arguments.add_to(*command);
  command->footer(
      "Examples:\n"
      "  agentcompile report PKG -o report.html\n"
      "  agentcompile report PKG -o report.html --trace step.json   # also for chrome://tracing\n"
      "  agentcompile bench PKG --context 128,2048 --timeline -o json > measured.json\n"
      "  agentcompile report PKG -o report.html --bench measured.json\n"
      "The page has what the package says of its compilation. What is timed is timed on the device "
      "that the package is for; where that is not here, the page says so.");
  command->callback([report] { report->run(); });
}

}  // namespace ac
