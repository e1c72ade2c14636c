#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>

#include "base/error.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/engine.h"
#include "cli/request.h"
#include "device/devices.h"
#include "device/measure.h"
#include "program/traffic.h"
#include "runtime/profile.h"

namespace ac {
namespace {

constexpr int kPrefills = 5;  // timed, of which the median counts
constexpr int kWarmUp = 4;    // tokens

double part(std::vector<double> values, double share) {
  std::ranges::sort(values);
  const auto last = static_cast<double>(values.size() - 1);
  return values[static_cast<std::size_t>(share * last + 0.5)];
}

struct Bench {
  std::string package;
  EngineArguments arguments;
  std::vector<std::int64_t> prompts, contexts;
  std::int64_t new_tokens = 64;
  Sampling sampling;
  bool random_ids = false, kernels = false, json = false;
  std::vector<std::string> without;

  EngineArguments::Opened opened;
  std::filesystem::path measuring;

  void run() {
    if (!random_ids) wrong_usage("bench needs --ids-random: there are no other ids yet");
    if (prompts.empty() && contexts.empty())
      wrong_usage("bench needs something to time: --prompt or --context");
    check(sampling);
    const auto lacks = [&](const char* what) { return std::ranges::count(without, what) > 0; };
    arguments.records = !lacks("graph"), arguments.overlaps = !lacks("overlap");
    opened = arguments.open(package, true);
    engine().sample(sampling);
    measuring = build_for(*opened.device, measure_source());
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

  void emit(Json line) const {
    if (!json) return;
    line["package"] = std::filesystem::path(package).filename().string();
    line["model"] = program().model;
    line["dtype"] = short_name(program().dtype);
    if (!without.empty()) line["without"] = without;
    if (!sampling.is_greedy()) line["sampling"] = to_json(sampling);
    line["device"] = opened.device->name();
    line["driver"] = find_devices().driver;
    fmt::print("{}\n", line.dump());
    std::fflush(stdout);
  }

  void prefill(std::int64_t tokens) const {
    std::mt19937_64 random(1);
    std::uniform_int_distribution<std::int64_t> id(0, program().vocab - 1);
    std::vector<std::int64_t> ids(static_cast<std::size_t>(tokens));
    for (std::int64_t& i : ids) i = id(random);
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
          {"ms", median * 1e3}});
    if (!json)
      fmt::print("prefill of {} tokens: {:.3f} ms, {:.0f} tokens/s\n", tokens, median * 1e3,
                 static_cast<double>(tokens) / median);
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
          {"share", share}});
    if (!json)
      fmt::print(
          "decode at {} tokens: {:.4f} ms a token (one by one: median {:.4f}, p99 {:.4f}), {:.3f} "
          "GB, {:.1f} % of {:.0f} GB/s\n",
          context, mean * 1e3, part(times, 0.5) * 1e3, part(times, 0.99) * 1e3, bytes * 1e-9,
          100 * share, limit * 1e-9);
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
            {"share", rate / limit}});
      if (!json)
        fmt::print("  {:3} x {:8.2f} us alone, {:8.2f} in the step, {:10} bytes, {:6.1f} % {}\n",
                   of.launches, of.alone * 1e6, of.in_step * 1e6, of.traffic.total(),
                   100 * rate / limit, of.note);
    }
  }
};

}  // namespace

void add_bench_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("bench", "Time a package: prefill, decode, and each of its kernels");
  const auto bench = std::make_shared<Bench>();
  command->add_option("PACKAGE", bench->package, "A package")->required();
  bench->arguments.add_to(*command);
  command->add_flag("--ids-random", bench->random_ids, "Random token ids");
  command->add_option("--prompt", bench->prompts, "Lengths of the prompts to time: 128,2048")
      ->delimiter(',')
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24));
  CLI::Option* const contexts =
      command
          ->add_option("--context", bench->contexts,
                       "Numbers of cached tokens, which are random, to decode after: 128,2048")
          ->delimiter(',')
          ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 24));
  command->add_option("--new", bench->new_tokens, "Tokens to decode at each context")
      ->needs(contexts)
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  add_sampling(*command, bench->sampling);
  command->add_flag("--kernels", bench->kernels,
                    "Also time each kind of launch, of the last chunk of each prompt and of a "
                    "decode step at each context");
  command
      ->add_option("--without", bench->without,
                   "Leave a technique out: graph (each kernel is launched by itself every time), "
                   "overlap (no kernel begins before the previous one has ended)")
      ->delimiter(',')
      ->check(CLI::IsMember({"graph", "overlap"}));
  command->add_flag("--json", bench->json, "Print JSON lines");
  command->footer(
      "Examples:\n"
      "  agentcompile bench PKG --ids-random --prompt 128,2048\n"
      "  agentcompile bench PKG --ids-random --context 2048 --new 256 --kernels --json");
  command->callback([bench] { bench->run(); });
}

}  // namespace ac
