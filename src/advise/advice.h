// Stage 6, back from the advisor: what a reply comes to. Replies are data from outside: each item
// of one is checked against the enumerated space, and ends accepted or rejected with a reason.
// Nothing that a reply holds can name a plan that the planner did not enumerate, or make the gate
// look less closely.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "advise/question.h"
#include "base/json.h"

namespace ac {

struct AuditItem {
  std::string item;  // "order[2]"
  std::string said;  // the item itself, cut and made fit to be shown
  bool accepted = false;
  std::string reason;  // why not; of what is accepted, what it comes to
};

struct Advice {
  std::string label;
  std::vector<Candidate> order;    // to be tried first, best first, each once
  std::set<std::string> thorough;  // ids of candidates that shall be validated more
  bool all_thorough = false;
  int preferred = -1;     // of the question's fusions
  std::set<int> avoided;  // likewise
  std::vector<AuditItem> audit;
};

// Reads any bytes. A reply that holds no JSON object of ours gives an empty advice with one
// rejected item that says so.
Advice parse_advice(std::string_view reply, const Question& question);

Json to_json(const std::vector<AuditItem>& audit);

}  // namespace ac
