// Trials of plans of every kernel family, over the family models: as few as show every kind of
// plan, every value of an op's fields, or every value of a plan's fields.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "lab/lab.h"
#include "plan/space.h"
#include "tests/device/family_models.h"

namespace ac::test {

// How many plans: one of each family; of each kind, with every value of an op's fields; or also
// with every value that a field of the plan can have.
enum class Breadth { families, kinds, fields };

struct FamilyTrial {
  std::string family, what;
  Request request;
  std::vector<Request> confirmation = {};  // once it was chosen
  bool is_special = false;                 // was made to show what few plans and sizes do
};

// With what chooses the token.
std::vector<std::string> all_families();

// Takes candidates of spaces, one space after the other, until each aspect of their plans has been
// taken once: every new plan is the one that shows most that no other did.
class Chooser {
 public:
  Chooser(const DeviceInfo& device, Breadth breadth) : device_(device), breadth_(breadth) {}

  void add(const FamilyModel& model);

  const std::vector<FamilyTrial>& trials() const { return trials_; }
  // Of any device, with why one of them is not for this one.
  const std::map<std::string, std::string>& kinds() const { return kinds_; }
  bool has(const std::string& aspect) const { return seen_.contains(aspect); }

 private:
  bool has_all_families() const;
  void note_kinds(const Space& space);
  std::vector<std::string> aspects_of_op(const FamilyModel& model,
                                         const Candidate& candidate) const;
  void choose(const FamilyModel& model, const StepGraph& step, const std::optional<Wanted>& wanted,
              const Space& space);

  const DeviceInfo& device_;
  const Breadth breadth_;
  std::set<std::string> seen_;
  std::map<std::string, std::string> kinds_;
  std::vector<FamilyTrial> trials_;
};

// What goes without a plan: fallbacks, and what ends a step, draws a token or masks logits.
std::vector<FamilyTrial> trials_without_plans(Breadth breadth);

}  // namespace ac::test
