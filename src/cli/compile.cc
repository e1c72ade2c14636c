#include "compile/compile.h"
#include "base/print_stderr.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "base/process_lock.h"
#include "cli/advisor.h"
#include "cli/choice.h"
#include "cli/command_page.h"
#include "cli/commands.h"
#include "cli/gpu.h"
#include "cli/source_arguments.h"
#include "cli/tuned_package.h"
#include "cli/tuning_log.h"
#include "cli/weights_argument.h"
#include "device/devices.h"
#include "emit/package.h"
#include "ir/graph_text.h"
#include "runtime/engine.h"
#include "text/text_files.h"
#include "tuning/kernel_hash.h"

namespace ac {
namespace {

struct Compile {
  SourceArguments source;
  WeightsArgument weights;
  std::string output, device = "host", target, database, device_name;
  std::vector<std::string> targets;
  CompileOptions options;
  std::optional<int> step_seconds;
  std::vector<std::string> dump;
  AdvisorOptions advising;
  std::string tuned, timeline;
  bool unmeasured = false, force = false, json = false, quiet = false;
  bool once = false, no_tuned = false;
  std::size_t proposals = 0;  // that an advisor makes at a time, in a search over whole steps
  std::size_t attempts = 36;  // of that search
  const CLI::App* command = nullptr;
  std::optional<Model> model;  // once it is captured

  void run() {
    if (json && !dump.empty()) wrong_usage("--dump: its text and --json do not go together");
    if (weights.is_given()) weights.check();
    if (once && targets.size() > 1) wrong_usage("--once is for one package");
    if (proposals > 0) check_proposals();
    if (targets.size() < 2) {
      if (!targets.empty()) target = targets[0];
      make_one();
      return;
    }
    // A whole package for each, in a folder of their own.
    const std::filesystem::path folder = output;
    if (std::filesystem::exists(folder / "program.json"))
      wrong_usage("{} is a package, and several targets need a folder for theirs", output);
    for (const std::string& each : targets) {
      device_info(each);
      check_output(folder / each, force);
      if (std::ranges::count(targets, each) > 1) wrong_usage("--target: {} is there twice", each);
    }
    for (const std::string& each : targets) {
      target = each, output = (folder / each).string();
      make_one();
    }
  }

  void check_proposals() const {
    if (advising.who == "none") wrong_usage("--proposals needs an --advisor");
    if (!targets.empty() || unmeasured || options.quick)
      wrong_usage("--proposals: whole steps are timed, on the device that is here");
    if (once) wrong_usage("--proposals and --once: the second leaves a package as it is");
    if (database == "none")
      wrong_usage(
          "--proposals: the tuning database keeps what was tried: leave out --database none");
  }

  // Whether there is such a package as is wanted, made by whoever had the lock before.
  bool is_done() const {
    if (!std::filesystem::exists(std::filesystem::path(output) / "program.json")) return false;
    return options.quick || !read_program(PackageFiles(output)).quick;
  }

  void make_one() {
    Json result{{"package", output}};
    // A search that waited for replies goes on with the package that was compiled before it.
    const bool goes_on = proposals > 0 && !force && is_done();
    if (!goes_on && !compile_one(result)) return;
    if (proposals > 0) result["step"] = search_steps();
    if (json) fmt::print("{}\n", result.dump());
  }

  // Schedules of whole decode steps, of which the advisor proposes some. The package is there
  // already, and gets the fastest.
  Json search_steps() {
    choose_device();
    TunedPackage package(output);
    package.check(options.device), package.check(source);
    const Environment environment = read_environment();
    const std::unique_ptr<Provider> proposer = open_provider(advising, environment);
    BuilderOptions building = builder_options(environment);
    building.jobs = options.jobs;
    StepTuneOptions tuning;
    tuning.device = options.device, tuning.device_name = device_name;
    tuning.jobs = options.jobs;
    tuning.cache = building.cache, tuning.sources = building.sources;
    tuning.database =
        database.empty() ? building.cache / "tuning.sqlite" : std::filesystem::path(database);
    tuning.budget.attempts = attempts;
    tuning.proposer = proposer.get(), tuning.proposals.wanted = proposals;
    package.complete(tuning);
    KernelBuilder builder(building);
    Progress progress(quiet);
    progress.stage("capture");
    if (!model) model = capture(progress);
    package.check(*model);
    const TunedStep tuned = package.tune_step(*model, tuning, builder, progress);
    if (!json) print(tuned, output, tuning);
    return to_json(tuned);
  }

  Model capture(Progress& progress) {
    return weights.is_given() ? weights.kept(source, quiet, progress) : source.capture(quiet);
  }

  // Whether there was something to do.
  bool compile_one(Json& result) {
    std::optional<ProcessLock> lock;
    if (once) {
      lock.emplace(output + ".lock", [&](const std::string& owner) {
        if (!quiet) print_stderr("{} compiles it: waiting for that\n", owner);
      });
      if (is_done() && !force) {
        if (!quiet) print_stderr("{} is there\n", output);
        return false;
      }
    }
    choose_device();
    options.dtype = source.dtype;
    options.kv = source.kv_storage();
    PackageDraft package(output, force || once);
    const Environment environment = read_environment();
    BuilderOptions building = builder_options(environment);
    building.jobs = options.jobs;
    options.cache = building.cache;
    // Asked about regions before anything is timed, or about whole steps afterwards.
    const std::unique_ptr<Advisor> advisor =
        proposals > 0 ? nullptr : open_advisor(advising, environment);
    options.advisor = advisor.get();
    KernelBuilder builder(building);
    Progress progress(quiet);
    Stages stages(progress, {dump.begin(), dump.end()},
                  [&](const std::string& stage, const std::string& text) { show(stage, text); });
    model = stages.run(
        "capture", [&] { return capture(progress); },
        [](const Model& captured) { return print(captured.graph); });
    std::unique_ptr<tuning::Log> log;
    if (options.here)
      log = open_log(database, options.device, device_name, model->graph.name, building, builder);
    options.log = log.get();
    if (options.here) find_known(building, builder);
    const Compiled compiled = compile(*model, options, builder, stages);
    progress.stage("write the package");
    package.write(compiled, *model, building.sources);
    progress.done();
    if (!timeline.empty())
      write_file_atomically(timeline, stages.timeline().chrome_trace().dump() + "\n");
    report(compiled, result);
    return true;
  }

  // What kernels' times depend on besides themselves: the compiler, and whose products they race.
  std::string toolkit(KernelBuilder& builder) const {
    const std::string compiler = builder.compiler(target_of(options.device));
    if (options.device.sm == 0) return compiler;
    try {
      return fmt::format("{}, cuBLASLt {}", compiler, cublaslt_version());
    } catch (const Error&) {
      return compiler;  // none is here
    }
  }

  // A user who says how much is tried, or asks an advisor, wants a search.
  void find_known(const BuilderOptions& building, KernelBuilder& builder) {
    options.made_on = {tuning::fingerprint(options.device, device_name), toolkit(builder)};
    for (const char* search : {"--tries", "--families", "--no-fusion", "--max-candidates",
                               "--step-seconds", "--advisor"})
      if (command->count(search) > 0) return;
    if (no_tuned) return;
    if (!tuned.empty() && !std::filesystem::is_directory(tuned))
      wrong_usage("--tuned {}: there is no such folder", tuned);
    options.known = known_choices_of(
        tuned.empty() ? building.sources / kTunedFolder : std::filesystem::path(tuned),
        options.made_on.device, options.made_on.toolkit, building.sources);
  }

  // As soon as it is there: what comes after it may fail.
  static void show(const std::string& stage, const std::string& text) {
    fmt::print("== {}\n{}", stage, text);
    std::fflush(stdout);
  }

  void choose_device() {
    if (!target.empty()) {
      if (device != "host")
        wrong_usage("--target is for a GPU that is not here: leave out --device");
      options.device = device_info(target);
      options.here = target == "host";
    } else {
      if (device == "cuda") {
        const Gpu gpu = the_gpu();
        options.device = gpu.info, device_name = gpu.name;
      } else {
        options.device = device_info("host");
      }
    }
    if (unmeasured && options.quick)
      wrong_usage("--quick and --unmeasured: the first judges on the device, the second does not");
    if (unmeasured) options.here = false;
    if (options.here && options.device.sm == 0) device_name = find_devices().cpu;
    if (step_seconds) options.step_seconds = std::chrono::seconds(*step_seconds);
  }

  // Adds to the result, and prints it as text unless JSON is wanted.
  void report(const Compiled& compiled, Json& result) const {
    result["target"] = compiled.program.target;
    result["dtype"] = torch_name(compiled.dtype);
    result["own_dtype"] = torch_name(compiled.own_dtype);
    for (const CompiledPhase& phase : compiled.phases) {
      int launches = 0, fallbacks = 0;
      for (const Selection& selection : phase.selections) {
        launches += selection.uses;
        if (selection.candidate.empty()) fallbacks += selection.uses;
      }
      result[phase.spec.name] = {{"regions", launches},
                                 {"distinct", phase.selections.size()},
                                 {"fallbacks", fallbacks},
                                 {"known", phase.known}};
    }
    result["measured"] = compiled.is_measured();
    result["quick"] = compiled.program.quick;
    if (options.device.is_uncalibrated()) result["uncalibrated"] = true;
    result["kernels"] = compiled.kernels.size();
    result["advisor"] = compiled.advisor;
    result["check"] = to_json(compiled.check);
    if (json) return;
    fmt::print("{} is ready: a program for {} with {} kernels\n", output, place(compiled),
               compiled.kernels.size());
    for (const CompiledPhase& phase : compiled.phases) {
      const std::string& name = phase.spec.name;
      const int regions = result[name]["regions"], fallbacks = result[name]["fallbacks"];
      if (phase.spec.rows == Rows::each) {
        fmt::print("  {}: {} products read their weights once, all else runs for each sequence\n",
                   name, regions);
        continue;
      }
      fmt::print("  {}: {} regions, {} computed by generated kernels, {} by the plain fallback\n",
                 name, regions, regions - fallbacks, fallbacks);
    }
    if (compiled.dtype != compiled.own_dtype)
      fmt::print(
          "  converted: it computes in {}, and weights are converted as they are loaded; "
          "the model says {}\n",
          torch_name(compiled.dtype), torch_name(compiled.own_dtype));
    if (const std::string note = uncalibrated_note(options.device); !note.empty())
      fmt::print("  {}\n", note);
    const bool is_known = std::ranges::all_of(
        compiled.phases, [](const CompiledPhase& phase) { return !phase.known.empty(); });
    if (compiled.program.quick)
      fmt::print("  quick: kernels are admitted, and of the cost model's choice\n");
    else if (is_known)
      fmt::print("  known choices: kernels are admitted, and were timed on such a device before\n");
    else if (!compiled.is_measured())
      fmt::print("  unmeasured: kernels are admitted, and ordered by the cost model\n");
    const bool speaks = std::filesystem::exists(std::filesystem::path(output) / text::kTextFolder);
    fmt::print("  {}\n", summary_of(to_json(compiled.check)));
    const bool runs_here = options.device.sm == 0 || !device_name.empty();
    if (runs_here)
      fmt::print("Generate with it:  agentcompile {} {} {} --max-new-tokens 16\n",
                 speaks ? "generate" : "run", as_word(output),
                 speaks ? "-p 'Hello'" : "--ids 1,2,3");
    fmt::print("What was chosen:   agentcompile inspect {} --stage selection\n", as_word(output));
  }

  // As a shell takes it.
  static std::string as_word(const std::string& text) {
    const auto is_plain = [](unsigned char c) {
      return std::isalnum(c) || c >= 0x80 ||
             std::string_view("_./:@%+=,-").find(static_cast<char>(c)) != std::string_view::npos;
    };
    if (std::ranges::all_of(text, is_plain)) return text;
    std::string word = "'";
    for (const char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
    return word + "'";
  }

  static std::string place(const Compiled& compiled) {
    return compiled.program.target == "host" ? "the CPU" : compiled.program.target;
  }
};

}  // namespace

void add_compile_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("compile", "Compile a model to a package");
  const auto compile = std::make_shared<Compile>();
  compile->source.add_to(*command);
  compile->weights.add_to(*command,
                          ". The source's own, in 16 or 32 bits, are quantized once, "
                          "into the cache");
  command->add_option("-o,--output", compile->output, "The package, a new folder")
      ->type_name("FOLDER")
      ->required();
  command->add_option("--device", compile->device, "The device to compile for and to time on")
      ->capture_default_str()
      ->check(CLI::IsMember({"host", "cuda"}));
  command
      ->add_option("--target", compile->targets,
                   "Compile for GPUs that are not here: sm_80, sm_89, sm_90, sm_100. Several "
                   "(sm_80,sm_90) make a package each, in the folder OUTPUT")
      ->type_name("TARGET")
      ->delimiter(',');
  command
      ->add_option(
          "--max-context", compile->options.max_context,
          "Tokens that a package can hold (default: 4096, or as many as the model was made for)")
      ->check(CLI::Range(1, 1 << 24));
  command
      ->add_option(
          "--chunk", compile->options.chunk,
          "Tokens of the prompt that one step processes (default: 2048 on a GPU, else 128)")
      ->check(CLI::Range(1, 1 << 16));
  command
      ->add_option("--short-prompt", compile->options.short_prompt,
                   "Prompts of at most twice this many tokens get kernels of their own, chosen at "
                   "this length; 0: off")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 16))
      ->group(kRare);
  command
      ->add_option("--all-logits", compile->options.all_logits,
                   "Steps of up to this many tokens can also give the logits after each of their "
                   "tokens; 0: none can")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 16))
      ->group(kRare);
  command
      ->add_option("--slots", compile->options.slots,
                   "Steps of up to this many sequences at once, which read the weights once: for "
                   "serve --slots")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  command
      ->add_option("--slots-cost", compile->options.slots_cost,
                   "With --slots: how many percent longer a step of one sequence may take, so that "
                   "steps of several compute their products together")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 100.0))
      ->group(kRare);
  command->add_option(
      "--tries", compile->options.tries,
      "Candidates of a region that are tried, best first; 0: fallbacks only (default: where a GPU "
      "times them 24, and 20 of prefill; else 3)");
  command
      ->add_option("--step-seconds", compile->step_seconds,
                   "Seconds for timing candidates in the whole step, for the prompt and for decode "
                   "at each of a few contexts "
                   "(default: 40 on a GPU, else 0)")
      ->check(CLI::Range(0, 3600))
      ->group(kRare);
  command
      ->add_option("--max-candidates", compile->options.max_candidates,
                   "The most candidates of a region")
      ->capture_default_str()
      ->check(kPositive)
      ->group(kRare);
  command
      ->add_option("--families", compile->options.families,
                   "The kernel families that are tried, as gemv,attention (default: all)")
      ->type_name("FAMILIES")
      ->delimiter(',')
      ->group(kRare);
  command
      ->add_flag("!--no-fusion", compile->options.fuse,
                 "Do not fuse ops, to see what fusion is worth")
      ->group(kRare);
  compile->options.jobs = std::max(1u, std::thread::hardware_concurrency());
  command->add_option("--jobs,-j", compile->options.jobs, "Kernels that are built at once")
      ->check(CLI::Range(1, 1024))
      ->group(kRare);
  add_advisor_options(*command, compile->advising);
  command
      ->add_option("--proposals", compile->proposals,
                   "Once the package is there, search whole decode steps beside the --advisor, who "
                   "sees what was tried and proposes so many changes at a time. The same command "
                   "goes on where replies were missing")
      ->capture_default_str()
      ->check(CLI::Range(0, 16))
      ->group(kRare);
  command
      ->add_option("--attempts", compile->attempts,
                   "With --proposals: how many schedules of the decode step are tried")
      ->capture_default_str()
      ->check(kPositive)
      ->group(kRare);
  add_log_option(*command, compile->database);
  command
      ->add_flag(
          "--unmeasured", compile->unmeasured,
          "Time nothing: take the candidate that the cost model likes best and the gate admits")
      ->group(kRare);
  command->add_flag(
      "--quick", compile->options.quick,
      "Time nothing, and admit one candidate of a region: a package in seconds, whose kernels are "
      "right, and slower than those that are chosen by measurement");
  command
      ->add_option("--tuned", compile->tuned,
                   "A folder of known choices (agentcompile tuned), instead of the program's own. "
                   "What they know of all regions of this device is taken, and not timed")
      ->type_name("FOLDER")
      ->group(kRare);
  command->add_flag("--no-tuned", compile->no_tuned, "Use no known choices: time all candidates")
      ->group(kRare);
  command
      ->add_flag("--once", compile->once,
                 "If OUTPUT is a package, do nothing, unless it is a quick one and this is not; "
                 "wait for another process that compiles it")
      ->group(kRare);
  command
      ->add_option("--timeline", compile->timeline,
                   "Write when what was built, judged and timed, for chrome://tracing")
      ->type_name("FILE")
      ->group(kRare);
  command
      ->add_option("--dump", compile->dump,
                   "Print the result of these stages: capture, normalise, "
                   "incrementalise, regions, candidates, selection, program, check")
      ->type_name("STAGES")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group(kRare);
  command->add_flag("--force,-f", compile->force, "Replace an existing package");
  command->add_flag("--quiet,-q", compile->quiet, "No progress on stderr");
  command->add_flag("--json", compile->json, "Print JSON");
  command->footer(
      "Examples:\n"
      "  agentcompile compile MODEL -o PKG                  # for the CPU\n"
      "  agentcompile compile MODEL -o PKG --device cuda    # for the GPU of this machine: timed "
      "on it\n"
      "  agentcompile compile MODEL -o PKG --target sm_90   # for a GPU that is not here\n"
      "  agentcompile compile MODEL -o PKG --weights int4     # with its weights in 4 bits\n"
      "  agentcompile compile model.py:factory -o PKG --max-context 8192 --dtype bfloat16\n"
      "Next: agentcompile generate PKG -p 'Hello', or agentcompile chat PKG");
  compile->command = command;
  command->callback([compile] { compile->run(); });
}

}  // namespace ac
