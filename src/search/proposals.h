// A search beside which somebody proposes transformations who sees what was tried so far: a
// language model, say. What is proposed is a change of one field of one site of a point that was
// measured; it is looked up among the point's neighbours, so that nothing outside the space is ever
// tried.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "search/strategy.h"

namespace ac::search {

std::string value_of(const Field& field);

// "family" is a field of every site.
struct Change {
  std::string site, field, value;
  bool operator==(const Change&) const = default;
};
std::string to_string(const Change& change);
// What leads from one point to another.
std::vector<Change> changes(const PointSpace& space, int from, int to);
// The neighbour of the point that has this and differs least from it in all else; one of those to
// avoid only if there is no other.
std::optional<int> changed(const PointSpace& space, int from, const Change& change,
                           const std::set<int>& avoided = {});
// Whether any point of the space has the site with this value.
bool has_value(const PointSpace& space, const Change& change);

// One attempt of a search.
struct Visit {
  int point = 0;
  int from = -1;  // the point that was changed to get there; -1: the search began there
  PointOutcome outcome;
};

// How much longer a step is with each of its sites, by name, in microseconds.
using SiteTimes = std::map<std::string, double>;

// What a proposer is told.
struct Situation {
  const PointSpace& space;
  const std::vector<Visit>& visits;  // in order
  int from = 0;                      // the point to change
  std::size_t wanted = 0;            // proposals
  // What is told of attempts instead of these visits, for studies: made up, or of another search.
  const Situation* told = nullptr;
  SiteTimes measured = {};  // of the point to change; none: nobody measured them
};

class Proposer {
 public:
  virtual ~Proposer() = default;
  // Points that a change of `from` leads to, best first; none: it knows nothing better.
  virtual std::vector<int> propose(const Situation& situation) = 0;
};

// Of the neighbours that were not tried, any: what proposals are worth that know nothing.
class RandomProposer : public Proposer {
 public:
  explicit RandomProposer(std::uint64_t seed) : random_(seed) {}
  std::vector<int> propose(const Situation& situation) override;

 private:
  Random random_;
};

struct ProposalOptions {
  std::size_t wanted = 4;  // proposals of a call
  std::size_t calls = 16;
  // Measures the sites of a point that was measured as a whole; none: nobody does.
  std::function<SiteTimes(int point)> measure = {};
};

// The proposer and a strategy in turn, the proposer first: it is asked again when all that it
// proposed was tried, about the point that the strategy would change next. The strategy hears of
// everything, and takes what is proposed as a prior. At most half of the attempts are proposals.
class ProposedSearch : public Strategy {
 public:
  ProposedSearch(std::unique_ptr<Strategy> strategy, const PointSpace& space, Proposer& proposer,
                 const ProposalOptions& options);
  std::optional<int> propose() override;
  void hear(int point, const PointOutcome& outcome) override;

 private:
  bool is_tried(int point) const { return outcomes_.count(point) > 0; }
  std::optional<int> from_strategy();
  std::optional<int> from_proposer();
  int origin() const;

  const std::unique_ptr<Strategy> strategy_;
  const PointSpace& space_;
  Proposer& proposer_;
  const ProposalOptions options_;
  std::size_t calls_ = 0, next_ = 0;
  std::vector<int> proposed_;
  int proposed_from_ = -1;
  bool proposer_is_due_ = true;
  std::optional<int> asked_;  // by the strategy
  int under_ = -1;            // what the last proposal changes
  std::vector<Visit> visits_;
  std::unordered_map<int, PointOutcome> outcomes_;
};

}  // namespace ac::search
