#include "lab/package_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "admit/trials.h"
#include "analyze/use_def.h"
#include "base/error.h"
#include "device/device.h"
#include "generate/fallback.h"
#include "ir/positions.h"
#include "ir/work.h"
#include "lab/program_pair.h"
#include "lab/trial_package.h"

namespace ac {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kLimit{300};  // of loading, and of each step
// Operations of steps that it is worth: on the host device a part of a second for a small model, on
// a GPU some seconds. As many more as a few tokens and one prompt take, up to a limit. Whoever
// verifies has more time.
struct Worth {
  double most, limit;
};
constexpr Worth kOnHost{4e6, 4e8}, kOnGpu{5e11, 2e12};
constexpr double kCheckedTokens = 16, kMoreOfVerify = 4, kPartOfQuick = 1. / 3;
constexpr double kMostInTruth = 2e9;

PackageCheck not_done(std::string why) {
  PackageCheck check;
  check.why_not = std::move(why);
  return check;
}

// One for each op, what chooses the token, and what ends a step.
struct Plain {
  std::vector<Implemented> parts;
  std::vector<Request> trials;  // of each different one
  std::int64_t roundings = 0;
};

Plain plain_of(const StepGraph& step, const Program& program) {
  Setting setting{device_info(program.target).multiprocessors, {}};
  for (const StateSpec& state : program.states) setting.slots.push_back(state.slots);
  const TrialSetting at{program.longest_step(), setting};
  const UseDef uses(step);
  Plain plain;
  std::set<std::string> known;
  for (std::size_t i = 0; i < step.graph.nodes.size(); ++i) {
    const Node& node = step.graph.nodes[i];
    if (!is_compute(node)) continue;
    const Region region = std::get<Region>(make_region(uses, {static_cast<NodeId>(i)}));
    plain.parts.push_back({fallback(step, region, setting), "plain"});
    if (known.insert(region.signature).second)
      plain.trials.push_back(trial_of_fallback(step, region, at));
    if (is_float(node.type.dtype)) ++plain.roundings;
  }
  const NodeId logits = step.graph.outputs.at(0).node;
  plain.parts.push_back({fallback_argmax(step, logits, setting), "plain"});
  plain.parts.push_back({generate_advance(step, ids_of(step), program.max_context + 1), "advance"});
  const TensorType& type = step.graph.type(logits);
  plain.trials.push_back(trial_of_argmax(type.dtype, type.shape.back().constant()));
  return plain;
}

std::vector<KernelSource> sources_of(const Plain& plain) {
  std::vector<KernelSource> sources{random_source()};
  for (const Implemented& part : plain.parts)
    sources.insert(sources.end(), part.made.sources.begin(), part.made.sources.end());
  return sources;
}

// Operations of a step.
class StepWork {
 public:
  explicit StepWork(const StepGraph& step) {
    for (std::size_t i = 0; i < step.graph.nodes.size(); ++i)
      if (is_compute(step.graph.nodes[i]))
        works_.push_back(work_of(step.graph, static_cast<NodeId>(i)));
  }

  double of(std::int64_t tokens, std::int64_t cached) const {
    double flops = 0;
    for (const Work& work : works_)
      flops += static_cast<double>(evaluate(work, {.S = -1, .T = tokens, .P = cached}).flops);
    return flops;
  }

  double of(const CheckStep& step, const Program& program) const {
    const std::int64_t chunk = program.longest_step();
    const auto steps_of = [&](std::int64_t tokens, std::int64_t cached) {
      double flops = 0;
      for (std::int64_t at = 0; at < tokens; at += chunk)
        flops += of(std::min(chunk, tokens - at), cached + at);
      return flops;
    };
    const auto more = static_cast<double>(step.more);
    const double flops = steps_of(step.tokens, step.cached);
    // Going back runs what follows the prompt five times, three of them by one program alone.
    // One token after the other by plain kernels.
    if (step.kind == CheckStep::Kind::together)
      return 2 * static_cast<double>(step.tokens) * of(1, step.cached + step.tokens);
    if (step.kind == CheckStep::Kind::rows)
      return flops + static_cast<double>(step.tokens) * of(1, step.cached);
    if (step.kind == CheckStep::Kind::back) return flops + 4 * more * of(1, step.tokens);
    return flops + more * of(1, step.cached + step.tokens);
  }

 private:
  std::vector<Work> works_;
};

// A prompt that runs through the phase of the longest steps: a whole step, if all prompts do.
CheckStep shortest_long(const Program& program) {
  const std::int64_t most = program.longest_step();
  const std::int64_t least = program.phase_of(most, 0).min_tokens;
  return {CheckStep::Kind::prompt, 0, least > 2 ? least : most, 0};
}

Rows rows_of(const CheckStep& step) {
  if (step.kind == CheckStep::Kind::rows) return Rows::all;
  return step.kind == CheckStep::Kind::together ? Rows::each : Rows::last;
}

class Checker {
 public:
  Checker(const Program& program, const Plain& plain, Lab& lab, Progress& progress, bool may_judge)
      : program_(program), plain_(plain), lab_(lab), progress_(progress), may_judge_(may_judge) {}

  PackageCheck run(const PairJob& job, const CheckSteps& steps) {
    for (const CheckStep& step : steps.left_out) check_.left_out.push_back(describe(step));
    const std::unique_ptr<Conversation> pair = lab_.converse(job);
    const ChildResult opened = lab_.ask(*pair, loaded_question(), kLimit);
    if (!opened.ok()) {
      check_.done = true;
      check_.fault = fmt::format("it could not be loaded: {}", opened.ended);
      return check_;
    }
    const Loaded loaded = loaded_of(opened.text);
    const auto began = std::chrono::steady_clock::now();
    check_.why_random = loaded.why_random, check_.why_not = loaded.why_not;
    if (!check_.why_not.empty()) return check_;
    for (std::size_t i = 0; i < steps.steps.size() && check_.ok(); ++i) {
      const CheckStep& step = steps.steps[i];
      progress_.step("steps", i, steps.steps.size(), describe(step));
      take(step, lab_.ask(*pair, line_of(step), kLimit));
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    progress_.note(fmt::format("{} results compared in {:.1f} s", check_.compared, took.count()));
    check_.done = check_.compared > 0 || !check_.ok();
    if (!check_.done)
      check_.why_not = steps.steps.empty() ? "a single step of it is too much work for this device"
                                           : "logits are not finite, by plain kernels as well";
    return check_;
  }

 private:
  void take(const CheckStep& step, const ChildResult& answer) {
    if (!answer.ok()) {
      const bool decodes = step.kind == CheckStep::Kind::after && step.tokens == 1;
      const Rows rows = rows_of(step);
      std::vector<std::string> phases = phases_of(program_, step.cached, step.tokens, rows);
      if (step.more > 0 && !decodes)
        for (std::string& name : phases_of(program_, step.cached + step.tokens, 1))
          phases.push_back(std::move(name));
      return blame(fmt::format("{}: the process that ran it {}", describe(step), answer.ended),
                   phases);
    }
    const ProgramPair::Result result = result_of(answer.text);
    check_.compared += result.compared;
    check_.most_tokens = std::max(check_.most_tokens, step.tokens);
    check_.last_position = std::max(check_.last_position, step.end());
    if (result.worst > check_.worst)
      check_.worst = result.worst, check_.worst_case = result.worst_case;
    if (!result.fault.empty()) blame(result.fault, result.phases);
  }

  // Only now is it worth while to judge plain kernels: nothing is decided by those that agree with
  // kernels that were made in another way.
  void blame(const std::string& what, const std::vector<std::string>& phases) {
    check_.fault = what;
    if (!may_judge_) return;
    progress_.note("plain kernels are judged, as something differs from what they compute");
    const std::vector<Outcome> outcomes = lab_.judge(plain_.trials);
    for (std::size_t i = 0; i < outcomes.size(); ++i)
      if (!outcomes[i].admitted()) {
        check_.fault = fmt::format("{}; but plain kernels are wrong themselves: {} in {}", what,
                                   outcomes[i].why, plain_.trials[i].trial.step);
        return;
      }
    check_.fault = fmt::format("{}; its kernels ({}): {}", what, fmt::join(phases, ", "),
                               fmt::join(kernels_of(program_, phases), ", "));
  }

  const Program& program_;
  const Plain& plain_;
  Lab& lab_;
  Progress& progress_;
  const bool may_judge_;
  PackageCheck check_;
};

}  // namespace

Json to_json(const PackageCheck& check) {
  if (!check.done) return {{"done", false}, {"why_not", check.why_not}};
  Json json{{"done", true},
            {"fault", check.fault},
            {"weights", check.why_random.empty() ? "own" : "random"},
            {"compared", check.compared},
            {"most_tokens", check.most_tokens},
            {"last_position", check.last_position},
            {"worst", check.worst},
            {"worst_case", check.worst_case},
            {"left_out", check.left_out},
            {"with_truth", check.with_truth}};
  if (!check.why_random.empty()) json["why_random"] = check.why_random;
  if (!check.why_no_truth.empty()) json["why_no_truth"] = check.why_no_truth;
  return json;
}

void verify(const PackageCheck& check, const std::string&) {
  AC_ASSERT(check.done == check.why_not.empty());
}

std::string summary_of(const Json& check) {
  if (!check.at("done").get<bool>())
    return fmt::format("the whole program was not run: {}", check.at("why_not").get<std::string>());
  std::string text = fmt::format(
      "the whole program against plain kernels{}: {} times, up to {} tokens in a step and position "
      "{}, with {} weights; at most {:.3f} of the bound",
      check.at("with_truth").get<bool>() ? " and double precision" : "",
      check.at("compared").get<std::int64_t>(), check.at("most_tokens").get<std::int64_t>(),
      check.at("last_position").get<std::int64_t>(),
      check.at("weights") == "own" ? "its own" : "random", check.at("worst").get<double>());
  if (const std::size_t out = check.at("left_out").size(); out > 0)
    text += fmt::format("; {} steps were left out, as they are much work", out);
  if (const auto why = check.find("why_no_truth"); why != check.end())
    text += fmt::format("; not against double precision: {}", why->get<std::string>());
  return text;
}

std::vector<KernelSource> check_sources(const Program& program, const StepGraph& step) {
  try {
    return sources_of(plain_of(step, program));
  } catch (const Error&) {
    return {};  // the check says why it is not done
  }
}

PackageCheck check_package(const fs::path& package, const Program& program, const StepGraph& step,
                           Lab& lab, Progress& progress, const PackageCheckOptions& options) {
  if (!lab.has_device()) return not_done("the device that the package is for is not here");
  const bool on_host = program.target == "host";
  Plain plain;
  try {
    plain = plain_of(step, program);
  } catch (const Error& error) {
    return not_done(fmt::format("there are no plain kernels for it: {}", error.what()));
  }
  const std::vector<KernelSource> sources = sources_of(plain);
  lab.build(sources);
  for (const KernelSource& source : sources)
    if (const std::string* log = lab.failure(source.entry))
      return not_done(fmt::format("{} does not compile: {}", source.entry, *log));
  const TrialPackage other(step, program, program.longest_step(), plain.parts, lab);

  const StepWork work(step);
  const Worth worth = on_host ? kOnHost : kOnGpu;
  const double few = kCheckedTokens * work.of(1, program.max_context - 1) +
                     work.of(shortest_long(program), program);
  double most = std::clamp(few, worth.most, worth.limit);
  if (options.verifies) most *= kMoreOfVerify;
  if (options.quick) most *= kPartOfQuick;
  const CheckSteps steps =
      check_steps(program, [&](const CheckStep& at) { return work.of(at, program); }, most);
  PairJob pair{.chosen = package,
               .plain = other.path(),
               .random = lab.kernels().at(random_source().entry).artifact,
               .checkpoint = options.checkpoint,
               .roundings = plain.roundings,
               .left_free = options.beside_judges ? lab.bytes_of_judges() : 0};
  std::string why_no_truth;
  if (options.with_truth) {
    double flops = 0;
    for (const CheckStep& at : steps.steps) flops += work.of(at, program);
    if (flops <= kMostInTruth)
      pair.step = step;
    else
      why_no_truth = "it is too much work";
  }
  PackageCheck check =
      Checker(program, plain, lab, progress, !options.beside_judges).run(pair, steps);
  check.with_truth = pair.step.has_value();
  check.why_no_truth = std::move(why_no_truth);
  return check;
}

}  // namespace ac
