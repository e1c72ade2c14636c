#include "emit/verification.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/table.h"
#include "base/temporary_folder.h"
#include "base/text.h"
#include "emit/plan_file.h"
#include "emit/standalone.h"
#include "ir/graph_text.h"
#include "runtime/engine.h"
#include "runtime/fingerprint.h"

namespace ac {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargestSources = std::size_t{64} << 20;

std::string name_of(const Judged& judged) {
  return judged.candidate.empty() ? "fallback" : judged.candidate;
}

// Whether the program may be of this step.
bool agrees(const Program& program, const StepGraph& step) {
  std::vector<StateSpec> states = program.states;
  for (StateSpec& state : states) state.slots = 0;
  std::vector<StateSpec> declared = step.states;
  for (StateSpec& state : declared) state.module.clear();
  if (step.graph.outputs.size() != 1) return false;
  const TensorType& logits = step.graph.type(step.graph.outputs[0].node);
  return states == declared && !logits.shape.empty() && logits.shape.back() == Dim(program.vocab) &&
         logits.dtype == program.dtype;
}

}  // namespace

std::vector<std::string> disagreements(const PackageFiles& files, const Program& program,
                                       const PlanFile& plan, const fs::path& weights,
                                       const std::function<void(const std::string&)>& warn) {
  const fs::path& package = files.folder();
  std::vector<std::string> faults = files.changed();
  try {
    // A package that was compiled without its weights says nothing of them.
    const Fingerprint known = read_fingerprint(files);
    if (!weights.empty() || !known.empty()) PackageStores(program, files, weights, warn);
  } catch (const Error& error) {
    if (error.fault() == Fault::wrong_usage) throw;
    faults.emplace_back(error.what());
  }
  const auto must_list = [&](const std::string& file) {
    if (!files.lists(file))
      faults.push_back(fmt::format("digests.json has no digest of {}", quote(file)));
  };
  for (const char* file : {"constants.bin", "kernels.cu"}) must_list(file);
  for (const auto& [entry, file] : program.kernels) must_list(file);
  if (plan.target != program.target)
    faults.push_back(fmt::format("program.json is for {} and plan.json for {}",
                                 quote(program.target), quote(plan.target)));

  std::vector<KernelSource> sources;
  for (const auto& [entry, source] : plan.kernels) sources.push_back(source);
  const fs::path file = package / "kernels.cu";
  if (fs::is_regular_file(file) && read_file(file, kLargestSources) != all_kernels(sources))
    faults.push_back("kernels.cu holds other kernels than plan.json");

  std::set<std::string> tried;
  for (const Selected& selected : plan.selections) {
    if (!selected.admitted)
      faults.push_back(fmt::format("{} selects {} for {}, and no admitted trial of it",
                                   selected.phase,
                                   selected.candidate.empty() ? "the fallback" : selected.candidate,
                                   quote(selected.signature)));
    else if (!selected.confirmed)
      faults.push_back(fmt::format("{} selects {} for {}, without the final admission of it",
                                   selected.phase,
                                   selected.candidate.empty() ? "the fallback" : selected.candidate,
                                   quote(selected.signature)));
    for (const Trial& trial : selected.trials)
      for (const Launch& launch : trial.launches) tried.insert(selected.phase + launch.kernel);
  }
  std::set<std::string> told;
  const auto must_be_tried = [&](const std::string& planned, const std::string& name,
                                 const Launch& launch) {
    if (tried.count(planned + launch.kernel) == 0 && told.insert(planned + launch.kernel).second)
      faults.push_back(
          fmt::format("{} launches {}, which no trial of it has run", name, launch.kernel));
  };
  for (const Phase& phase : program.phases) {
    for (const Launch& launch : phase.draw) must_be_tried("draw", phase.label(), launch);
    // Rows that run by themselves are decode's.
    const std::string& alone = program.phase_of(1, phase.from).name;
    for (const Launch& launch : phase.launches)
      must_be_tried(launch.each_row && launch.rows == 1 ? alone : phase.name, phase.label(),
                    launch);
    for (const Launch& launch : phase.masked) {
      const bool is_first = &launch == &phase.masked.front();
      const bool is_last = &launch == &phase.masked.back();
      must_be_tried(is_first ? "mask" : is_last ? phase.name : "draw", phase.label(), launch);
    }
  }
  return faults;
}

std::size_t Verification::rejected() const {
  return static_cast<std::size_t>(
      std::count_if(trials.begin(), trials.end(),
                    [](const Judged& judged) { return !judged.outcome.admitted(); }));
}

Verification verify_package(const PackageFiles& files, BuilderOptions building,
                            const DeviceInfo& device, Progress& progress, const fs::path& weights,
                            const std::function<void(const std::string&)>& warn, bool with_truth) {
  progress.stage("read the package");
  const Program program = read_program(files);
  const PlanFile plan = plan_file(read_plan_json(files), (files.folder() / "plan.json").string());
  const StepGraph step = parse_step(plan.step, (files.folder() / "plan.json").string());
  Verification verification;
  verification.faults = disagreements(files, program, plan, weights, warn);
  if (!agrees(program, step))
    verification.faults.emplace_back("plan.json has the step of another model than program.json");
  verification.judged_on = device.target;

  std::vector<Request> requests;
  for (const Selected& selected : plan.selections)
    for (const Trial& trial : selected.trials) {
      Request request{selected.candidate, {}, trial};
      std::set<std::string> needed;
      for (const Launch* launch : trial.all_launches())
        if (!launch->product) needed.insert(launch->kernel);
      for (const std::string& entry : needed) request.sources.push_back(plan.kernels.at(entry));
      requests.push_back(std::move(request));
      verification.trials.push_back(
          {selected.phase, selected.signature, selected.ops, selected.candidate, {}});
    }
  progress.stage("build and admit");
  KernelBuilder own(building);  // with this program's headers
  building.sources = files.folder();
  KernelBuilder builder(building);
  const TemporaryFolder verdicts;  // none is known
  LabOptions options;
  options.target = target_of(device);
  options.jobs = building.jobs;
  options.verdicts = verdicts.path();
  Lab lab(builder, options);
  std::size_t done = 0;
  const std::vector<Outcome> outcomes = lab.judge(requests, [&](std::size_t i) {
    progress.step(++done, requests.size(), name_of(verification.trials[i]));
  });
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    Judged& judged = verification.trials[i];
    judged.outcome = outcomes[i];
    if (judged.outcome.admitted() && calls_library(requests[i].trial) && program.target != "host")
      judged.outcome.note = kLibraryStoodIn;
  }
  if (!verification.ok()) {
    verification.whole.why_not = "its parts are not as they should be";
  } else if (device.target != program.target) {
    verification.whole.why_not = "the device that it is for is not here";
  } else {
    progress.stage("check the whole program");
    Lab plain(own, options);
    verification.whole =
        check_package(files.folder(), program, step, plain, progress,
                      {.checkpoint = weights, .verifies = true, .with_truth = with_truth});
  }
  progress.done();
  return verification;
}

Json to_json(const Verification& verification) {
  Json trials = Json::array();
  for (const Judged& judged : verification.trials)
    trials.push_back({{"phase", judged.phase},
                      {"signature", judged.signature},
                      {"candidate", judged.candidate},
                      {"outcome", to_json(judged.outcome)}});
  return {{"ok", verification.ok()},
          {"rejected", verification.rejected()},
          {"judged_on", verification.judged_on},
          {"faults", verification.faults},
          {"whole", to_json(verification.whole)},
          {"trials", std::move(trials)}};
}

std::string print(const Verification& verification) {
  Table table({"phase", "ops", "implementation", "verdict", "error/bound", "why"});
  for (const Judged& judged : verification.trials) {
    const Outcome& outcome = judged.outcome;
    table.add({judged.phase, judged.ops, name_of(judged), std::string(to_string(outcome.kind)),
               outcome.launches > 0 ? fmt::format("{:.3f}", outcome.worst_error) : "",
               outcome.why + outcome.note});
  }
  std::string text = table.text();
  if (!verification.whole.ok())
    text += fmt::format("fault: the whole program: {}\n", verification.whole.fault);
  for (const std::string& fault : verification.faults) text += fmt::format("fault: {}\n", fault);
  return text;
}

}  // namespace ac
