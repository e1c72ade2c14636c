#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>

#include "base/error.h"
#include "base/json.h"
#include "cli/bench_output.h"
#include "cli/commands.h"
#include "cli/engine_bench.h"
#include "cli/run_request.h"

namespace ac {
namespace {

constexpr std::array<Workload, 5> kWorkloads{
    {{128, 128}, {2048, 512}, {8192, 4096}, {12288, 8192}, {20480, 16384}}};

Workload workload_of(const std::string& text) {
  Workload result;
  const auto number = [&](std::string_view part, char letter, std::int64_t& to) {
    if (part.empty() || part.front() != letter) return false;
    const char* const end = part.data() + part.size();
    const auto [stop, error] = std::from_chars(part.data() + 1, end, to);
    return error == std::errc() && stop == end && to >= 1 && to <= (std::int64_t{1} << 24);
  };
  const std::string_view all = text;
  const std::size_t slash = all.find('/');
  if (slash == std::string::npos || !number(all.substr(0, slash), 'i', result.input) ||
      !number(all.substr(slash + 1), 'o', result.output))
    wrong_usage("--workload: {} is not iTOKENS/oTOKENS, as i128/o128", text);
  return result;
}

struct Bench {
  std::string package;
  EngineArguments arguments;
  std::vector<std::string> workload_names;
  std::vector<std::int64_t> prompts, contexts;
  std::int64_t new_tokens = 64;
  int repeats = 10, warm_ups = 2;
  Sampling sampling;
  bool quick = false, ablate = false, kernels = false, timeline = false, json = false;
  std::vector<std::string> without;
  std::string format = "text";

  std::vector<Workload> workloads;
  std::unique_ptr<EngineBench> timed;
  std::unique_ptr<BenchOutput> output;

  void run() {
    check(sampling);
    if (json) format = "jsonl";
    if (quick) repeats = 3, warm_ups = 1;
    for (const std::string& name : workload_names) workloads.push_back(workload_of(name));
    if (workloads.empty() && prompts.empty() && contexts.empty()) choose_workloads();
    output = std::make_unique<BenchOutput>(format);
    std::vector<std::vector<std::string>> left_out{without};
    if (ablate) left_out = {{}, {"overlap"}, {"graph"}, {"graph", "overlap"}};
    for (const auto& mechanisms : left_out) {
      without = mechanisms;
      time_all();
    }
    output->finish();
  }

  // The paper's, as many as the package has room for.
  void choose_workloads() {
    const std::string chosen = choose_package(package, arguments.device);
    const std::int64_t room = read_program(PackageFiles(chosen)).max_context;
    for (const Workload& workload : kWorkloads)
      if (workload.tokens() <= room)
        workloads.push_back(workload);
      else
        warn_on_stderr(fmt::format(
            "{} is left out: the package holds {} tokens (compile with --max-context {})",
            workload.name(), room, workload.tokens()));
    if (workloads.empty())
      wrong_usage("{} holds {} tokens: name a workload that it has room for, as --workload i{}/o{}",
                  package, room, std::max<std::int64_t>(1, room / 2),
                  std::max<std::int64_t>(1, room / 2));
  }

  void time_all() {
    const auto lacks = [&](const char* what) { return std::ranges::count(without, what) > 0; };
    arguments.records = !lacks("graph"), arguments.overlaps = !lacks("overlap");
    timed.reset();  // its memory is free before the next one needs as much
    timed = std::make_unique<EngineBench>(arguments, package, said_of_all());
    timed->engine().sample(sampling);
    for (const Workload& workload : workloads) add(timed->request(workload, repeats, warm_ups));
    for (const std::int64_t tokens : prompts) {
      add(timed->prefill(tokens));
      if (kernels) add(timed->prefill_kernels(tokens));
    }
    for (const std::int64_t context : contexts) {
      add(timed->decode(context, new_tokens));
      if (arguments.sequences > 1) add(timed->together(context, new_tokens));
      if (kernels) add(timed->decode_kernels(context));
      if (timeline) add(timed->timeline(context));
    }
  }

  Json said_of_all() const {
    Json said = Json::object();
    const bool is_whole = without.empty();
    if (!is_whole || ablate)
      said["left_out"] = is_whole ? "nothing" : fmt::format("{}", fmt::join(without, ", "));
    if (!sampling.is_greedy()) said["sampling"] = to_json(sampling);
    return said;
  }

  void add(const Measurement& of) const {
    output->add(of.figures, without.empty()
                                ? of.text
                                : fmt::format("without {}: {}", fmt::join(without, ", "), of.text));
  }
  void add(const std::vector<Measurement>& all) const {
    for (const Measurement& of : all) add(of);
  }
};

}  // namespace

void add_bench_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "bench", "Time a package: whole requests, prefill, decode, and each of its kernels");
  const auto bench = std::make_shared<Bench>();
  command->add_option("PACKAGE", bench->package, "A package")->required();
  command
      ->add_option("--workload", bench->workload_names,
                   "Requests to time end to end, with random token ids: iPROMPT/oGENERATED,... "
                   "(default, if nothing is named: i128/o128, i2048/o512, i8192/o4096, "
                   "i12288/o8192, i20480/o16384, as far as the package has room for them)")
      ->type_name("LIST")
      ->delimiter(',');
  command->add_option("--prompt", bench->prompts, "Lengths of the prompts to time: 128,2048")
      ->type_name("LIST")
      ->delimiter(',')
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24));
  CLI::Option* const contexts =
      command
          ->add_option("--context", bench->contexts,
                       "Numbers of cached tokens, which are random, to decode after: 128,2048")
          ->type_name("LIST")
          ->delimiter(',')
          ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 24));
  command->add_option("--new", bench->new_tokens, "Tokens to decode at each context")
      ->needs(contexts)
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  command
      ->add_option("--slots", bench->arguments.sequences,
                   "At each context, also time steps of this many sequences together, each after "
                   "that many tokens (of a package that was compiled with --slots)")
      ->needs(contexts)
      ->check(CLI::Range(std::int64_t{2}, std::int64_t{64}));
  CLI::Option* const repeats =
      command->add_option("--repeat", bench->repeats, "How often each workload is timed")
          ->capture_default_str()
          ->check(CLI::Range(1, 10'000));
  CLI::Option* const warm_ups =
      command->add_option("--warm-up", bench->warm_ups, "How often it runs before that")
          ->capture_default_str()
          ->check(CLI::Range(0, 10'000));
  command->add_flag("--quick", bench->quick, "Each workload three times after one warm-up")
      ->excludes(repeats)
      ->excludes(warm_ups);
  command
      ->add_option("--without", bench->without,
                   "Leave a mechanism out: graph (each kernel is launched by itself every time), "
                   "overlap (no kernel begins before the previous one has ended)")
      ->type_name("LIST")
      ->delimiter(',')
      ->check(CLI::IsMember({"graph", "overlap"}));
  command
      ->add_flag("--ablate", bench->ablate,
                 "Time all with every mechanism, and again without each of them and without both")
      ->excludes("--without");
  command->add_flag("--kernels", bench->kernels,
                    "Also time each kind of launch, of the last chunk of each prompt and of a "
                    "decode step at each context");
  command
      ->add_flag("--timeline", bench->timeline,
                 "Also time each launch of a decode step at each context, in their order, and the "
                 "parts of a launch that says when they are done")
      ->needs(contexts);
  command
      ->add_option("--output,-o", bench->format,
                   "text, md (tables), json (one array), jsonl (an object a line, as it comes) or "
                   "csv")
      ->type_name("FORMAT")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "md", "json", "jsonl", "csv"}));
  command->add_flag("--json", bench->json, "The same as --output jsonl")->excludes("--output");
  add_sampling(*command, bench->sampling);
  bench->arguments.add_to(*command);
  command->footer(
      "Examples:\n"
      "  agentcompile bench PKG --quick -o md\n"
      "  agentcompile bench PKG --workload i128/o128 --ablate\n"
      "  agentcompile bench PKG --prompt 128,2048\n"
      "  agentcompile bench PKG --context 2048 --new 256 --kernels --json");
  command->callback([bench] { bench->run(); });
}

}  // namespace ac
