// A search strategy proposes the next point to try and hears what became of it. What is proposed
// was never tried before; failures count as attempts. The same seed gives the same search.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "search/point_space.h"

namespace ac::search {

enum class Verdict : std::uint8_t { measured, illegal, uncompilable, wrong, failed };
std::string_view to_string(Verdict verdict);
std::optional<Verdict> verdict_from(std::string_view name);

struct PointOutcome {
  Verdict verdict = Verdict::measured;
  double microseconds = 0;  // if it was measured
  std::string why = {};     // if it was not, as far as is known: any text of a tool
  bool ok() const { return verdict == Verdict::measured; }
  bool operator==(const PointOutcome&) const = default;
};

// What somebody who does not search thinks of the points: an order of some of them, best first, and
// how much each deserves to be tried (by default, the less the later it comes).
struct Ranking {
  std::vector<int> order;
  std::vector<double> weights;  // none, or one for each

  // From ids; those that the space does not have, and repeated ones, are left out.
  static Ranking of(const PointSpace& space, const std::vector<std::string>& ids,
                    const std::vector<double>& weights = {});
  double weight(std::size_t rank) const;
};

class Strategy {
 public:
  virtual ~Strategy() = default;
  // Nothing if all that the strategy can reach was tried.
  virtual std::optional<int> propose() = 0;
  // Of what was proposed, and of what others have tried.
  virtual void hear(int point, const PointOutcome& outcome) = 0;
  // What somebody thinks of the points, now that some were tried; for those that take advice.
  virtual void recommend(const Ranking&) {}
  // The point that the last proposal is a change of, for those that go from point to point.
  virtual std::optional<int> changes_now() const { return std::nullopt; }
};

struct StrategyInfo {
  std::string_view name, meaning;
  bool uses_seed = false;   // the others do the same whatever the seed is
  bool uses_prior = false;  // takes advice as a prior
};
std::span<const StrategyInfo> strategies();

// An unknown name is an error (wrong_usage) naming those that are known. `prior`: for those that
// take advice into their own choice of what to try. The space must outlive the strategy.
std::unique_ptr<Strategy> make_strategy(std::string_view name, const PointSpace& space,
                                        std::uint64_t seed, const Ranking& prior = {});

// Advice and a strategy in turn, advice first. The strategy proposes what it would propose without
// advice: what it asks for that was tried already, it is told of at no cost. So it never needs more
// than twice the attempts that it needs alone.
class RankedStrategy : public Strategy {
 public:
  RankedStrategy(std::unique_ptr<Strategy> strategy, Ranking advice);
  std::optional<int> propose() override;
  void hear(int point, const PointOutcome& outcome) override;

 private:
  std::optional<int> from_advice();
  std::optional<int> from_strategy();

  std::unique_ptr<Strategy> strategy_;
  const Ranking advice_;
  std::size_t next_ = 0;  // in the advice
  bool advice_is_due_ = true;
  std::optional<int> asked_;  // by the strategy
  std::unordered_map<int, PointOutcome> known_;
};

// What strategies share: which points were tried.
class Explorer : public Strategy {
 public:
  explicit Explorer(const PointSpace& space) : space_(space) {}
  void hear(int point, const PointOutcome& outcome) override { heard_[point] = outcome; }

 protected:
  bool is_tried(int point) const { return heard_.count(point) > 0; }

  const PointSpace& space_;
  std::unordered_map<int, PointOutcome> heard_;
};

}  // namespace ac::search
