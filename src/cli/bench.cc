#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <memory>
#include <random>

#include "base/error.h"
#include "base/json.h"
#include "cli/bench_output.h"
#include "cli/commands.h"
#include "cli/engine.h"
#include "cli/request.h"
#include "device/devices.h"
#include "device/measure.h"
#include "program/traffic.h"
#include "runtime/profile.h"

namespace ac {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPrefills = 5;  // timed, of which the median counts
constexpr int kWarmUp = 4;    // tokens

// A request end to end: tokens of the prompt, and tokens that are generated.
struct Workload {
  std::int64_t input = 0, output = 0;

  std::string name() const { return fmt::format("i{}/o{}", input, output); }
  std::int64_t tokens() const { return input + output; }
};

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

double part(std::vector<double> values, double share) {
  std::ranges::sort(values);
  const auto last = static_cast<double>(values.size() - 1);
  return values[static_cast<std::size_t>(share * last + 0.5)];
}

struct Bench {
  std::string package;
  EngineArguments arguments;
  std::vector<std::string> workload_names;
  std::vector<std::int64_t> prompts, contexts;
  std::int64_t new_tokens = 64;
  int repeats = 10, warm_ups = 2;
  Sampling sampling;
  bool quick = false, ablate = false, kernels = false, json = false;
  std::vector<std::string> without;
  std::string format = "text";

  std::vector<Workload> workloads;
  EngineArguments::Opened opened;
  std::filesystem::path measuring;
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
    opened = {};  // its memory is free before the next one needs as much
    opened = arguments.open(package, true);
    engine().sample(sampling);
    measuring = build_for(*opened.device, measure_source());
    for (const Workload& workload : workloads) generate(workload);
    for (const std::int64_t tokens : prompts) prefill(tokens);
    for (const std::int64_t context : contexts) decode(context);
  }

  Engine& engine() const { return *opened.engine; }
  const Program& program() const { return opened.engine->program(); }

  // What the device streams at this moment: it drifts.
  double streaming_limit() const {
    MeasureSizes sizes{.rounds = 16, .repeats = 4};
    if (opened.device->info().sm == 0) sizes = {.bytes = 1 << 20, .rounds = 1, .repeats = 2};
    return measure(*opened.device, measuring, sizes).read;
  }

  void emit(Json line, const std::string& text) const {
    line["package"] = std::filesystem::path(package).filename().string();
    line["model"] = program().model;
    line["dtype"] = short_name(program().dtype);
    const bool is_whole = without.empty();
    if (!is_whole || ablate)
      line["left_out"] = is_whole ? "nothing" : fmt::format("{}", fmt::join(without, ", "));
    if (!sampling.is_greedy()) line["sampling"] = to_json(sampling);
    line["device"] = opened.device->name();
    line["driver"] = find_devices().driver;
    output->add(line,
                is_whole ? text : fmt::format("without {}: {}", fmt::join(without, ", "), text));
  }

  std::vector<std::int64_t> random_ids(std::int64_t tokens) const {
    std::mt19937_64 random(1);
    std::uniform_int_distribution<std::int64_t> id(0, program().vocab - 1);
    std::vector<std::int64_t> ids(static_cast<std::size_t>(tokens));
    for (std::int64_t& i : ids) i = id(random);
    return ids;
  }

  // As `run` does it: the prompt, then token by token until all have been handed over.
  void generate(const Workload& workload) const {
    const std::vector<std::int64_t> ids = random_ids(workload.input);
    const auto seconds = [](Clock::duration time) {
      return std::chrono::duration<double>(time).count();
    };
    std::vector<double> first, whole;
    for (int run = 0; run < warm_ups + repeats; ++run) {
      engine().reset();
      const auto start = Clock::now();
      auto first_at = start;
      engine().prefill(ids);
      engine().generate(workload.output, [&](std::int64_t) {
        if (first_at == start) first_at = Clock::now();
        return true;
      });
      const auto end = Clock::now();
      if (run < warm_ups) continue;
      first.push_back(seconds(first_at - start));
      whole.push_back(seconds(end - start));
    }
    const double median = part(whole, 0.5), median_first = part(first, 0.5);
    const double rate = static_cast<double>(workload.output) / median;
    Json line{{"what", "workload"},
              {"workload", workload.name()},
              {"input", workload.input},
              {"output", workload.output},
              {"ms", median * 1e3},
              {"ms_min", std::ranges::min(whole) * 1e3},
              {"ms_max", std::ranges::max(whole) * 1e3},
              {"ms_first", median_first * 1e3},
              {"tokens_per_second", rate},
              {"repeats", repeats},
              {"warm_ups", warm_ups}};
    if (workload.output > 1)
      line["ms_token"] = (median - median_first) * 1e3 / static_cast<double>(workload.output - 1);
    emit(line, fmt::format("{}: {:.2f} ms ({:.2f} to {:.2f}); the first token after {:.2f} ms; "
                           "{:.1f} tokens/s",
                           workload.name(), median * 1e3, line["ms_min"].get<double>(),
                           line["ms_max"].get<double>(), median_first * 1e3, rate));
  }

  void prefill(std::int64_t tokens) const {
    const std::vector<std::int64_t> ids = random_ids(tokens);
    std::vector<double> times;
    for (int repeat = 0; repeat <= kPrefills; ++repeat) {
      engine().reset();
      const double seconds = opened.device->time([&] { engine().prefill(ids); });
      if (repeat > 0) times.push_back(seconds);
    }
    engine().chosen();  // of logits that are no numbers, times say nothing
    const double median = part(times, 0.5);
    emit({{"what", "prefill"},
          {"tokens", tokens},
          {"chunk", program().prefill.max_tokens},
          {"ms", median * 1e3}},
         fmt::format("prefill of {} tokens: {:.3f} ms, {:.0f} tokens/s", tokens, median * 1e3,
                     static_cast<double>(tokens) / median));
    if (!kernels) return;
    // Of the last chunk, which has the most before it.
    const std::int64_t chunk = std::min(tokens, program().prefill.max_tokens);
    launches("prefill", program().prefill_of(chunk), chunk, tokens - chunk, streaming_limit());
  }

  // Random keys and values, and a random token to begin with.
  void pretend(std::int64_t context) const {
    engine().fill_caches(*opened.random);
    engine().pretend(context);
    engine().decode(program().vocab / 2);
    engine().pretend(context);
  }

  void decode(std::int64_t context) const {
    const double limit = streaming_limit();
    pretend(context);
    engine().replay(kWarmUp);
    Device& device = *opened.device;
    std::vector<std::unique_ptr<Device::Mark>> marks;
    for (std::int64_t i = 0; i <= new_tokens; ++i) marks.push_back(device.make_mark());
    // Token by token, for what differs between them.
    engine().pretend(context);
    for (std::int64_t i = 0; i < new_tokens; ++i) {
      marks[static_cast<std::size_t>(i)]->set();
      engine().replay(1);
    }
    marks.back()->set();
    std::vector<double> times;
    for (std::size_t i = 1; i < marks.size(); ++i)
      times.push_back(marks[i]->seconds_since(*marks[i - 1]));
    // As they are generated.
    engine().pretend(context);
    const double together = device.time([&] { engine().replay(new_tokens); });
    engine().check_tokens(new_tokens);
    const double mean = together / static_cast<double>(new_tokens);

    const Traffic traffic =
        traffic_of(program(), program().decode_after(context), 1, context + new_tokens / 2);
    const double bytes = static_cast<double>(traffic.weights + traffic.cache);
    const double share = bytes / mean / limit;
    emit({{"what", "decode"},
          {"context", context},
          {"new", new_tokens},
          {"ms", mean * 1e3},
          {"ms_median", part(times, 0.5) * 1e3},
          {"ms_p99", part(times, 0.99) * 1e3},
          {"weight_bytes", traffic.weights},
          {"cache_bytes", traffic.cache},
          {"launches", program().decode_after(context).launches.size()},
          {"limit_gb_s", limit * 1e-9},
          {"share", share}},
         fmt::format("decode at {} tokens: {:.4f} ms a token (one by one: median {:.4f}, p99 "
                     "{:.4f}), {:.3f} GB, {:.1f} % of {:.0f} GB/s",
                     context, mean * 1e3, part(times, 0.5) * 1e3, part(times, 0.99) * 1e3,
                     bytes * 1e-9, 100 * share, limit * 1e-9));
    if (kernels) launches("decode", program().decode_after(context), 1, context, limit);
  }

  void launches(const char* phase, const Phase& of_phase, std::int64_t tokens, std::int64_t context,
                double limit) const {
    for (const LaunchTimes& of : profile(engine(), of_phase, tokens, context)) {
      const double rate = static_cast<double>(of.traffic.total()) / of.alone;
      emit({{"what", "launch"},
            {"phase", phase},
            {"tokens", tokens},
            {"context", context},
            {"kernel", of.kernel},
            {"note", of.note},
            {"launches", of.launches},
            {"us", of.alone * 1e6},
            {"us_in_step", of.in_step * 1e6},
            {"bytes", of.traffic.total()},
            {"gb_s", rate * 1e-9},
            {"share", rate / limit}},
           fmt::format("  {:3} x {:8.2f} us alone, {:8.2f} in the step, {:10} bytes, {:6.1f} % {}",
                       of.launches, of.alone * 1e6, of.in_step * 1e6, of.traffic.total(),
                       100 * rate / limit, of.note));
    }
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
