#include "lab/step_bench.h"

#include "lab/span.h"

namespace ac {
namespace {

constexpr std::uint64_t kSeed = 20261121;

EngineOptions with_random_weights(const RandomValues& random) {
  EngineOptions options;
  options.weights = random_weights(random, kSeed);
  return options;
}

}  // namespace

StepBench::StepBench(Device& device, const std::filesystem::path& package,
                     const std::filesystem::path& random, std::int64_t context)
    : random_(device, random),
      engine_(device, package, with_random_weights(random_)),
      tokens_(engine_.program().longest_step()),
      context_(context) {
  engine_.fill_caches(random_);
  const Program& program = engine_.program();
  const auto ids = static_cast<std::size_t>(program.phases.at(0).ids);
  device.fill(engine_.addresses()[ids],
              static_cast<std::size_t>(program.buffers[ids].bytes.at(tokens_)), 0);
}

std::unique_ptr<Device::Recording> StepBench::record(const Step& step, int steps) {
  const std::vector<Launch>& launches = engine_.program().phases.at(0).launches;
  return engine_.device().record([&] {
    for (int i = 0; i < steps; ++i) {
      bool overlaps = false;
      for (const Span span : step)
        for (std::size_t at = span.begin; at < span.end; ++at) {
          engine_.enqueue(launches.at(at), tokens_, overlaps);
          overlaps = true;
        }
    }
  });
}

double StepBench::sample(Device::Recording& recording, int steps) {
  engine_.pretend(context_);
  return engine_.device().time([&] { recording.replay(); }) * 1e6 / steps;
}

std::vector<std::vector<double>> StepBench::race(const std::vector<Step>& steps, int rounds,
                                                 int repeats) {
  if (repeats == 0) repeats = this->steps();
  std::vector<std::unique_ptr<Device::Recording>> recordings;
  for (const Step& step : steps) recordings.push_back(record(step, repeats));
  std::vector<std::vector<double>> samples(steps.size());
  for (const auto& recording : recordings) sample(*recording, repeats);
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < steps.size(); ++i) {
      // Another one first each time: what runs before a step warms the card for it.
      const std::size_t at = (i + static_cast<std::size_t>(round)) % steps.size();
      samples[at].push_back(sample(*recordings[at], repeats));
    }
  return samples;
}

std::string line_of(const BenchQuestion& question) {
  Json list = Json::array();
  for (const StepBench::Step& step : question.steps) {
    Json spans = Json::array();
    for (const Span span : step) spans.push_back(to_json(span));
    list.push_back(std::move(spans));
  }
  return Json{
      {"steps", std::move(list)}, {"rounds", question.rounds}, {"repeats", question.repeats}}
      .dump();
}

Conversation::Answer prepare(std::shared_ptr<Device> device, const BenchJob& job) {
  struct Opened {
    std::shared_ptr<Device> device;
    std::unique_ptr<StepBench> bench;  // which goes before its device
  };
  const auto opened = std::make_shared<Opened>(
      device, std::make_unique<StepBench>(*device, job.package, job.random, job.context));
  return [opened](const std::string& line) {
    const Json asked = Json::parse(line);
    BenchQuestion question{{}, asked.at("rounds"), asked.at("repeats")};
    for (const Json& step : asked.at("steps"))
      for (question.steps.emplace_back(); const Json& span : step)
        question.steps.back().push_back(span_of(span));
    return line_of(opened->bench->race(question.steps, question.rounds, question.repeats));
  };
}

}  // namespace ac
