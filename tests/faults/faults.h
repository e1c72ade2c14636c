// Faults for the admission gate to find: each is a small edit of a kernel header, and the cases
// (cases.h, plan_cases.h) whose kernels the edit changes. Every case of a fault must be rejected,
// except for those that are recorded as survivors.
#pragma once

#include <string>
#include <vector>

namespace ac::kernels {

struct Edit {
  std::string find, replace;  // `find` must occur once
};

struct Fault {
  std::string name;
  std::string file;
  std::vector<Edit> edits;
  std::vector<std::string> cases;
  bool seen_late = false;  // by the final admission alone
};

// A fault that the gate admits in one of its cases, and why it does.
struct Survivor {
  std::string fault, case_name, why;
};

const std::vector<Fault>& faults();
const std::vector<Survivor>& survivors();
// Of these, those in the kernel that ends a step, and those in kernels of the compiler's plans.
std::vector<Fault> advance_faults();
std::vector<Fault> plan_faults();
std::vector<Fault> layers_faults();
std::vector<Fault> family_faults();
std::vector<Fault> token_faults();
std::vector<Fault> late_faults();

}  // namespace ac::kernels
