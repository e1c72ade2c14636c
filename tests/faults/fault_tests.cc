// Tests the admission gate with kernels that are wrong: plants each fault in a copy of its header,
// builds, judges as a compilation judges its candidates and then what it chose, and expects a
// rejection; and admits the same kernels without a fault. Prints what killed each fault, the kill
// rate, and the survivors. A survivor that survivors() does not have fails the test, as does a
// recorded one that is killed. With arguments, only the faults whose names contain one.
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
#include "base/temporary_folder.h"
#include "build/compile.h"
#include "tests/faults/cases.h"
#include "tests/faults/faults.h"
#include "tests/faults/plan_cases.h"
#include "tests/tools/source_folder.h"

namespace ac::kernels {
namespace {

namespace fs = std::filesystem;

// A kernel to judge: a case, with a fault or without.
struct Planted {
  const Fault* fault = nullptr;
  std::string case_name;
  std::shared_ptr<const test::Admission> admission = {};
};

std::string read(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) job_failed("{}: cannot be read", path.string());
  return text.str();
}

void plant(const Fault& fault, const fs::path& folder) {
  std::string text = read(source_folder() / fault.file);
  for (const Edit& edit : fault.edits) {
    const std::size_t at = text.find(edit.find);
    if (at == std::string::npos || text.find(edit.find, at + 1) != std::string::npos)
      bad_input("fault \"{}\": its text must occur once in {}: {}", fault.name, fault.file,
                edit.find);
    text.replace(at, edit.find.size(), edit.replace);
  }
  std::ofstream(folder / fault.file) << text;
}

KernelFiles build(const Planted& planted, const fs::path& folder, HostChecks checks) {
  KernelBuilder builder({.cache = folder / "cache",
                         .sources = folder,
                         .host_compiler = AC_COMPILER,
                         .cuda_home = {},
                         .checks = checks});
  KernelFiles files;
  for (const KernelSource& source : planted.admission->quick.sources) {
    const BuildResult built = builder.build(source, {});
    const auto* const failure = std::get_if<CompileFailure>(&built);
    if (failure) job_failed("{}: does not compile: {}", planted.case_name, failure->log);
    files[source.entry] = std::get<Artifact>(built).file;
  }
  return files;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// In a process of its own, as a wrong kernel may write anywhere.
Json carry_out(const Planted& planted, const fs::path& folder) try {
  const auto start = std::chrono::steady_clock::now();
  fs::create_directories(folder);
  fs::copy(source_folder() / "kernels", folder / "kernels", fs::copy_options::recursive);
  if (planted.fault) plant(*planted.fault, folder);
  double compiling = 0;
  const auto built = [&](HostChecks checks) {
    const auto began = std::chrono::steady_clock::now();
    KernelFiles files = build(planted, folder, checks);
    compiling += seconds_since(began);
    return files;
  };
  const KernelFiles files = built(HostChecks::none);
  std::vector<const Trial*> trials{&planted.admission->quick.trial};
  for (const Request& request : planted.admission->confirmation) trials.push_back(&request.trial);
  int launches = 0;
  std::string text;
  bool admitted = true, late = false;
  for (std::size_t i = 0; i < trials.size() && admitted; ++i) {
    const Trial& trial = *trials[i];
    const bool races = trial.purpose == Purpose::races;
    const validate::Verdict verdict = judge(trial, races ? built(HostChecks::races) : files);
    launches += verdict.launches;
    late = i > 0;
    admitted = verdict.admitted();
    if (!admitted)
      text = fmt::format("{}, {}: {}", to_string(trial.purpose),
                         to_string(verdict.rejection->stage), verdict.rejection->reason);
    else if (i == 0)
      text = fmt::format("admitted, at worst {:.2f} of the bound: {} ({})", verdict.worst().error,
                         verdict.worst().tensor, verdict.worst().scenario);
  }
  return {{"admitted", admitted},
          {"late", late},
          {"launches", launches},
          {"compiling", compiling},
          {"judging", seconds_since(start) - compiling},
          {"text", text}};
} catch (const std::exception& e) {
  return {{"error", e.what()}};
}

std::vector<Planted> all_planted(const std::vector<std::string>& only) {
  const auto wanted = [&](const std::string& name) {
    return only.empty() || std::ranges::any_of(only, [&](const std::string& part) {
             return name.find(part) != std::string::npos;
           });
  };
  std::map<std::string, std::function<test::Admission(const std::string&)>> cases;
  for (const std::string& name : own_case_names()) cases[name] = admission_of_own_case;
  for (const std::string& name : plan_case_names()) cases[name] = admission_of_case;

  std::vector<Planted> all;
  for (const auto& [name, request] : cases)
    if (wanted(name)) all.push_back({.case_name = name});
  for (const Fault& fault : faults())
    for (const std::string& name : fault.cases)
      if (wanted(fault.name)) all.push_back({.fault = &fault, .case_name = name});
  std::map<std::string, std::shared_ptr<const test::Admission>> admissions;
  for (Planted& planted : all) {
    std::shared_ptr<const test::Admission>& admission = admissions[planted.case_name];
    if (!admission)
      admission =
          std::make_shared<const test::Admission>(cases.at(planted.case_name)(planted.case_name));
    planted.admission = admission;
  }
  return all;
}

bool is_recorded(const Planted& planted) {
  return planted.fault && std::ranges::any_of(survivors(), [&](const Survivor& survivor) {
           return survivor.fault == planted.fault->name && survivor.case_name == planted.case_name;
         });
}

int run(const std::vector<Planted>& all) {
  const TemporaryFolder folder;
  std::vector<ChildTask> tasks;
  for (const Planted& planted : all)
    tasks.emplace_back([&planted, own = folder.path() / std::to_string(tasks.size())] {
      return carry_out(planted, own).dump(-1, ' ', false, Json::error_handler_t::replace);
    });
  int mutants = 0, killed = 0, crashed = 0, controls = 0, admitted = 0, unexpected = 0;
  double compiling = 0, judging = 0, judging_controls = 0;
  std::vector<std::string> alive;
  const auto report = [&](std::size_t i, const ChildResult& child) {
    const Planted& planted = all[i];
    const Json result = child.ok() ? Json::parse(child.text) : Json{{"text", child.ended}};
    const bool was_admitted = result.value("admitted", false);
    const bool expected = planted.fault == nullptr || is_recorded(planted);
    // Where it was killed by ending the process, the quick trial did it.
    const bool too_early =
        planted.fault && planted.fault->seen_late && !result.value("late", false);
    const bool as_expected = !result.contains("error") && was_admitted == expected && !too_early;
    if (!as_expected) ++unexpected;
    const double seconds = result.value("judging", 0.0);
    compiling += result.value("compiling", 0.0), judging += seconds;
    if (!planted.fault) {
      judging_controls += seconds;
      ++controls, admitted += was_admitted;
    } else {
      ++mutants, killed += !was_admitted && !result.contains("error");
      if (was_admitted)
        alive.push_back(fmt::format("{} ({})", planted.fault->name, planted.case_name));
    }
    if (!child.ok()) ++crashed;
    std::string outcome = result.value("error", result.value("text", ""));
    if (outcome.size() > 150) outcome = outcome.substr(0, 147) + "...";
    fmt::print("{} {:42} {:20} {:4} launches {:5.2f} s  {}\n", as_expected ? "ok  " : "FAIL",
               planted.fault ? planted.fault->name : "(no fault)", planted.case_name,
               result.value("launches", 0), seconds, outcome);
    fs::remove_all(folder.path() / std::to_string(i));
  };
  run_in_children(tasks, 2, std::chrono::seconds(120), report);
  fmt::print("compiling {:.1f} s, judging {:.1f} s", compiling, judging);
  if (controls > 0)
    fmt::print(", of these {:.2f} s a kernel without fault", judging_controls / controls);
  fmt::print("\n{} of {} kernels without a fault admitted\n", admitted, controls);
  fmt::print("{} faults in {} kernels, kill rate {:.1f} %, {} by ending the process that judges\n",
             faults().size(), mutants, mutants ? 100.0 * killed / mutants : 100.0, crashed);
  for (const std::string& name : alive) fmt::print("survives: {}\n", name);
  return unexpected == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ac::kernels

int main(int count, char** arguments) try {
  return ac::kernels::run(ac::kernels::all_planted({arguments + 1, arguments + count}));
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 2;
}
