#include "cli/engine_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>

#include "device/best_rates.h"
#include "device/devices.h"
#include "program/sampling.h"
#include "program/traffic.h"
#include "runtime/profile.h"
#include "runtime/together.h"

namespace ac {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPrefills = 5;         // timed, of which the median counts
constexpr std::int64_t kWarmUp = 4;  // tokens, where there is room for them

double part(std::vector<double> values, double share) {
  std::ranges::sort(values);
  const auto last = static_cast<double>(values.size() - 1);
  return values[static_cast<std::size_t>(share * last + 0.5)];
}

}  // namespace

EngineBench::EngineBench(const EngineArguments& arguments, const std::string& package, Json more)
    : package_(package),
      more_(std::move(more)),
      opened_(arguments.open(package, true)),
      sequences_(arguments.sequences) {
  measuring_ = build_for(*opened_.device, measure_source());
}

// What the device streams at this moment: it drifts.
double EngineBench::streaming_limit() const {
  MeasureSizes sizes{.rounds = 16, .repeats = 4};
  if (opened_.device->info().sm == 0) sizes = {.bytes = 1 << 20, .rounds = 1, .repeats = 2};
  return measure(*opened_.device, measuring_, sizes).read;
}

Measurement EngineBench::measured(Json line, const std::string& text) const {
  line["package"] = std::filesystem::path(package_).filename().string();
  line["model"] = program().model;
  line["dtype"] = short_name(program().dtype);
  line.update(more_);
  line["device"] = opened_.device->name();
  line["driver"] = find_devices().driver;
  return {std::move(line), text};
}

std::vector<std::int64_t> EngineBench::random_ids(std::int64_t tokens) const {
  std::mt19937_64 random(1);
  std::uniform_int_distribution<std::int64_t> id(0, program().vocab - 1);
  std::vector<std::int64_t> ids(static_cast<std::size_t>(tokens));
  for (std::int64_t& i : ids) i = id(random);
  return ids;
}

Measurement EngineBench::request(const Workload& workload, int repeats, int warm_ups) const {
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
  return measured(line,
                  fmt::format("{}: {:.2f} ms ({:.2f} to {:.2f}); the first token after {:.2f} ms; "
                              "{:.1f} tokens/s",
                              workload.name(), median * 1e3, line["ms_min"].get<double>(),
                              line["ms_max"].get<double>(), median_first * 1e3, rate));
}

Measurement EngineBench::prefill(std::int64_t tokens) const {
  const std::vector<std::int64_t> ids = random_ids(tokens);
  std::vector<double> times;
  for (int repeat = 0; repeat <= kPrefills; ++repeat) {
    engine().reset();
    const double seconds = opened_.device->time([&] { engine().prefill(ids); });
    if (repeat > 0) times.push_back(seconds);
  }
  engine().chosen();  // of logits that are no numbers, times say nothing
  const double median = part(times, 0.5);
  return measured({{"what", "prefill"},
                   {"tokens", tokens},
                   {"chunk", program().longest_step()},
                   {"ms", median * 1e3}},
                  fmt::format("prefill of {} tokens: {:.3f} ms, {:.0f} tokens/s", tokens,
                              median * 1e3, static_cast<double>(tokens) / median));
}

// Random keys and values, and a random token to begin with.
void EngineBench::pretend(Engine& engine, std::int64_t context) const {
  engine.fill_caches(*opened_.random);
  engine.pretend(context);
  engine.decode(program().vocab / 2);
  engine.pretend(context);
}

Measurement EngineBench::decode(std::int64_t context, std::int64_t new_tokens) const {
  const double limit = streaming_limit();
  pretend(engine(), context);
  engine().replay(std::min(kWarmUp, program().max_context - context));
  Device& device = *opened_.device;
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
      traffic_of(program(), program().phase_of(1, context), 1, context + new_tokens / 2);
  const double bytes = static_cast<double>(traffic.weights + traffic.cache);
  const double share = bytes / mean / limit;
  return measured(
      {{"what", "decode"},
       {"context", context},
       {"new", new_tokens},
       {"ms", mean * 1e3},
       {"ms_median", part(times, 0.5) * 1e3},
       {"ms_p99", part(times, 0.99) * 1e3},
       {"weight_bytes", traffic.weights},
       {"cache_bytes", traffic.cache},
       {"launches", program().phase_of(1, context).launches.size()},
       {"limit_gb_s", limit * 1e-9},
       {"share", share}},
      fmt::format("decode at {} tokens: {:.4f} ms a token (one by one: median {:.4f}, p99 "
                  "{:.4f}), {:.3f} GB, {:.1f} % of {:.0f} GB/s",
                  context, mean * 1e3, part(times, 0.5) * 1e3, part(times, 0.99) * 1e3,
                  bytes * 1e-9, 100 * share, limit * 1e-9));
}

Measurement EngineBench::together(std::int64_t context, std::int64_t steps) const {
  std::vector<Engine*> all{&engine()};
  std::vector<std::unique_ptr<Engine>> others;
  for (std::int64_t i = 1; i < sequences_; ++i) {
    others.push_back(std::make_unique<Engine>(engine().shared()));
    all.push_back(others.back().get());
  }
  Together together(engine().shared());
  const auto begin = [&] {
    for (Engine* const each : all) each->pretend(context);
  };
  // As a server does it: one step is under way while the one before it is looked at.
  const auto run = [&](std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      together.step(all);
      if (together.under_way() > 1) together.tokens();
    }
    for (const std::int32_t token : together.tokens()) checked_token(token, program().vocab);
  };
  for (Engine* const each : all) pretend(*each, context);
  run(std::min(kWarmUp, program().max_context - context));
  begin();
  const double seconds = opened_.device->time([&] { run(steps); }) / static_cast<double>(steps);
  const auto count = static_cast<double>(all.size());
  return measured({{"what", "together"},
                   {"sequences", all.size()},
                   {"context", context},
                   {"new", steps},
                   {"ms", seconds * 1e3},
                   {"tokens_per_second", count / seconds}},
                  fmt::format("{} sequences at {} tokens: {:.4f} ms a step, {:.0f} tokens/s",
                              all.size(), context, seconds * 1e3, count / seconds));
}

std::vector<Measurement> EngineBench::kernels(const char* phase, const Phase& of_phase,
                                              std::int64_t tokens, std::int64_t context) const {
  const double limit = streaming_limit();
  std::vector<Measurement> all;
  for (const LaunchTimes& of : profile(engine(), of_phase, tokens, context)) {
    const double rate = static_cast<double>(of.traffic.total()) / of.alone;
    all.push_back(measured(
        {{"what", "launch"},
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
                    100 * rate / limit, of.note)));
  }
  return all;
}

std::vector<Measurement> EngineBench::prefill_kernels(std::int64_t tokens) const {
  // The last chunk has the most before it.
  const std::int64_t chunk = std::min(tokens, program().longest_step());
  return kernels("prefill", program().phase_of(chunk, tokens - chunk), chunk, tokens - chunk);
}

std::vector<Measurement> EngineBench::decode_kernels(std::int64_t context) const {
  return kernels("decode", program().phase_of(1, context), 1, context);
}

std::vector<Measurement> EngineBench::timeline(std::int64_t context) const {
  pretend(engine(), context);
  const Phase& phase = program().phase_of(1, context);
  const std::vector<LaunchTime> times = launch_by_launch(engine(), phase, context);
  std::vector<Measurement> all;
  double start = 0;
  for (std::size_t i = 0; i < times.size(); ++i) {
    const Launch& launch = phase.launches[i];
    const std::int64_t bytes = traffic_of(program(), launch, 1, context).total();
    all.push_back(measured({{"what", "timeline"},
                            {"context", context},
                            {"launch", i},
                            {"kernel", launch.kernel},
                            {"note", phase.notes[i]},
                            {"start_us", start * 1e6},
                            {"us", times[i].seconds * 1e6},
                            {"bytes", bytes}},
                           fmt::format("  at {:10.2f} us: {:8.2f} us, {:10} bytes, {}", start * 1e6,
                                       times[i].seconds * 1e6, bytes, phase.notes[i])));
    for (const LaunchTime::Part& part : times[i].parts)
      all.push_back(measured(
          {{"what", "part"},
           {"context", context},
           {"launch", i},
           {"kernel", launch.kernel},
           {"rounds", launch.stamps->rounds},
           {"point", part.point},
           {"us", part.seconds * 1e6},
           {"least_us", part.least * 1e6}},
          fmt::format("    {:8.3f} us in each of {} rounds, at least {:.3f}, until {}",
                      part.seconds * 1e6, launch.stamps->rounds, part.least * 1e6, part.point)));
    start += times[i].seconds;
  }
  return all;
}

}  // namespace ac
