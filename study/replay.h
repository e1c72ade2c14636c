// Searches over recorded tables: whatever a strategy asks for, the table answers. The optimum is
// known, and repetitions cost microseconds.
#pragma once

#include "study/answers.h"
#include "study/arms.h"
#include "study/cost.h"
#include "study/propose.h"
#include "study/statistics.h"
#include "study/timed_table.h"

namespace ac::study {

struct ReplayOptions {
  std::size_t attempts = 64;      // of one search
  std::size_t repetitions = 100;  // of what depends on a seed
  std::uint64_t seed = 1;
  std::size_t resamples = 1000;  // of the bootstrap
  std::vector<std::string> strategies = {"random",       "heuristic", "diverse", "descent",
                                         "evolutionary", "surrogate", "tree"};
  unsigned jobs = 1;
  bool recorded_only = false;  // of steps whose schedules are too many to list
  std::optional<Prices> prices;
};

// A region's, or a step's, points that were recorded.
struct Case {
  std::string name;  // "Llama-3.2-1B: rms_norm+linear"
  std::string signature;
  std::size_t kind = 0;   // equal of the regions with the same ops
  std::size_t table = 0;  // of all
  bool is_step = false;
  std::shared_ptr<const Answers> answers;
  std::optional<FitErrors> model;              // that answers what was not recorded
  std::vector<search::PointOutcome> outcomes;  // of what was recorded
  double optimum = 0;                          // microseconds
  std::size_t failures = 0, unjudged = 0;
  std::size_t good = 0;  // within 5 % of the optimum
  double spread = 0;     // of a point's samples: slowest over fastest, less 1
  double drift = 0;      // of its reference, if it has one
  // What timing a point took, and on average what planning, building and judging one of its choices
  // did; 0: not recorded.
  double attempt_seconds = 0, choice_seconds = 0;
  double predicted_correlation = 0;         // of ranks, with what was measured
  std::vector<double> advised_correlation;  // by reply: of those that it orders
};

constexpr std::size_t kGoals = 3;
constexpr double kWithin[kGoals] = {0.01, 0.05, 0.10};  // of the optimum
constexpr std::size_t kCounted = 1;  // the goal that the protocol counts attempts to
// A space counts if the strategy that is best for it, without advice, needs so many attempts to it.
constexpr double kHard = 20;

struct ArmResult {
  std::string name;
  std::vector<std::size_t> cases;  // that it ran on
  Curves shares;                   // optimum / best so far; 0 as long as nothing was measured
  Draws draws;                     // with advice: the replies for each case; else empty
  // Mean attempts to within a goal, where more than all count as one more than all, and the part of
  // searches that got there.
  Hit hits[kGoals];
  std::vector<double> attempts;  // of each case, likewise, to within 5 %
  std::vector<Interval> band;
  std::optional<CallCosts> costs;  // mean of a search; nothing: nobody was asked
};

struct Comparison {
  std::string arm, against;
  std::size_t spaces = 0, kinds = 0;
  std::vector<Interval> difference;  // of shares, after each number of attempts
  std::vector<double> p;             // sign flip, over kinds, at kShown
  // Of attempts to within 5 % of the optimum, where more than all count as one more than all;
  // nothing where one of the two is an expectation.
  std::optional<Interval> attempts;
  double attempts_p = 1;
};
constexpr std::size_t kShown[] = {1, 2, 4, 8, 16, 32, 64};

// What the protocol of the study asks of proposals: fewer attempts than without them, than with
// spoilt feedback, than by chance. Of spaces together.
struct Hypothesis {
  std::string arm;
  std::vector<const Comparison*> comparisons;
  double p = 1, corrected = 1;  // the largest; by Holm's method
};

struct ReplayGroup {
  std::string name;
  std::vector<std::size_t> cases = {};
  bool with_advice = false;  // somebody was asked about all of them
  std::vector<ArmResult> arms = {};
  std::vector<Comparison> comparisons = {};
};

struct Replayed {
  std::vector<Json> headers;  // in "resumed" those of resumed recordings
  std::vector<Case> cases;
  std::vector<std::string> skipped;  // tables, and why
  // The regions that have advice together, all regions together, each step by itself, and what has
  // sessions with proposals together: all arms of a group ran on the same spaces.
  std::vector<ReplayGroup> groups;
  std::vector<std::string> advisors;   // models and dates; empty: there were no replies
  std::vector<std::string> unadvised;  // cases that no reply is about, if there are replies
  CallCosts proposed;                  // of all sessions
  bool takes_requests = false;         // some of them
  std::vector<std::vector<RequestedValue>> requests;  // of each case
  std::size_t replies = 0, other_replies = 0;         // of cases, and of no case
  std::size_t named_plans = 0, known_plans = 0;       // by replies, and of those the tables have
  double reply_tokens = 0, reply_seconds = 0;         // 0: not recorded
  ReplayOptions options;
};

// As far as the group has the arms; of one space, none.
std::vector<Hypothesis> hypotheses_of(const ReplayGroup& group);

// At least one table with something to search, or an error (bad_input).
// `sessions`: searches that were done, as arms of their own; each of a group whose spaces all have
// some. Those of several models are an error (wrong_usage), as arms of two would look like one, and
// so are those that were allowed fewer attempts than the replay, as they would seem to fail.
Replayed replay(const std::vector<Recording>& recordings, const Replies& replies,
                const ReplayOptions& options, const std::vector<ProposedSession>& sessions = {});

}  // namespace ac::study
