#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <iterator>
#include <memory>
#include <thread>

#include "base/error.h"
#include "base/process.h"
#include "base/table.h"
#include "cli/choice.h"
#include "cli/commands.h"
#include "cli/gpu.h"
#include "cli/source_arguments.h"
#include "cli/tuning_log.h"
#include "device/devices.h"
#include "study/record_step.h"
#include "study/report.h"

namespace ac {
namespace {

// Of the sources that kernels are built from, where they are under git's care.
std::string commit_of(const std::filesystem::path& sources) {
  try {
    const ProcessResult git = run_process(
        {"git", "-C", sources.string(), "describe", "--always", "--dirty"}, ChildOutput::captured);
    if (git.ok()) return git.output.substr(0, git.output.find('\n'));
  } catch (const Error&) {  // there is no git
  }
  return "unknown";
}

// This program's, as it was given, but for the folder that the program is in.
std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!text.empty()) text.pop_back();
  text.erase(0, text.rfind('/', text.find('\0')) + 1);
  std::replace(text.begin(), text.end(), '\0', ' ');
  return text;
}

struct Record {
  SourceArguments source;
  std::string output, commit, device = "host", admit = "all";
  std::string space = "region", database;
  study::StepRecordOptions options;
  bool quiet = false, json = false;

  void run() {
    const Environment environment = read_environment();
    BuilderOptions building = builder_options(environment);
    building.jobs = options.jobs;
    options.cache = building.cache;
    options.admit_all = admit == "all";
    std::string name, driver;
    if (device == "cuda") {
      const Gpu gpu = the_gpu();
      options.device = gpu.info, name = gpu.name, driver = gpu.driver;
    } else {
      options.device = device_info("host"), name = find_devices().cpu;
    }
    options.header = {
        {"device", name},
        {"driver", driver},
        {"toolkit", ""},
        {"commit", commit.empty() ? commit_of(building.sources) : commit},
        {"command", command_line()},
        {"date", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))}};
    if (space == "step" && options.tokens > 1)
      wrong_usage("--tokens {}: a step of one token is searched: --space region", options.tokens);
    if (space != "step" && (options.drawn > 0 || options.guided > 0))
      wrong_usage("--random and --guided choose schedules: add --space step");
    KernelBuilder builder(building);
    Progress progress(quiet);
    progress.stage("capture");
    const Model model = source.capture(quiet);
    const std::unique_ptr<tuning::Log> log =
        open_log(database, options.device, name, model.graph.name, building, builder);
    options.log = log.get();
    options.dtype = source.dtype;
    const study::Recorded recorded =
        space == "step" ? study::record_step(model, options, builder, output, progress)
                        : study::record(model, options, builder, output, progress);
    if (json)
      fmt::print("{}\n", Json{{"file", output},
                              {"regions", recorded.regions},
                              {"points", recorded.points},
                              {"new", recorded.new_points},
                              {"measured", recorded.measured}}
                             .dump());
    else
      fmt::print("{}: {} regions, {} points ({} new), {} of them measured\n", output,
                 recorded.regions, recorded.points, recorded.new_points, recorded.measured);
  }
};

void add_record(CLI::App& study) {
  CLI::App* command = study.add_subcommand("record",
                                           "Time every candidate of a model's regions, or "
                                           "schedules of its decode step, on the device at "
                                           "hand, into a table");
  const auto record = std::make_shared<Record>();
  record->source.add_to(*command);
  command->add_option("-o,--output", record->output, "The table (JSON lines); resumed if it exists")
      ->type_name("FILE")
      ->required();
  command->add_option("--device", record->device, "The device to time on")
      ->capture_default_str()
      ->check(CLI::IsMember({"host", "cuda"}));
  command
      ->add_option("--space", record->space,
                   "What is timed: each region's candidates, or the schedules of the whole decode "
                   "step")
      ->capture_default_str()
      ->check(CLI::IsMember({"region", "step"}));
  command
      ->add_option("--max-points", record->options.max_points,
                   "The most schedules of the step space")
      ->capture_default_str()
      ->check(CLI::Range(2, 1'000'000));
  command
      ->add_option("--plans", record->options.plans, "Candidates of each part, in the step space")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  command
      ->add_option("--reference-every", record->options.reference_every,
                   "Schedules between two timings of the reference schedule, in the step space")
      ->capture_default_str()
      ->check(kPositive);
  command
      ->add_option("--random", record->options.drawn,
                   "Draw so many schedules of the whole step space, which is then not bounded by "
                   "--max-points")
      ->check(CLI::Range(0, 1'000'000));
  command
      ->add_option("--guided", record->options.guided,
                   "As --random; so many other schedules, which searches come by")
      ->check(CLI::Range(0, 1'000'000));
  command
      ->add_option("--stop-after", record->options.stop_after,
                   "Seconds after which no further schedule is timed; 0: no limit")
      ->capture_default_str()
      ->check(kNotNegative);
  command
      ->add_option("--tokens", record->options.tokens,
                   "Tokens of the step whose regions are timed: more than one are a prompt's")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 16));
  add_log_option(*command, record->database);
  command
      ->add_option("--max-candidates", record->options.max_candidates,
                   "The most candidates of a region")
      ->capture_default_str()
      ->check(kPositive);
  command->add_option("--regions", record->options.regions,
                      "Only regions whose signature or ops have one of these in them");
  command->add_flag("--cover", record->options.cover_only,
                    "Only the regions that the step is cut into by predicted cost");
  command
      ->add_option("--admit", record->admit,
                   "all: judge every candidate before it is timed; winners: only the fastest of a "
                   "region, until one is admitted")
      ->capture_default_str()
      ->check(CLI::IsMember({"all", "winners"}));
  command->add_option("--context", record->options.context, "Tokens in the cache")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 20));
  command->add_option("--commit", record->commit,
                      "The commit that the table names, where git cannot tell");
  command->add_option("--rounds", record->options.rounds, "Samples of each candidate")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command->add_option("--seconds", record->options.seconds, "Seconds that one sample takes, about")
      ->capture_default_str()
      ->check(CLI::Range(1e-6, 10.0));
  command->add_option("--batch", record->options.batch, "Candidates that race with each other")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  record->options.jobs = std::max(1u, std::thread::hardware_concurrency());
  command
      ->add_option("--jobs,-j", record->options.jobs,
                   "Kernels that are built or judged at once; timing is one by one")
      ->check(CLI::Range(1, 1024));
  command->add_flag("--quiet,-q", record->quiet, "No progress on stderr");
  command->add_flag("--json", record->json, "Print JSON");
  command->footer(
      "Examples:\n"
      "  agentcompile study record MODEL -o regions.jsonl --device cuda\n"
      "  agentcompile study record MODEL -o step.jsonl --space step --max-points 64 "
      "--rounds 2 --context 20");
  command->callback([record] { record->run(); });
}

struct Replay {
  std::vector<std::string> tables, advice, proposed;
  std::string output;
  study::ReplayOptions options;
  study::Prices prices = {};
  bool json = false;

  void run() {
    if (!prices.whose.empty()) options.prices = prices;
    if (options.prices ? !(prices.input > 0 && prices.output > 0 && prices.gpu > 0)
                       : prices.input > 0 || prices.output > 0 || prices.gpu > 0)
      wrong_usage("give all of --input-price, --output-price, --gpu-price and --priced, or none");
    std::vector<study::Recording> recordings;
    for (const std::string& table : tables) recordings.push_back(study::read_recording(table));
    study::Replies replies;
    for (const std::string& file : advice)
      for (auto& [signature, list] : study::read_replies(file))
        replies[signature].insert(replies[signature].end(), list.begin(), list.end());
    std::vector<study::ProposedSession> sessions;
    for (const std::string& file : proposed)
      for (study::ProposedSession& session : study::read_sessions(file))
        sessions.push_back(std::move(session));
    const study::Replayed replayed = study::replay(recordings, replies, options, sessions);
    study::write_report(replayed, output);
    if (json) {
      fmt::print("{}\n", study::to_json(replayed).dump());
      return;
    }
    for (const study::ReplayGroup& group : replayed.groups) {
      Table table({"arm", "1", "4", "16", "64"});
      for (const study::ArmResult& arm : group.arms) {
        std::vector<std::string> row{arm.name};
        for (const std::size_t n : {1, 4, 16, 64})
          row.push_back(n <= arm.band.size() ? fmt::format("{:.4f}", arm.band[n - 1].mean) : "");
        table.add(row);
      }
      fmt::print("{}: optimum over best so far after so many attempts, {} spaces\n{}\n", group.name,
                 group.cases.size(), table.text());
    }
    if (replayed.advisors.empty())
      fmt::print("no replies of an LLM are about these tables: its arm is empty\n");
    for (const std::string& name : replayed.unadvised)
      fmt::print("left out of the arms with advice, as no reply is about it: {}\n", name);
    std::size_t requests = 0;
    for (const std::vector<study::RequestedValue>& of : replayed.requests) requests += of.size();
    if (requests > 0)
      fmt::print("{} requests to people are in the report: nothing of them was run\n", requests);
    fmt::print("report: {}\n", (std::filesystem::path(output) / "report.md").string());
  }
};

void add_replay(CLI::App& study) {
  CLI::App* command =
      study.add_subcommand("replay", "Run search strategies over recorded tables, many times");
  const auto replay = std::make_shared<Replay>();
  command->add_option("TABLE", replay->tables, "Recorded tables (.jsonl, .jsonl.gz)")->required();
  command->add_option("-o,--output", replay->output, "A folder for the report")
      ->type_name("FOLDER")
      ->required();
  command
      ->add_option("--advice", replay->advice,
                   "Recorded replies (JSON lines: region, order, model, date)")
      ->type_name("FILE");
  command->add_option("--proposed", replay->proposed, "Searches of `study propose`")
      ->type_name("FILE");
  command
      ->add_option(
          "--strategies", replay->options.strategies,
          "Strategies to compare; of regions also compile, the order in which it tries them")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--attempts", replay->options.attempts, "Points that a search may try")
      ->capture_default_str()
      ->check(CLI::Range(1, 100'000));
  command
      ->add_option("--repetitions", replay->options.repetitions,
                   "Searches on each space, for strategies that depend on a seed")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  command->add_option("--seed", replay->options.seed, "Seed of everything that is random")
      ->capture_default_str();
  command->add_option("--resamples", replay->options.resamples, "Resamples of the bootstrap")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  replay->options.jobs = std::max(1u, std::thread::hardware_concurrency());
  command->add_option("--jobs,-j", replay->options.jobs, "Threads")->check(CLI::Range(1, 1024));
  command->add_flag("--recorded-only", replay->options.recorded_only,
                    "Of steps whose schedules are too many to list, search those that were timed, "
                    "without a model of the others");
  command
      ->add_option("--input-price", replay->prices.input,
                   "Of a million tokens of prompts, to tell when proposals pay")
      ->check(kPositive);
  command->add_option("--output-price", replay->prices.output, "Of a million tokens of replies")
      ->check(kPositive);
  command
      ->add_option("--gpu-price", replay->prices.gpu, "Of an hour of the GPU, in the same currency")
      ->check(kPositive);
  command
      ->add_option("--priced", replay->prices.whose,
                   "Who published these prices and when, which the report repeats")
      ->type_name("TEXT");
  command->add_flag("--json", replay->json, "Print the report as JSON");
  command->footer("Example:\n  agentcompile study replay step.jsonl -o report --repetitions 50");
  command->callback([replay] { replay->run(); });
}

}  // namespace

void add_study_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("study", "Record spaces of candidates, and replay searches over them");
  command->require_subcommand(1);
  add_record(*command);
  add_study_advise_command(*command);
  add_study_propose_command(*command);
  add_study_predict_command(*command);
  add_replay(*command);
}

}  // namespace ac
