// Tests the admission gate with kernels that are wrong: plants each fault in a copy of its header,
// compiles, and expects a rejection; and admits the same kernels without a fault. Kernels are of
// cases of this test's own (cases.h), or of the compiler's plans (plan_cases.h). Prints what killed
// each fault, and the kill rate. With arguments, only the faults whose names contain one.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <sstream>

#include "admit/judge.h"
#include "base/child.h"
#include "base/error.h"
#include "base/json.h"
#include "base/process.h"
#include "base/temporary_folder.h"
#include "build/compile.h"
#include "tests/faults/faults.h"
#include "tests/faults/plan_cases.h"
#include "tests/faults/subjects.h"
#include "validate/gate.h"

namespace ac::kernels {
namespace {

namespace fs = std::filesystem;

// A kernel to judge: a case, with a fault or without.
struct Trial {
  const Fault* fault = nullptr;
  std::string case_name;
  bool race = false;
  std::vector<unsigned> seeds = {1};
  std::shared_ptr<const Request> request = {};  // of a plan
};

std::string read(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) job_failed("{}: cannot be read", path.string());
  return text.str();
}

void plant(const Fault& fault, const fs::path& folder) {
  std::string text = read(fs::path(AC_SOURCE) / fault.file);
  for (const Edit& edit : fault.edits) {
    const std::size_t at = text.find(edit.find);
    if (at == std::string::npos || text.find(edit.find, at + 1) != std::string::npos)
      bad_input("fault \"{}\": its text must occur once in {}: {}", fault.name, fault.file,
                edit.find);
    text.replace(at, edit.find.size(), edit.replace);
  }
  fs::create_directories((folder / fault.file).parent_path());
  std::ofstream(folder / fault.file) << text;
}

using Judge = std::function<validate::Verdict()>;

// Symbols are bound within the library: every one has functions of the same names.
Judge compile_case(const Trial& trial, const fs::path& folder) {
  fs::create_directories(folder);
  if (trial.fault) plant(*trial.fault, folder);
  const std::string object = (folder / "kernel.o").string();
  const std::string file = (folder / "kernel.so").string();
  std::vector<std::string> command = {AC_COMPILER,
                                      "-std=c++20",
                                      "-O1",
                                      "-w",
                                      "-fPIC",
                                      "-fno-gnu-unique",
                                      "-DAC_HOST_DEVICE",
                                      "-DAC_CASE_" + trial.case_name,
                                      "-I" + folder.string(),
                                      "-I" AC_SOURCE,
                                      "-c",
                                      AC_SOURCE "/tests/faults/kernels.cc",
                                      "-o",
                                      object};
  if (trial.race) command.push_back("-fsanitize=thread");
  const bool ok = run_process(command, ChildOutput::to_stderr).ok() &&
                  run_process({AC_COMPILER, "-shared", "-Wl,-Bsymbolic", object, "-o", file},
                              ChildOutput::to_stderr)
                      .ok();
  if (!ok) job_failed("{}: does not compile", trial.fault ? trial.fault->name : trial.case_name);
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) job_failed("{}", dlerror());
  void* const kernel = dlsym(library, ("kernel_" + trial.case_name).c_str());
  if (!kernel) job_failed("{}: no kernel for {}", file, trial.case_name);
  return [trial, kernel] {
    const validate::Subject subject = subject_of_case(trial.case_name, kernel, trial.race);
    validate::Verdict verdict;
    for (const unsigned seed : trial.seeds) {
      verdict = admit(subject, {.first_seed = seed});
      if (!verdict.admitted()) break;
    }
    return verdict;
  };
}

Judge compile_plan(const Trial& trial, const fs::path& folder) {
  AC_ASSERT(!trial.race);  // the gate looks for races in cases alone
  fs::create_directories(folder);
  fs::copy(fs::path(AC_SOURCE) / "kernels", folder / "kernels", fs::copy_options::recursive);
  if (trial.fault) plant(*trial.fault, folder);
  KernelBuilder builder({.cache = folder / "cache",
                         .sources = folder,
                         .host_compiler = AC_COMPILER,
                         .cuda_home = {}});
  KernelFiles files;
  for (const KernelSource& source : trial.request->sources) {
    const BuildResult built = builder.build(source, {});
    const auto* const failure = std::get_if<CompileFailure>(&built);
    if (failure) job_failed("{}: does not compile: {}", trial.case_name, failure->log);
    files[source.entry] = std::get<Artifact>(built).file;
  }
  return [&trial = trial.request->trial, files] { return judge(trial, files); };
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// In a process of its own, as a wrong kernel may write anywhere.
Json carry_out(const Trial& trial, const fs::path& folder) try {
  const auto start = std::chrono::steady_clock::now();
  const Judge judge = trial.request ? compile_plan(trial, folder) : compile_case(trial, folder);
  const double compiled = seconds_since(start);
  const validate::Verdict verdict = judge();
  return {
      {"admitted", verdict.admitted()},
      {"launches", verdict.launches},
      {"compiling", compiled},
      {"judging", seconds_since(start) - compiled},
      {"text", verdict.admitted() ? fmt::format("admitted, at worst {:.2f} of the bound: {} ({})",
                                                verdict.worst().error, verdict.worst().tensor,
                                                verdict.worst().scenario)
                                  : fmt::format("{}: {}", to_string(verdict.rejection->stage),
                                                verdict.rejection->reason)}};
} catch (const std::exception& e) {
  return {{"error", e.what()}};
}

std::vector<Trial> all_trials(const std::vector<std::string>& only) {
  const auto wanted = [&](const std::string& name) {
    if (only.empty()) return true;
    for (const std::string& part : only)
      if (name.find(part) != std::string::npos) return true;
    return false;
  };
  std::vector<Trial> trials;
  const auto add_controls = [&](const char* name) {
    if (!wanted(name)) return;
    trials.push_back({.case_name = name, .seeds = {1, 1001, 20260}});
    trials.push_back({.case_name = name, .race = true});
  };
  for (const GemvCase& c : gemv_cases) add_controls(c.name);
  for (const AttentionCase& c : attention_cases) add_controls(c.name);
  for (const AdvanceCase& c : advance_cases) add_controls(c.name);
  for (const std::string& name : plan_case_names())
    if (wanted(name)) trials.push_back({.case_name = name});
  for (const Fault& fault : faults())
    for (const std::string& name : fault.cases)
      if (wanted(fault.name))
        trials.push_back({.fault = &fault, .case_name = name, .race = fault.race});
  std::map<std::string, std::shared_ptr<const Request>> requests;
  for (const std::string& name : plan_case_names())
    if (std::ranges::count(trials, name, &Trial::case_name) > 0)
      requests[name] = std::make_shared<const Request>(request_of_case(name));
  for (Trial& trial : trials)
    if (const auto of_plan = requests.find(trial.case_name); of_plan != requests.end())
      trial.request = of_plan->second;
  return trials;
}

int run(const std::vector<Trial>& trials) {
  const TemporaryFolder folder;
  std::vector<ChildTask> tasks;
  for (const Trial& trial : trials)
    tasks.emplace_back([&trial, own = folder.path() / std::to_string(tasks.size())] {
      return carry_out(trial, own).dump(-1, ' ', false, Json::error_handler_t::replace);
    });
  int mutants = 0, killed = 0, crashed = 0, controls = 0, admitted = 0;
  double compiling = 0, judging = 0, judging_controls = 0;
  const auto report = [&](std::size_t i, const ChildResult& child) {
    const Trial& trial = trials[i];
    const Json result = child.ok() ? Json::parse(child.text) : Json{{"text", child.ended}};
    const bool was_admitted = result.value("admitted", false);
    const bool as_expected = !result.contains("error") && was_admitted == (trial.fault == nullptr);
    const double seconds = result.value("judging", 0.0);
    compiling += result.value("compiling", 0.0), judging += seconds;
    if (!trial.fault) judging_controls += seconds;
    (trial.fault ? mutants : controls) += 1;
    if (!child.ok()) ++crashed;
    if (as_expected) (trial.fault ? killed : admitted) += 1;
    std::string outcome = result.value("error", result.value("text", ""));
    if (outcome.size() > 150) outcome = outcome.substr(0, 147) + "...";
    fmt::print("{} {:42} {:20} {:4} launches {:5.2f} s  {}\n", as_expected ? "ok  " : "FAIL",
               trial.fault  ? trial.fault->name
               : trial.race ? "(no fault, race check)"
                            : "(no fault)",
               trial.case_name, result.value("launches", 0), seconds, outcome);
    fs::remove_all(folder.path() / std::to_string(i));
  };
  run_in_children(tasks, 2, std::chrono::seconds(120), report);
  fmt::print("compiling {:.1f} s, judging {:.1f} s", compiling, judging);
  if (controls > 0)
    fmt::print(", of these {:.2f} s a kernel without fault", judging_controls / controls);
  fmt::print("\n{} of {} kernels without a fault admitted\n", admitted, controls);
  fmt::print("{} faults in {} kernels, kill rate {:.1f} %, {} by ending the process that judges\n",
             faults().size(), mutants, mutants ? 100.0 * killed / mutants : 100.0, crashed);
  return killed == mutants && admitted == controls ? 0 : 1;
}

}  // namespace
}  // namespace ac::kernels

int main(int count, char** arguments) try {
  return ac::kernels::run(ac::kernels::all_trials({arguments + 1, arguments + count}));
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 2;
}
