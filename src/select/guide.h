// The advisor's place in a compilation, for one step: which regions it is asked about, and what its
// advice comes to. It stands between planning and selection. Advised candidates are tried in turn
// with those of the cost model's order, so that bad advice costs at most as many attempts again.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "advise/advisor.h"
#include "base/progress.h"
#include "plan/cover.h"
#include "select/phase.h"

namespace ac {

class Guide {
 public:
  // Chooses the regions: see advise/questions.h.
  Guide(const PhasePlan& phase, Advisor& advisor);

  const std::vector<Question>& questions() const { return questions_; }
  // Answers to questions().
  void take(std::vector<Answer> answers);
  // What was advised and what became of it, in the order of asking.
  const std::vector<Advised>& advised() const { return advised_; }

  // Advised plans beyond the bound of a space join it.
  void add_to(Space& space) const;

  // Advised candidates first, third, ... of an order of others.
  void interleave(const Space& space, std::vector<std::size_t>& order) const;
  bool is_thorough(const Space& space, const Candidate& candidate) const;
  // Cuts that the advisor prefers to those that the regions came from.
  std::vector<CoverPart> preferred_parts() const;

  // After candidates of a space have failed: what the advisor would try instead comes next in the
  // order, in turn with the rest of it. Once for each space, and only of those asked about before.
  struct Failure {
    Space* space;
    std::vector<Attempt> attempts;
    std::vector<std::size_t>* order;
    std::size_t next;  // in that order
  };
  void diagnose(const std::vector<Failure>& failures, Progress& progress);

 private:
  struct Guidance {
    std::size_t question = 0;
    std::vector<Candidate> order;
    std::set<std::string> thorough;
    bool all_thorough = false, diagnosed = false;
  };

  static void use(const Advice& advice, Guidance& guidance);
  void record(const Question& question, const Answer& answer, bool diagnosis);
  static void put_next(const Advice& advice, const Failure& failure);

  const PhasePlan& phase_;
  Advisor& advisor_;
  std::vector<Question> questions_;
  std::vector<Advised> advised_;
  std::map<std::string, Guidance> guidance_;                 // by signature of the space
  std::set<std::pair<std::size_t, std::size_t>> preferred_;  // neighbourhood, option
};

// Asks about all steps at once, and says what came of it.
void ask(Advisor& advisor, const std::vector<Guide*>& guides, Progress& progress);

}  // namespace ac
