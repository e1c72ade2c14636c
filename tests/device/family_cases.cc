#include "tests/device/family_cases.h"

#include <doctest/doctest.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <set>

#include "admit/judge.h"
#include "base/error.h"
#include "compile/cover.h"
#include "compile/realise.h"
#include "compile/trials.h"
#include "plan/plans.h"
#include "tests/device/family_models.h"

namespace ac::test {
namespace {

class Seconds {
 public:
  double so_far() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point began_ = Clock::now();
};

struct Case {
  std::string family, what;
  Request request;
};

// "{.a = 1, .b = Ring::none}" as "a = 1" and "b = Ring::none".
std::vector<std::string> fields_of(const std::string& text) {
  std::vector<std::string> fields;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(", .", at), text.size() - 1);
    fields.push_back(text.substr(at + 2, end - at - 2));
    at = end + 1;
  }
  return fields;
}

std::vector<std::string> all_families() {
  const auto of_regions = family_names();
  std::vector<std::string> names(of_regions.begin(), of_regions.end());
  names.emplace_back(SamplingTask::family);
  return names;
}

// Takes candidates of spaces, one space after the other, until each aspect of their plans has been
// taken once: every new plan is the one that shows most that no other did.
class Chooser {
 public:
  Chooser(const DeviceInfo& device, Breadth breadth) : device_(device), breadth_(breadth) {}

  void add(const FamilyModel& model) {
    if (breadth_ == Breadth::families && has_all_families()) return;
    const Regions regions = analyse(model.step);
    PlanOptions options{.families = all_families()};
    options.at = {.S = -1, .T = model.tokens, .P = 64};
    // The best of each kind are enough to know which kinds there are.
    const Plans all = plan(regions, most_capable(), options);
    for (const Space& space : all.spaces) note_kinds(space);
    if (breadth_ == Breadth::fields)
      options.max_candidates = std::numeric_limits<std::size_t>::max();
    const Plans plans = plan(regions, device_, options);
    for (const Space& space : plans.spaces) note_kinds(space);
    std::set<int> known;
    for (const CoverPart& part : parts_of_all_cuts(regions, plans))
      if (known.insert(part.space).second)
        choose(model, regions.step, part.wanted,
               plans.spaces[static_cast<std::size_t>(part.space)]);
  }

  const std::vector<Case>& cases() const { return cases_; }
  // Of any device, with why one of them is not for this one.
  const std::map<std::string, std::string>& kinds() const { return kinds_; }
  bool has(const std::string& aspect) const { return seen_.count(aspect) > 0; }

 private:
  static const DeviceInfo& most_capable() { return device_info("sm_90"); }

  bool has_all_families() const {
    const auto names = all_families();
    return std::ranges::all_of(names, [&](const std::string& name) { return has(name); });
  }

  // With why the best of a kind is not for this device; "" where another one is.
  void note_kinds(const Space& space) {
    for (const Candidate& candidate : space.candidates) {
      const char* reason = why_illegal(candidate.choice, device_);
      std::string& why = kinds_.emplace(candidate.kind, reason ? reason : "").first->second;
      if (!reason) why.clear();
    }
  }

  // What all plans of a kind show in one space.
  std::vector<std::string> aspects_of_op(const FamilyModel& model,
                                         const Candidate& candidate) const {
    const std::string family(family_of(candidate.choice));
    std::vector<std::string> aspects{family};
    if (breadth_ == Breadth::families) return aspects;
    aspects.push_back(candidate.kind);
    if (model.tokens == 1) aspects.push_back(candidate.kind + " for one token");
    const std::string& of_ops = breadth_ == Breadth::fields ? candidate.kind : family;
    for (const std::string& field : fields_of(op_text(candidate.choice)))
      aspects.push_back(of_ops + " of " + field);
    if (const auto* made = std::get_if<Implementation<PrefillAttentionTask>>(&candidate.choice))
      for (const std::string& field : fields_of(op_text(made->task.append)))
        aspects.push_back("rope_append of " + field);
    return aspects;
  }

  void choose(const FamilyModel& model, const StepGraph& step, const std::optional<Wanted>& wanted,
              const Space& space) {
    std::map<std::string, std::vector<std::string>> of_ops;  // by kind
    std::vector<std::vector<std::string>> unseen;
    for (const Candidate& candidate : space.candidates) {
      const auto [of_op, is_new] = of_ops.try_emplace(candidate.kind);
      if (is_new) of_op->second = aspects_of_op(model, candidate);
      std::vector<std::string>& aspects = unseen.emplace_back();
      const auto add = [&](const std::string& aspect) {
        if (!has(aspect)) aspects.push_back(aspect);
      };
      std::ranges::for_each(of_op->second, add);
      if (breadth_ == Breadth::fields)
        for (const PlanField& field : plan_fields(candidate.choice))
          add(candidate.kind + " with " + field.name + " = " + field.value);
    }
    for (;;) {
      std::size_t best = 0;
      for (std::size_t i = 0; i < unseen.size(); ++i) {
        std::erase_if(unseen[i], [&](const std::string& aspect) { return has(aspect); });
        if (unseen[i].size() > unseen[best].size()) best = i;
      }
      if (unseen.empty() || unseen[best].empty()) return;
      const Candidate& candidate = space.candidates[best];
      // As many tokens as the plan was made for are enough.
      if (auto request = trial_of(step, wanted, candidate, {model.tokens, {}, device_.sm > 0})) {
        seen_.insert(unseen[best].begin(), unseen[best].end());
        cases_.push_back({std::string(family_of(candidate.choice)),
                          fmt::format("{}: {} {} of {}", model.name, candidate.id,
                                      op_text(candidate.choice), space.signature),
                          std::move(*request)});
      }
      unseen[best].clear();
    }
  }

  const DeviceInfo& device_;
  const Breadth breadth_;
  std::set<std::string> seen_;
  std::map<std::string, std::string> kinds_;
  std::vector<Case> cases_;
};

// What goes without a plan.
void add_fallbacks(Breadth breadth, std::vector<Case>& cases) {
  const StepGraph step = step_of_all_ops();
  const TrialSetting at{7, {}};
  const UseDef uses(step);
  for (const Output& output : step.graph.outputs) {
    if (breadth == Breadth::families && output.name != "append_attend") continue;
    const Region region = std::get<Region>(make_region(uses, {output.node}));
    cases.push_back({"fallback", output.name, trial_of_fallback(step, region, at)});
  }
  cases.push_back({"fallback", "argmax", trial_of_argmax(DType::bf16, 3001)});
  cases.push_back({"advance", "i64", trial_of_advance(DType::i64, 7)});
  cases.push_back({"draw", "f16", trial_of_draw(DType::f16, 20000)});
  if (breadth == Breadth::families) return;
  cases.push_back({"advance", "i32", trial_of_advance(DType::i32, 1)});
  cases.push_back({"draw", "bf16", trial_of_draw(DType::bf16, 3001)});
  cases.push_back({"draw", "f32", trial_of_draw(DType::f32, 77)});
}

KernelFiles build(const std::vector<Case>& cases, const DeviceInfo& device,
                  KernelBuilder& builder) {
  std::map<std::string, KernelSource> by_entry;
  for (const Case& one : cases)
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
void judge_all(Device& device, const std::vector<Case>& cases, const KernelFiles& files,
               std::size_t guard) {
  struct Judged {
    int plans = 0;
    double seconds = 0;
  };
  const Seconds all;
  std::map<std::string, Judged> judged;
  for (const Case& one : cases) {
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
  std::vector<Case> cases = chooser.cases();
  add_fallbacks(breadth, cases);
  if (!only.empty())
    std::erase_if(cases, [&](const Case& one) { return only.count(one.family) == 0; });
  for (const std::string& family : only) {
    CAPTURE(family);
    CHECK(std::ranges::count(cases, family, &Case::family) > 0);
  }
  MESSAGE(cases.size() << " plans chosen in " << planning.so_far() << " s");

  const Seconds building;
  const KernelFiles files = build(cases, device.info(), builder);
  MESSAGE(files.size() << " kernels built in " << building.so_far() << " s");

  judge_all(device, cases, files, breadth == Breadth::kinds ? 0 : kGuardBytes);
  if (only.empty()) check_coverage(chooser, breadth);
}

}  // namespace ac::test
