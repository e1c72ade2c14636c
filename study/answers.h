// What a table answers to a search: of a listed space, what was timed. Of a step's schedules that
// are too many to list, what was timed and, of all others, what the model that was fitted to them
// says, if that is good enough.
#pragma once

#include <optional>

#include "study/fitted.h"

namespace ac::study {

class Answers {
 public:
  // The table must outlive it. A step whose model errs too much is an error (bad_input) that says
  // by how much. `recorded_only`: then no model is asked, and the schedules that were timed are a
  // listed space.
  Answers(const TimedTable& table, bool recorded_only);

  // For one search: listed spaces are shared.
  std::shared_ptr<const search::PointSpace> space() const;
  search::PointOutcome outcome(const search::PointSpace& space, int point) const;
  const FittedStep* model() const { return model_ ? &*model_ : nullptr; }

 private:
  const TimedTable& table_;
  std::shared_ptr<const search::ListedSpace> listed_;
  std::optional<FittedStep> model_;
};

}  // namespace ac::study
