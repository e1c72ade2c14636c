#include "tests/device/family_cases.h"

#include <doctest/doctest.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "admit/judge.h"
#include "base/error.h"

namespace ac::test {
namespace {

constexpr std::int64_t kFewTokens = 5;

class Seconds {
 public:
  double so_far() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point began_ = Clock::now();
};

KernelFiles build(const std::vector<FamilyTrial>& cases, const DeviceInfo& device,
                  KernelBuilder& builder) {
  std::map<std::string, KernelSource> by_entry;
  for (const FamilyTrial& one : cases)
    for (const KernelSource& source : one.request.sources) by_entry.emplace(source.entry, source);
  std::vector<KernelSource> sources;
  for (const auto& [entry, source] : by_entry) sources.push_back(source);
  const std::vector<BuildResult> built = builder.build_all(sources, target_of(device));
  KernelFiles files;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto* failure = std::get_if<CompileFailure>(&built[i]);
    CHECK_MESSAGE(!failure, sources[i].text << "\n" << (failure ? failure->log : ""));
    if (!failure) files[sources[i].entry] = std::get<Artifact>(built[i]).file;
  }
  return files;
}

// Why the device's library, if the trial needs one, cannot do it.
std::string why_unavailable(Device& device, const Trial& trial) {
  try {
    for (const Launch& launch : trial.launches)
      if (launch.product) device.load_product(*launch.product);
    return {};
  } catch (const Error& error) {
    if (error.fault() != Fault::job_failed) throw;
    return error.what();
  }
}

// All whose kernels were built, with what is seen of each family.
void judge_all(Device& device, const std::vector<FamilyTrial>& cases, const KernelFiles& files,
               std::size_t guard) {
  struct Judged {
    int plans = 0;
    double seconds = 0;
  };
  const Seconds all;
  std::map<std::string, Judged> judged;
  for (const FamilyTrial& one : cases) {
    INFO(one.family << ", " << one.what);
    const auto is_built = [&](const KernelSource& source) { return files.contains(source.entry); };
    if (!std::ranges::all_of(one.request.sources, is_built)) continue;
    if (const std::string why = why_unavailable(device, one.request.trial); !why.empty()) {
      MESSAGE("not available: " << why);
      continue;
    }
    const Seconds seconds;
    const validate::Verdict verdict = device.info().sm == 0
                                          ? judge(one.request.trial, files)
                                          : judge_on(device, one.request.trial, files, guard);
    CHECK_MESSAGE(verdict.admitted(), (verdict.rejection ? verdict.rejection->reason : ""));
    Judged& family = judged[one.family];
    ++family.plans, family.seconds += seconds.so_far();
  }
  std::string text;
  for (const auto& [family, of] : judged)
    text += fmt::format("; {} of {} in {:.1f} s", of.plans, family, of.seconds);
  MESSAGE("judged in " << all.so_far() << " s" << text);
}

// The most capable device has all families; another one lacks kinds for a reason.
void check_coverage(const Chooser& chooser, Breadth breadth) {
  std::set<std::string> families;
  for (const auto& [kind, why_not] : chooser.kinds()) {
    CAPTURE(kind);
    const std::string family = kind.substr(0, kind.find(' '));
    families.insert(family);
    if (!why_not.empty())
      MESSAGE("not on this device: " << kind << ": " << why_not);
    else
      CHECK(chooser.has(breadth == Breadth::families ? family : kind));
  }
  for (const std::string& family : all_families()) {
    CAPTURE(family);
    CHECK(families.contains(family));
  }
}

}  // namespace

void check_kernel_families(Device& device, const DeviceInfo& planned_for, KernelBuilder& builder,
                           Breadth breadth, const std::set<std::string>& only) {
  const Seconds planning;
  Chooser chooser(planned_for, breadth);
  const std::int64_t prompt = breadth == Breadth::families ? 20
                              : breadth == Breadth::kinds  ? 70
                                                           : 300;
  for (const FamilyModel& model : family_models(prompt)) chooser.add(model);
  // Of a few tokens, each has the bits that it has by itself.
  if (breadth != Breadth::families)
    for (const FamilyModel& model : family_models(kFewTokens)) chooser.add(model);
  std::vector<FamilyTrial> cases = chooser.trials();
  std::ranges::move(trials_without_plans(breadth), std::back_inserter(cases));
  if (!only.empty())
    std::erase_if(cases, [&](const FamilyTrial& one) { return only.count(one.family) == 0; });
  for (const std::string& family : only) {
    CAPTURE(family);
    CHECK(std::ranges::count(cases, family, &FamilyTrial::family) > 0);
  }
  MESSAGE(cases.size() << " plans chosen in " << planning.so_far() << " s");

  const Seconds building;
  const KernelFiles files = build(cases, device.info(), builder);
  MESSAGE(files.size() << " kernels built in " << building.so_far() << " s");

  judge_all(device, cases, files, breadth == Breadth::kinds ? 0 : kGuardBytes);
  if (only.empty()) check_coverage(chooser, breadth);
}

}  // namespace ac::test
