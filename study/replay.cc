#include "study/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <set>
#include <thread>

#include "base/error.h"
#include "lab/measure.h"
#include "search/run.h"

namespace ac::study {
namespace {

constexpr std::size_t kLeastOfTable = 4;

constexpr const char* kExact = "random (exact)";

Case case_of(const TimedTable& table, const Json& header, std::size_t number,
             const Replies& replies, bool recorded_only) {
  const std::string model = header.at("model").get<std::string>();
  Case made;
  made.name = fmt::format("{}: {}", model, table.description);
  made.signature = table.signature;
  made.table = number;
  made.is_step = table.sites || table.points[0].point.parts.size() > 1;
  made.optimum = *table.optimum();
  made.drift = table.drift();
  if (!table.attempt_seconds.empty()) made.attempt_seconds = median(table.attempt_seconds);
  const Json choices = header.value("choices", Json()),
             took = header.value("choices_seconds", Json());
  if (choices.is_number() && took.is_number() && choices.get<double>() > 0)
    made.choice_seconds = took.get<double>() / choices.get<double>();
  std::vector<double> predicted, measured, spreads;
  for (const tune::TimedPoint& timed : table.points) {
    made.outcomes.push_back(timed.outcome());
    made.failures += !made.outcomes.back().ok();
    made.unjudged += !timed.was_admitted;
    if (!made.outcomes.back().ok()) continue;
    predicted.push_back(timed.point.predicted);
    measured.push_back(made.outcomes.back().microseconds);
    made.good += measured.back() <= made.optimum * 1.05;
    const auto [least, most] = std::minmax_element(timed.samples.begin(), timed.samples.end());
    spreads.push_back(*most / *least - 1);
  }
  made.spread = median(spreads);
  made.answers = std::make_shared<const Answers>(table, recorded_only);
  if (made.answers->model()) made.model = made.answers->model()->errors();
  made.predicted_correlation = rank_correlation(predicted, measured);
  if (const auto known = replies.find(table.signature); known != replies.end())
    for (const OrderReply& reply : known->second) {
      std::vector<double> rank, time;
      const auto space = made.answers->space();
      for (const int point : search::Ranking::of(*space, reply.order).order) {
        const search::PointOutcome outcome = made.answers->outcome(*space, point);
        if (!outcome.ok()) continue;
        rank.push_back(static_cast<double>(rank.size()));
        time.push_back(outcome.microseconds);
      }
      made.advised_correlation.push_back(rank_correlation(rank, time));
    }
  return made;
}

// Of the optimum, which a model may say that something beats.
float share_of(const Case& of, const search::PointOutcome& outcome) {
  return static_cast<float>(std::min(1.0, of.optimum / outcome.microseconds));
}

Curve search_once(const Case& of, const search::PointSpace& space, search::Strategy& strategy,
                  std::size_t attempts) {
  const auto answer = [&](int point) {
    return search::AttemptCost{of.answers->outcome(space, point)};
  };
  const search::Trace trace = run_search(strategy, answer, {.attempts = attempts});
  Curve curve;
  float best = 0;
  for (const search::PointAttempt& attempt : trace.attempts) {
    if (attempt.outcome.ok()) best = std::max(best, share_of(of, attempt.outcome));
    curve.push_back(best);
  }
  curve.resize(attempts, best);  // nothing is left to try
  return curve;
}

// Attempts to a share, or one more than all.
std::size_t attempts_to(const Curve& curve, double share) {
  const auto at = std::find_if(curve.begin(), curve.end(),
                               [&](float s) { return s >= static_cast<float>(share) - 1e-6f; });
  return static_cast<std::size_t>(at - curve.begin()) + 1;
}

void count_hits(ArmResult& arm, std::size_t attempts) {
  const double weight = 1.0 / static_cast<double>(arm.shares.size());
  arm.attempts.assign(arm.shares.size(), 0);
  for (std::size_t goal = 0; goal < kGoals; ++goal)
    for (std::size_t i = 0; i < arm.shares.size(); ++i)
      for (const Curve& curve : arm.shares[i]) {
        const std::size_t needed = attempts_to(curve, 1 / (1 + kWithin[goal]));
        const double part = 1.0 / static_cast<double>(arm.shares[i].size());
        arm.hits[goal].attempts += weight * part * static_cast<double>(needed);
        arm.hits[goal].reached += needed <= attempts ? weight * part : 0;
        if (goal == kCounted) arm.attempts[i] += part * static_cast<double>(needed);
      }
}

class Replayer {
 public:
  Replayer(Replayed& result, const Replies& replies, const std::vector<ProposedSession>& sessions)
      : result_(result), replies_(replies), sessions_(sessions) {}

  void run(ReplayGroup& group) {
    const bool is_step =
        std::ranges::any_of(group.cases, [&](std::size_t of) { return result_.cases[of].is_step; });
    for (const Arm& arm : arms_of(result_.options.strategies, group.with_advice))
      if (!is_of_regions(arm.strategy) || !is_step) group.arms.push_back(run_arm(group, arm));
    add_sessions(group);
    // What is not listed cannot be counted.
    if (std::ranges::none_of(group.cases,
                             [&](std::size_t of) { return result_.cases[of].model.has_value(); }))
      group.arms.push_back(random_exactly(group));
    group.arms.push_back(oracle(group));
    in_parallel(group.arms.size(), [&](std::size_t i) {
      ArmResult& arm = group.arms[i];
      arm.band = bootstrap(arm.shares, result_.options.resamples, result_.options.seed, arm.draws,
                           kinds_of(group));
    });
    compare(group);
  }

 private:
  const std::vector<OrderReply>* replies_of(std::size_t index) const {
    const auto known = replies_.find(result_.cases[index].signature);
    return known == replies_.end() ? nullptr : &known->second;
  }
  Kinds kinds_of(const ReplayGroup& group) const {
    Kinds kinds;
    for (const std::size_t index : group.cases) kinds.push_back(result_.cases[index].kind);
    return kinds;
  }

  ArmResult run_arm(const ReplayGroup& group, const Arm& arm) const {
    ArmResult ran;
    ran.name = arm.name;
    ran.cases = group.cases;
    ran.shares.resize(ran.cases.size());
    if (arm.use != Arm::Use::none)
      for (const std::size_t index : ran.cases) ran.draws.push_back(replies_of(index)->size());
    in_parallel(ran.cases.size(), [&](std::size_t i) {
      const std::size_t index = ran.cases[i];
      const Case& of = result_.cases[index];
      const std::vector<OrderReply>* replies =
          arm.use == Arm::Use::none ? nullptr : replies_of(index);
      std::vector<const OrderReply*> others;
      if (arm.spoilt == Spoilt::other_region)
        for (const auto& [signature, list] : replies_)
          if (signature != of.signature)
            for (const OrderReply& reply : list) others.push_back(&reply);
      const std::size_t draws = replies ? replies->size() : 1;
      // Each reply as often as any other.
      const std::size_t repetitions =
          arm.uses_seed ? (result_.options.repetitions + draws - 1) / draws * draws : draws;
      for (std::size_t r = 0; r < repetitions; ++r) {
        const std::uint64_t seed =
            search::derived_seed(search::derived_seed(result_.options.seed, index), r);
        const auto space = of.answers->space();
        const auto strategy =
            start(arm, *space, replies ? &(*replies)[r % draws] : nullptr, others, seed);
        ran.shares[i].push_back(search_once(of, *space, *strategy, result_.options.attempts));
      }
    });
    count_hits(ran, result_.options.attempts);
    return ran;
  }

  // What was searched before, from the plans that it tried.
  Curve curve_of(const Case& of, const ProposedSession& session) const {
    Curve curve;
    float best = 0;
    const auto space = of.answers->space();
    for (const std::string& plan : session.plans) {
      const std::optional<int> point = space->find(plan);
      if (!point) bad_input("{}: the table has no plan {}", session.arm, plan);
      const search::PointOutcome outcome = of.answers->outcome(*space, *point);
      if (outcome.ok()) best = std::max(best, share_of(of, outcome));
      curve.push_back(best);
    }
    curve.resize(result_.options.attempts, best);
    return curve;
  }

  void add_sessions(ReplayGroup& group) const {
    std::set<std::string> names;
    for (const ProposedSession& session : sessions_) names.insert(session.arm);
    for (const std::string& name : names) {
      ArmResult arm;
      arm.name = name;
      arm.cases = group.cases;
      CallCosts costs;
      double searches = 0;
      for (const std::size_t index : group.cases) {
        const Case& of = result_.cases[index];
        std::vector<Curve>& curves = arm.shares.emplace_back();
        for (const ProposedSession& session : sessions_)
          if (session.arm == name && session.signature == of.signature) {
            curves.push_back(curve_of(of, session));
            costs += costs_of(session.calls), ++searches;
          }
      }
      if (std::ranges::any_of(arm.shares, &std::vector<Curve>::empty)) continue;
      if (costs.calls > 0) arm.costs = costs.over(searches);
      count_hits(arm, result_.options.attempts);
      group.arms.push_back(std::move(arm));
    }
  }

  ArmResult random_exactly(const ReplayGroup& group) const {
    ArmResult arm;
    arm.name = kExact;
    arm.cases = group.cases;
    const double weight = 1.0 / static_cast<double>(group.cases.size());
    for (const std::size_t index : group.cases) {
      const Case& of = result_.cases[index];
      std::vector<double> shares;
      for (const search::PointOutcome& outcome : of.outcomes)
        shares.push_back(outcome.ok() ? of.optimum / outcome.microseconds : 0);
      arm.shares.push_back({expected_best(shares, result_.options.attempts)});
      for (std::size_t goal = 0; goal < kGoals; ++goal) {
        const auto good = std::count_if(shares.begin(), shares.end(), [&](double share) {
          return share >= 1 / (1 + kWithin[goal]) - 1e-6;
        });
        const Hit hit =
            expected_hit(static_cast<std::size_t>(good), shares.size(), result_.options.attempts);
        arm.hits[goal].attempts += weight * hit.attempts;
        arm.hits[goal].reached += weight * hit.reached;
        if (goal == kCounted) arm.attempts.push_back(hit.attempts);
      }
    }
    return arm;
  }

  ArmResult oracle(const ReplayGroup& group) const {
    ArmResult arm;
    arm.name = "oracle";
    arm.cases = group.cases;
    arm.shares.assign(group.cases.size(), {Curve(result_.options.attempts, 1.0f)});
    count_hits(arm, result_.options.attempts);
    return arm;
  }

  void compare(ReplayGroup& group) const {
    const auto find = [&](const std::string& name) -> const ArmResult* {
      for (const ArmResult& arm : group.arms)
        if (arm.name == name) return &arm;
      return nullptr;
    };
    std::vector<std::pair<const ArmResult*, const ArmResult*>> pairs;
    for (const ArmResult& arm : group.arms) {
      if (arm.name == "oracle" || arm.name.rfind("random", 0) == 0) continue;
      pairs.emplace_back(&arm, find(kExact));
      // Of one space, the exact expectation would leave no interval.
      if (group.cases.size() == 1) pairs.emplace_back(&arm, find("random"));
      if (arm.name != "heuristic") pairs.emplace_back(&arm, find("heuristic"));
      if (arm.name != kDiverse) pairs.emplace_back(&arm, find(std::string(kDiverse)));
      const bool proposes = arm.name.starts_with("proposals+");
      if (!(proposes || arm.name.starts_with("advice")) || arm.name.find('(') != std::string::npos)
        continue;
      if (const std::size_t plus = arm.name.find('+'); plus != std::string::npos &&
                                                       arm.name.substr(plus + 1) != "heuristic" &&
                                                       arm.name.substr(plus + 1) != kDiverse)
        pairs.emplace_back(&arm, find(arm.name.substr(plus + 1)));
      for (const Spoilt spoilt :
           {Spoilt::shuffled, Spoilt::reversed, Spoilt::other_region, Spoilt::random_points})
        pairs.emplace_back(&arm, find(fmt::format("{} ({})", arm.name, to_string(spoilt))));
      for (const char* falsifier :
           {"permuted feedback", "no feedback", "another program's feedback", "by chance"})
        pairs.emplace_back(&arm, find(fmt::format("{} ({})", arm.name, falsifier)));
    }
    std::erase_if(pairs, [](const auto& pair) { return !pair.second; });
    group.comparisons.resize(pairs.size());
    in_parallel(pairs.size(), [&](std::size_t i) {
      group.comparisons[i] = compared(*pairs[i].first, *pairs[i].second, kinds_of(group));
    });
  }

  Comparison compared(const ArmResult& arm, const ArmResult& against, const Kinds& kinds) const {
    const Curves &a = arm.shares, &b = against.shares;
    const ReplayOptions& options = result_.options;
    Comparison result{arm.name, against.name, a.size(), 0, {}, {}, {}};
    result.kinds = std::set<std::size_t>(kinds.begin(), kinds.end()).size();
    result.difference = bootstrap_difference(a, b, options.resamples, options.seed, arm.draws,
                                             against.draws, kinds);
    const auto mean_at = [](const std::vector<Curve>& curves, std::size_t at) {
      double sum = 0;
      for (const Curve& curve : curves) sum += curve[at];
      return sum / static_cast<double>(curves.size());
    };
    for (const std::size_t shown : kShown) {
      const std::size_t at = std::min(shown, options.attempts) - 1;
      std::vector<double> differences;
      for (std::size_t i = 0; i < a.size(); ++i)
        differences.push_back(mean_at(a[i], at) - mean_at(b[i], at));
      result.p.push_back(sign_flip_p(sums_by_kind(differences, kinds), options.seed));
    }
    if (arm.name == kExact || against.name == kExact) return result;
    const Curves to_a = attempts_of(a), to_b = attempts_of(b);
    result.attempts = bootstrap_difference(to_a, to_b, options.resamples, options.seed, arm.draws,
                                           against.draws, kinds)[0];
    std::vector<double> differences;
    for (std::size_t i = 0; i < a.size(); ++i)
      differences.push_back(mean_at(to_a[i], 0) - mean_at(to_b[i], 0));
    result.attempts_p = sign_flip_p(sums_by_kind(differences, kinds), options.seed);
    return result;
  }

  // Of each search, those to within 5 % of the optimum.
  static Curves attempts_of(const Curves& shares) {
    Curves attempts;
    for (const std::vector<Curve>& repetitions : shares) {
      std::vector<Curve>& of = attempts.emplace_back();
      for (const Curve& curve : repetitions)
        of.push_back({static_cast<float>(attempts_to(curve, 1 / 1.05))});
    }
    return attempts;
  }

  // What each of them does depends on its number alone.
  void in_parallel(std::size_t count, const std::function<void(std::size_t)>& work) const {
    std::atomic<std::size_t> next = 0;
    std::vector<std::jthread> threads;
    const auto take = [&] {
      for (std::size_t i; (i = next++) < count;) work(i);
    };
    for (unsigned t = 1; t < std::min<std::size_t>(result_.options.jobs, count); ++t)
      threads.emplace_back(take);
    take();
  }

  Replayed& result_;
  const Replies& replies_;
  const std::vector<ProposedSession>& sessions_;
};

}  // namespace

std::vector<Hypothesis> hypotheses_of(const ReplayGroup& group) {
  std::vector<Hypothesis> hypotheses;
  if (group.cases.size() < 2) return hypotheses;
  std::vector<double> p;
  for (const ArmResult& arm : group.arms) {
    if (!arm.name.starts_with("proposals+") || arm.name.find('(') != std::string::npos) continue;
    const std::vector<std::vector<std::string>> against = {
        {arm.name.substr(arm.name.find('+') + 1)},
        {arm.name + " (permuted feedback)", arm.name + " (no feedback)"},
        {arm.name + " (by chance)"}};
    for (const std::vector<std::string>& names : against) {
      Hypothesis of{arm.name, {}, 0};
      for (const Comparison& comparison : group.comparisons)
        if (comparison.arm == arm.name && comparison.attempts &&
            std::ranges::find(names, comparison.against) != names.end()) {
          of.comparisons.push_back(&comparison);
          of.p = std::max(of.p, comparison.attempts_p);
        }
      if (of.comparisons.size() < names.size()) continue;
      p.push_back(of.p);
      hypotheses.push_back(std::move(of));
    }
  }
  const std::vector<double> corrected = holm(p);
  for (std::size_t i = 0; i < hypotheses.size(); ++i) hypotheses[i].corrected = corrected[i];
  return hypotheses;
}

Replayed replay(const std::vector<Recording>& recordings, const Replies& replies,
                const ReplayOptions& options, const std::vector<ProposedSession>& sessions) {
  Replayed result;
  result.options = options;
  for (const ProposedSession& session : sessions) {
    if (session.attempts > 0 && session.attempts < options.attempts)
      wrong_usage("--attempts {}: sessions of {} were allowed {}", options.attempts, session.arm,
                  session.attempts);
    result.proposed += costs_of(session.calls);
  }
  if (result.proposed.models.size() > 1)
    wrong_usage(
        "these sessions are of {} models, {} and {} among them: replay those of one at a time",
        result.proposed.models.size(), *result.proposed.models.begin(),
        *result.proposed.models.rbegin());
  result.takes_requests = std::ranges::any_of(sessions, &ProposedSession::takes_requests);
  std::set<std::string> known, advised, advisors;
  std::size_t number = 0;
  std::map<std::string, std::size_t> kinds;
  ReplayGroup regions{.name = "regions"}, advised_regions{.name = "regions with advice"};
  std::vector<ReplayGroup> steps;
  for (const Recording& recording : recordings) {
    result.headers.push_back(recording.header);
    if (!recording.resumed.empty()) result.headers.back()["resumed"] = recording.resumed;
    const std::string model = recording.header.at("model").get<std::string>();
    for (const TimedTable& table : recording.tables) {
      const std::string name = fmt::format("{}: {}", model, table.description);
      const std::string key = recording.header.at("device").get<std::string>() + table.signature;
      ++number;
      if (table.points.size() < kLeastOfTable)
        result.skipped.push_back(
            fmt::format("{}: {} points are no search", name, table.points.size()));
      else if (!table.optimum())
        result.skipped.push_back(fmt::format("{}: no point was measured", name));
      else if (!known.insert(key).second)
        result.skipped.push_back(fmt::format("{}: recorded before, for another model", name));
      else {
        result.cases.push_back(
            case_of(table, recording.header, number - 1, replies, options.recorded_only));
        // Regions with the same ops say nearly the same, steps of different models do not.
        Case& made = result.cases.back();
        made.kind =
            kinds.emplace(made.is_step ? name : table.description, kinds.size()).first->second;
      }
    }
  }
  for (std::size_t i = 0; i < result.cases.size(); ++i) {
    const Case& of = result.cases[i];
    const auto found = replies.find(of.signature);
    const bool has_advice = found != replies.end();
    if (of.is_step) {
      steps.push_back({.name = "step of " + of.name, .cases = {i}, .with_advice = has_advice});
    } else {
      regions.cases.push_back(i);
      if (has_advice) advised_regions.cases.push_back(i);
    }
    if (!has_advice) {
      if (!replies.empty()) result.unadvised.push_back(of.name);
      continue;
    }
    if (!advised.insert(of.signature).second) continue;  // on another device
    for (const OrderReply& reply : found->second) {
      advisors.insert(fmt::format("{}, {}", reply.model, reply.date));
      ++result.replies;
      result.named_plans += reply.order.size();
      result.known_plans += search::Ranking::of(*of.answers->space(), reply.order).order.size();
      result.reply_tokens += reply.tokens, result.reply_seconds += reply.seconds;
    }
  }
  for (const auto& [signature, list] : replies)
    if (advised.count(signature) == 0) result.other_replies += list.size();
  if (result.cases.empty()) bad_input("there is nothing to search in these tables");
  for (const std::string& name : options.strategies)
    if (!is_of_regions(name))
      search::make_strategy(name, *result.cases[0].answers->space(),
                            0);  // says so if there is no such one
  result.advisors = {advisors.begin(), advisors.end()};
  // Arms with advice are never compared over other spaces than arms without.
  advised_regions.with_advice = true;
  if (advised_regions.cases.size() == regions.cases.size())
    regions.with_advice = !regions.cases.empty();
  else if (!advised_regions.cases.empty()) {
    regions.name = "all regions";
    result.groups.push_back(std::move(advised_regions));
  }
  if (!regions.cases.empty()) result.groups.push_back(std::move(regions));
  for (ReplayGroup& step : steps) result.groups.push_back(std::move(step));
  ReplayGroup proposed{.name = "spaces with proposals"};
  for (std::size_t i = 0; i < result.cases.size(); ++i)
    if (std::ranges::find(sessions, result.cases[i].signature, &ProposedSession::signature) !=
        sessions.end())
      proposed.cases.push_back(i);
  if (proposed.cases.size() > 1 &&
      std::ranges::find(result.groups, proposed.cases, &ReplayGroup::cases) == result.groups.end())
    result.groups.push_back(std::move(proposed));
  for (const Case& of : result.cases) {
    std::vector<RequestedValue>& requests = result.requests.emplace_back();
    for (const ProposedSession& session : sessions)
      if (session.signature == of.signature) add_requests(session.calls, requests);
  }
  Replayer replayer(result, replies, sessions);
  for (ReplayGroup& group : result.groups) replayer.run(group);
  return result;
}

}  // namespace ac::study
