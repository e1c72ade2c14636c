#include "lab/worker.h"

#include <algorithm>
#include <array>

#include "base/child.h"
#include "base/error.h"
#include "ir/text.h"
#include "lab/program_pair.h"
#include "lab/realise.h"
#include "lab/step_bench.h"
#include "select/in_context.h"
#include "state/json.h"

namespace ac {
namespace {

Json files_json(const KernelFiles& files) {
  Json json = Json::object();
  for (const auto& [entry, file] : files) json[entry] = file.string();
  return json;
}

KernelFiles files_of(const Json& json) {
  KernelFiles files;
  for (const auto& [entry, file] : json.items()) files[entry] = file.get<std::string>();
  return files;
}

// Jobs are the GPU's, but for tests.
std::unique_ptr<Device> device_of(const Json& job) {
  return job.at("device") == "host" ? open_host_device() : open_cuda_device();
}

std::string judge_here(Device& device, const Json& job) {
  const Trial trial = trial_from_json(job.at("trial"), "job");
  try {
    for (const Launch& launch : trial.launches)
      if (launch.product) device.load_product(*launch.product);
  } catch (const Error& error) {
    if (error.fault() != Fault::job_failed) throw;
    return to_json(unavailable(error.what())).dump();
  }
  return to_json(outcome_of(judge_on(device, trial, files_of(job.at("files"))))).dump();
}

std::string race_here(Device& device, const Json& job) {
  MeasureOptions options;
  options.tokens = job.at("tokens"), options.position = job.at("position");
  options.rounds = job.at("rounds"), options.seconds = job.at("seconds");
  options.repetitions = job.at("repetitions"), options.patience = job.at("patience");
  for (const Json& state : job.at("states"))
    options.states.push_back(state_from_json(state, "job"));
  std::vector<Contender> contenders;
  for (const Json& entry : job.at("contenders")) {
    Contender contender{entry.at("name"), {}};
    for (const Json& buffer : entry.at("buffers"))
      contender.made.buffers.push_back(buffer_from_json(buffer, "job"));
    for (const Json& launch : entry.at("launches"))
      contender.made.launches.push_back(launch_from_json(launch, "job"));
    contenders.push_back(std::move(contender));
  }
  const StepGraph step = parse_step(job.at("step").get<std::string>(), "job");
  return samples_json(measure(device, step, contenders, files_of(job.at("files")), options)).dump();
}

std::string run_on(Device& device, const Json& job) {
  return job.at("job") == "race" ? race_here(device, job) : judge_here(device, job);
}

}  // namespace

Json judge_job(const Trial& trial, const KernelFiles& files) {
  return {{"job", "judge"},
          {"device", "cuda"},
          {"trial", to_json(trial)},
          {"files", files_json(files)}};
}

Json race_job(const StepGraph& step, const std::vector<Contender>& contenders,
              const KernelFiles& files, const MeasureOptions& options) {
  Json states = Json::array(), entries = Json::array();
  for (const StateSpec& state : options.states) states.push_back(to_json(state));
  for (const Contender& contender : contenders) {
    Json buffers = Json::array(), launches = Json::array();
    for (const Buffer& buffer : contender.made.buffers) buffers.push_back(to_json(buffer));
    for (const Launch& launch : contender.made.launches) launches.push_back(to_json(launch));
    entries.push_back({{"name", contender.name},
                       {"buffers", std::move(buffers)},
                       {"launches", std::move(launches)}});
  }
  return {{"job", "race"},
          {"device", "cuda"},
          {"step", print(step)},
          {"tokens", options.tokens},
          {"position", options.position},
          {"rounds", options.rounds},
          {"seconds", options.seconds},
          {"repetitions", options.repetitions},
          {"patience", options.patience},
          {"states", std::move(states)},
          {"contenders", std::move(entries)},
          {"files", files_json(files)}};
}

Json samples_json(const std::vector<Latency>& latencies) {
  Json json = Json::array();
  for (const Latency& latency : latencies) json.push_back(latency.samples);
  return json;
}

std::string run_job(const Json& job) { return run_on(*device_of(job), job); }

Json jobs_job() { return {{"job", "jobs"}, {"device", "cuda"}}; }

bool is_conversation(const Json& job) {
  constexpr std::array kinds = {"jobs", "bench", "steps", "pair"};
  return std::ranges::find(kinds, job.at("job").get<std::string>()) != kinds.end();
}

Conversation::Answer prepare_job(const Json& job) {
  AC_ASSERT(is_conversation(job));
  std::shared_ptr<Device> device = device_of(job);
  if (job.at("job") == "bench") return prepare_bench(std::move(device), job);
  if (job.at("job") == "pair") return prepare_pair(std::move(device), job);
  if (job.at("job") == "steps") return prepare_steps(std::move(device), job);
  keep_freed_memory();
  return [device](const std::string& question) { return run_on(*device, Json::parse(question)); };
}

}  // namespace ac
