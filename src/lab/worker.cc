#include "lab/worker.h"

#include "base/child.h"
#include "base/error.h"
#include "base/timing_turn.h"
#include "ir/graph_text.h"
#include "lab/lab.h"
#include "lab/program_pair.h"
#include "lab/step_bench.h"
#include "lab/step_race.h"
#include "state/state_json.h"

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

std::string judge_here(Device& device, const Json& asked) {
  const Trial trial = trial_from_json(asked.at("trial"), "job");
  try {
    for (const Launch& launch : trial.launches)
      if (launch.product) device.load_product(*launch.product);
  } catch (const Error& error) {
    if (error.fault() != Fault::job_failed) throw;
    return to_json(unavailable(error.what())).dump();
  }
  const KernelFiles files = files_of(asked.at("files"));
  const bool is_host = device.info().sm == 0;
  return to_json(outcome_of(is_host ? judge(trial, files) : judge_on(device, trial, files))).dump();
}

std::string race_here(Device& device, const Json& asked) {
  MeasureOptions options;
  options.tokens = asked.at("tokens"), options.position = asked.at("position");
  options.rows = asked.at("rows");
  options.rounds = asked.at("rounds"), options.seconds = asked.at("seconds");
  options.repetitions = asked.at("repetitions"), options.patience = asked.at("patience");
  for (const Json& state : asked.at("states"))
    options.states.push_back(state_from_json(state, "job"));
  std::vector<Contender> contenders;
  for (const Json& entry : asked.at("contenders")) {
    Contender contender{entry.at("name"), {}};
    for (const Json& buffer : entry.at("buffers"))
      contender.made.buffers.push_back(buffer_from_json(buffer, "job"));
    for (const Json& launch : entry.at("launches"))
      contender.made.launches.push_back(launch_from_json(launch, "job"));
    contenders.push_back(std::move(contender));
  }
  const StepGraph step = parse_step(asked.at("step").get<std::string>(), "job");
  return line_of(race(device, {step, contenders, files_of(asked.at("files")), options}));
}

}  // namespace

std::string line_of(const JudgeQuestion& question) {
  return Json{{"question", "judge"},
              {"trial", to_json(question.trial)},
              {"files", files_json(question.files)}}
      .dump();
}

std::string line_of(const RaceQuestion& question) {
  Json states = Json::array(), entries = Json::array();
  for (const StateSpec& state : question.options.states) states.push_back(to_json(state));
  for (const Contender& contender : question.contenders) {
    Json buffers = Json::array(), launches = Json::array();
    for (const Buffer& buffer : contender.made.buffers) buffers.push_back(to_json(buffer));
    for (const Launch& launch : contender.made.launches) launches.push_back(to_json(launch));
    entries.push_back({{"name", contender.name},
                       {"buffers", std::move(buffers)},
                       {"launches", std::move(launches)}});
  }
  return Json{{"question", "race"},
              {"step", print(question.step)},
              {"tokens", question.options.tokens},
              {"position", question.options.position},
              {"rows", question.options.rows},
              {"rounds", question.options.rounds},
              {"seconds", question.options.seconds},
              {"repetitions", question.options.repetitions},
              {"patience", question.options.patience},
              {"states", std::move(states)},
              {"contenders", std::move(entries)},
              {"files", files_json(question.files)}}
      .dump();
}

Samples race(Device& device, const RaceQuestion& question) {
  Samples samples;
  for (Latency& latency :
       measure(device, question.step, question.contenders, question.files, question.options))
    samples.push_back(std::move(latency.samples));
  return samples;
}

Conversation::Answer prepare(std::shared_ptr<Device> device, const ServeJob&) {
  keep_freed_memory();
  return [device](const std::string& line) {
    const Json asked = Json::parse(line);
    return asked.at("question") == "race" ? race_here(*device, asked) : judge_here(*device, asked);
  };
}

Conversation::Answer prepare(const Assignment& assignment) {
  std::shared_ptr<Device> device = assignment.on_gpu ? open_cuda_device() : open_host_device();
  device->time_in_turns([turns = std::make_shared<TimingTurn>(assignment.turns)] {
    return std::make_shared<TimingTurn::Turn>(turns->measure(ask_for_patience));
  });
  return std::visit([&](const auto& job) { return prepare(std::move(device), job); },
                    assignment.job);
}

}  // namespace ac
