// Tests the admission gate with kernels that are wrong: plants each fault in a copy of its header,
// builds, judges as a compilation judges its candidates and then what it chose, and expects a
// rejection; and admits the same kernels without a fault. Prints what killed each fault, the kill
// rate, and the survivors. A survivor that survivors() does not have fails the test, as does a
// recorded one that is killed. With arguments, only the faults and kernels whose names contain one.
//
// A run without arguments takes the kernels of in_every_run(), and says how many it leaves out;
// AC_TEST_LONG=1 takes all.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <set>
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
  // A kernel without a fault gets as many trials as the faults of its case needed.
  std::size_t most_trials = std::numeric_limits<std::size_t>::max();
};

std::string read(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) job_failed("{}: cannot be read", path.string());
  return text.str();
}

// The fault's file with the fault in it.
std::string planted_text(const Fault& fault) {
  std::string text = read(source_folder() / fault.file);
  for (const Edit& edit : fault.edits) {
    const std::size_t at = text.find(edit.find);
    if (at == std::string::npos || text.find(edit.find, at + 1) != std::string::npos)
      bad_input("fault \"{}\": its text must occur once in {}: {}", fault.name, fault.file,
                edit.find);
    text.replace(at, edit.find.size(), edit.replace);
  }
  return text;
}

void plant(const Fault& fault, const fs::path& folder) {
  const std::string text = planted_text(fault);
  fs::remove(folder / fault.file);  // the link: all others share the file
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

// How much processor time this process has used (RUSAGE_SELF), or the children that it has waited
// for (RUSAGE_CHILDREN).
double seconds_of(int who) {
  rusage usage{};
  getrusage(who, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// In a process of its own, as a wrong kernel may write anywhere. `sources` is a copy of the kernels
// on the file system of `folder`.
Json carry_out(const Planted& planted, const fs::path& sources, const fs::path& folder) try {
  keep_freed_memory();
  fs::create_directories(folder);
  fs::copy(sources, folder / "kernels",
           fs::copy_options::recursive | fs::copy_options::create_hard_links);
  if (planted.fault) plant(*planted.fault, folder);
  const KernelFiles files = build(planted, folder, HostChecks::none);
  std::vector<const Trial*> trials{&planted.admission->quick.trial};
  for (const Request& request : planted.admission->confirmation) trials.push_back(&request.trial);
  int launches = 0;
  std::string text;
  bool admitted = true;
  std::size_t judged = 0;
  while (judged < std::min(trials.size(), planted.most_trials) && admitted) {
    const std::size_t i = judged++;
    const Trial& trial = *trials[i];
    const bool races = trial.purpose == Purpose::races;
    const validate::Verdict verdict =
        judge(trial, races ? build(planted, folder, HostChecks::races) : files);
    launches += verdict.launches;
    admitted = verdict.admitted();
    if (!admitted)
      text = fmt::format("{}, {}: {}", to_string(trial.purpose),
                         to_string(verdict.rejection->stage), verdict.rejection->reason);
    else if (i == 0)
      text = fmt::format("admitted, at worst {:.2f} of the bound: {} ({})", verdict.worst().error,
                         verdict.worst().tensor, verdict.worst().scenario);
  }
  return {{"admitted", admitted},
          {"judged", judged},
          {"launches", launches},
          {"compiling", seconds_of(RUSAGE_CHILDREN)},
          {"judging", seconds_of(RUSAGE_SELF)},
          {"text", text}};
} catch (const std::exception& e) {
  return {{"error", e.what()}};
}

// Whether most models run such kernels on most GPUs: products of plain weights, attention, the end
// of a step. Among similar kernels, the list has the one that takes less time on the host device.
bool is_common(const std::string& case_name) {
  static const std::set<std::string> kCommon = {"swiglu",
                                                "qkv",
                                                "projection",
                                                "scaled",
                                                "head",
                                                "geglu",
                                                "geglu_erf",
                                                "slow",
                                                "plain",
                                                "many rows",
                                                "llama",
                                                "qwen",
                                                "phi",
                                                "interleaved",
                                                "window",
                                                "full_window",
                                                "decode_end",
                                                "prefill_end",
                                                "sampling",
                                                "draw",
                                                "gemv of registers",
                                                "gemv of a head",
                                                "columns of rows",
                                                "parts of k",
                                                "cluster of rows",
                                                "split sums",
                                                "sums of groups",
                                                "pair by warps"};
  return kCommon.contains(case_name);
}

bool is_recorded(const Planted& planted) {
  return planted.fault && std::ranges::any_of(survivors(), [&](const Survivor& survivor) {
           return survivor.fault == planted.fault->name && survivor.case_name == planted.case_name;
         });
}

// Common kernels without a fault; every fault whose first case is common, in that case; of each
// other case the first fault that begins with it; and all recorded survivors.
bool in_every_run(const Planted& planted) {
  if (planted.fault == nullptr) return is_common(planted.case_name);
  if (is_recorded(planted)) return true;
  const std::string& first = planted.fault->cases.front();
  if (planted.case_name != first) return false;
  return is_common(first) ||
         planted.fault ==
             &*std::ranges::find(faults(), first, [](const Fault& f) { return f.cases.front(); });
}

// Removes the kernels that only a long run judges, and prints how many these are.
void leave_out_long(std::vector<Planted>& all) {
  std::set<const Fault*> known, kept;
  for (const Planted& planted : all) known.insert(planted.fault);
  const std::size_t left_out =
      std::erase_if(all, [](const Planted& planted) { return !in_every_run(planted); });
  for (const Planted& planted : all) kept.insert(planted.fault);
  fmt::print("left out without AC_TEST_LONG=1: {} of {} kernels, with them {} of {} faults\n",
             left_out, left_out + all.size(), known.size() - kept.size(), faults().size());
}

std::vector<Planted> all_planted(const std::vector<std::string>& only) {
  const auto wanted = [&](const std::string& name) {
    return only.empty() || std::ranges::any_of(only, [&](const std::string& part) {
             return name.find(part) != std::string::npos;
           });
  };
  std::vector<Planted> all;
  for (const auto& names : {own_case_names(), plan_case_names()})
    for (const std::string& name : names)
      if (wanted(name)) all.push_back({.case_name = name});
  for (const Fault& fault : faults())
    for (const std::string& name : fault.cases)
      if (wanted(fault.name) || wanted(name)) all.push_back({.fault = &fault, .case_name = name});
  return all;
}

// Makes the trials of each case once.
void prepare(std::vector<Planted>& all) {
  const std::vector<std::string> own = own_case_names();
  std::map<std::string, std::shared_ptr<const test::Admission>> admissions;
  for (Planted& planted : all) {
    const std::string& name = planted.case_name;
    std::shared_ptr<const test::Admission>& admission = admissions[name];
    if (!admission)
      admission = std::make_shared<const test::Admission>(std::ranges::count(own, name) > 0
                                                              ? admission_of_own_case(name)
                                                              : admission_of_case(name));
    planted.admission = admission;
  }
}

int run(std::vector<Planted> all, bool with_all_trials) {
  const TemporaryFolder folder;
  const fs::path sources = folder.path() / "kernels";
  fs::copy(source_folder() / "kernels", sources, fs::copy_options::recursive);
  // By the name of a case: the most trials that one of its faults needed.
  std::map<std::string, std::size_t> needed;
  int mutants = 0, killed = 0, crashed = 0, controls = 0, admitted = 0, unexpected = 0;
  double compiling = 0, judging = 0, judging_controls = 0;
  std::vector<std::string> alive;
  std::set<const Fault*> judged_faults;
  const auto report = [&](std::size_t i, const ChildResult& child) {
    const Planted& planted = all[i];
    const Json result = child.ok() ? Json::parse(child.text) : Json{{"text", child.ended}};
    const bool was_admitted = result.value("admitted", false);
    const bool expected = planted.fault == nullptr || is_recorded(planted);
    // Where it was killed by ending the process, the quick trial did it.
    const bool too_early =
        planted.fault && planted.fault->seen_late && result.value("judged", 1) == 1;
    const bool as_expected = !result.contains("error") && was_admitted == expected && !too_early;
    if (!as_expected) ++unexpected;
    const double seconds = result.value("judging", 0.0);
    compiling += result.value("compiling", 0.0), judging += seconds;
    if (!planted.fault) {
      judging_controls += seconds;
      ++controls, admitted += was_admitted;
    } else {
      judged_faults.insert(planted.fault);
      std::size_t& most = needed[planted.case_name];
      most = std::max(most, result.value("judged", std::size_t{1}));
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
  // Kernels without a fault come last. They show that a trial refused a fault, and does not refuse
  // every kernel. So each gets the trials that the faults of its case needed.
  const auto judge_some = [&](std::size_t begin, std::size_t end) {
    std::vector<ChildTask> tasks;
    for (std::size_t i = begin; i < end; ++i)
      tasks.emplace_back([&planted = all[i], &sources, own = folder.path() / std::to_string(i)] {
        return carry_out(planted, sources, own)
            .dump(-1, ' ', false, Json::error_handler_t::replace);
      });
    run_in_children(tasks, 2, std::chrono::seconds(120),
                    [&](std::size_t i, const ChildResult& child) { report(begin + i, child); });
  };
  const auto first_control = std::ranges::stable_partition(all, [](const Planted& p) {
                               return p.fault != nullptr;
                             }).begin();
  const auto faulted = static_cast<std::size_t>(first_control - all.begin());
  judge_some(0, faulted);
  if (!with_all_trials)
    for (std::size_t i = faulted; i < all.size(); ++i)
      all[i].most_trials = std::max<std::size_t>(needed[all[i].case_name], 1);
  judge_some(faulted, all.size());
  fmt::print("processor time: compiling {:.1f} s, judging {:.1f} s", compiling, judging);
  if (controls > 0)
    fmt::print(", of these {:.2f} s a kernel without fault", judging_controls / controls);
  fmt::print("\n{} of {} kernels without a fault admitted\n", admitted, controls);
  fmt::print("{} faults in {} kernels, kill rate {:.1f} %, {} by ending the process that judges\n",
             judged_faults.size(), mutants, mutants ? 100.0 * killed / mutants : 100.0, crashed);
  for (const std::string& name : alive) fmt::print("survives: {}\n", name);
  return unexpected == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ac::kernels

int main(int count, char** arguments) try {
  // Also of faults that are not judged this time.
  for (const ac::kernels::Fault& fault : ac::kernels::faults()) ac::kernels::planted_text(fault);
  const bool is_long = std::getenv("AC_TEST_LONG") != nullptr;
  std::vector<ac::kernels::Planted> all =
      ac::kernels::all_planted({arguments + 1, arguments + count});
  if (count == 1 && !is_long) ac::kernels::leave_out_long(all);
  ac::kernels::prepare(all);
  return ac::kernels::run(std::move(all), count > 1 || is_long);
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 2;
}
