// What was tried for each region of a step, what was selected, and why: the record of stage 9.
#pragma once

#include "advise/advisor.h"
#include "lab/lab.h"

namespace ac {

// What became of one candidate.
struct Attempt {
  std::string candidate;
  double predicted = 0;            // microseconds
  std::optional<double> measured;  // microseconds, in a race with the others of the region
  Outcome outcome;
};

// What the final admission said of what was chosen.
struct Confirmed {
  std::string what;  // a candidate, or the fallback of an op
  Purpose purpose = Purpose::as_used;
  Outcome outcome;
};

// What became of one region and all that are equal to it.
struct Selection {
  std::string signature;
  std::vector<std::string> ops;
  Category category = Category::mixed;
  bool argmax = false;
  int uses = 0;           // equal regions in the step
  std::string candidate;  // empty: the fallback
  std::string family;     // "fallback" there
  double predicted = 0;
  std::optional<double> measured, fallback_measured;
  std::string why_unmeasured;  // if a race was wanted and none took place
  Amount work;                 // of one
  std::vector<std::string> kernels;
  std::vector<Attempt> attempts;
  std::vector<Json> trials;  // of what was selected
  std::vector<Confirmed> confirmed;
  std::size_t enumerated = 0, legal = 0;
  std::map<std::string, std::size_t> illegal;
  std::vector<Refusal> refusals;
  // If it differs by context: the candidate from so many tokens on.
  std::vector<std::pair<std::int64_t, std::string>> by_context;
};

// For `compile --dump selection`.
std::string print(const std::vector<Selection>& selections);

// A region of a cut of the step that was tried, and given up for another cut.
struct Abandoned {
  std::string signature;
  std::vector<std::string> ops;
  std::vector<Attempt> attempts;
};

// What an advisor was asked about one region, and what became of its reply.
struct Advised {
  std::string signature, ops;
  std::string why;         // it was asked
  double share = 0;        // of the step's predicted time
  bool diagnosis = false;  // after candidates had failed
  std::string prompt_hash;
  Reply reply;
  std::string label;
  std::vector<std::string> order;     // ids of candidates
  std::vector<std::string> thorough;  // those that are validated more; "*": all
  std::vector<AuditItem> audit;
};

}  // namespace ac
