// Tests the admission gate with kernels that are wrong: plants each fault in a copy of its header,
// compiles, and expects a rejection; and admits the same kernels without a fault. Prints what
// killed each fault, and the kill rate. With arguments, only the faults whose names contain one.
#include <dlfcn.h>
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "base/process.h"
#include "base/temporary_folder.h"
#include "tests/faults/faults.h"
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
  fs::path library = {};
  validate::Verdict verdict = {};
  double compile_seconds = 0, admit_seconds = 0;

  std::string error = {};  // the trial could not be made

  bool as_expected() const { return error.empty() && verdict.admitted() == (fault == nullptr); }
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

// Symbols are bound within the library: every one has functions of the same names.
void compile(Trial& trial, const fs::path& folder) {
  fs::create_directories(folder);
  if (trial.fault) plant(*trial.fault, folder);
  const std::string object = (folder / "kernel.o").string();
  trial.library = folder / "kernel.so";
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
  const bool ok =
      run_process(command, ChildOutput::to_stderr).ok() &&
      run_process({AC_COMPILER, "-shared", "-Wl,-Bsymbolic", object, "-o", trial.library.string()},
                  ChildOutput::to_stderr)
          .ok();
  if (!ok) job_failed("{}: does not compile", trial.fault ? trial.fault->name : trial.case_name);
}

void judge(Trial& trial) {
  void* library = dlopen(trial.library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) job_failed("{}", dlerror());
  void* kernel = dlsym(library, ("kernel_" + trial.case_name).c_str());
  if (!kernel) job_failed("{}: no kernel for {}", trial.library.string(), trial.case_name);
  const validate::Subject subject = subject_of_case(trial.case_name, kernel, trial.race);
  for (const unsigned seed : trial.seeds) {
    trial.verdict = admit(subject, {.first_seed = seed});
    if (!trial.verdict.admitted()) break;
  }
  dlclose(library);
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
  for (const Fault& fault : faults())
    for (const std::string& name : fault.cases)
      if (wanted(fault.name))
        trials.push_back({.fault = &fault, .case_name = name, .race = fault.race});
  return trials;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void run(std::vector<Trial>& trials) {
  const TemporaryFolder folder;
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i; (i = next++) < trials.size();) try {
        const auto start = std::chrono::steady_clock::now();
        const fs::path own = folder.path() / std::to_string(i);
        compile(trials[i], own);
        trials[i].compile_seconds = seconds_since(start);
        judge(trials[i]);
        trials[i].admit_seconds = seconds_since(start) - trials[i].compile_seconds;
        fs::remove_all(own);
      } catch (const std::exception& e) {
        trials[i].error = e.what();
      }
  };
  std::thread second(work);
  work();
  second.join();
}

int report(const std::vector<Trial>& trials) {
  int mutants = 0, killed = 0, controls = 0, admitted = 0;
  double compile_seconds = 0, admit_seconds = 0, control_seconds = 0;
  for (const Trial& t : trials) {
    compile_seconds += t.compile_seconds;
    admit_seconds += t.admit_seconds;
    if (!t.fault) control_seconds += t.admit_seconds;
    (t.fault ? mutants : controls) += 1;
    if (t.as_expected()) (t.fault ? killed : admitted) += 1;
    std::string outcome = t.verdict.admitted()
                              ? fmt::format("admitted, at worst {:.2f} of the bound: {} ({})",
                                            t.verdict.worst().error, t.verdict.worst().tensor,
                                            t.verdict.worst().scenario)
                              : fmt::format("{}: {}", to_string(t.verdict.rejection->stage),
                                            t.verdict.rejection->reason);
    if (!t.error.empty()) outcome = t.error;
    if (outcome.size() > 150) outcome = outcome.substr(0, 147) + "...";
    fmt::print("{} {:42} {:12} {:4} launches {:5.2f} s  {}\n", t.as_expected() ? "ok  " : "FAIL",
               t.fault  ? t.fault->name
               : t.race ? "(no fault, race check)"
                        : "(no fault)",
               t.case_name, t.verdict.launches, t.admit_seconds, outcome);
  }
  fmt::print("compiling {:.1f} s, judging {:.1f} s", compile_seconds, admit_seconds);
  if (controls > 0)
    fmt::print(", of these {:.2f} s a kernel without fault", control_seconds / controls);
  fmt::print("\n{} of {} kernels without a fault admitted\n", admitted, controls);
  fmt::print("{} faults in {} kernels, kill rate {:.1f} %\n", faults().size(), mutants,
             mutants ? 100.0 * killed / mutants : 100.0);
  return killed == mutants && admitted == controls ? 0 : 1;
}

}  // namespace
}  // namespace ac::kernels

int main(int count, char** arguments) try {
  auto trials = ac::kernels::all_trials({arguments + 1, arguments + count});
  ac::kernels::run(trials);
  return ac::kernels::report(trials);
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 2;
}
