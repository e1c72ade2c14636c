// The trials that mutants are judged by: of plans of every kernel family over the family models, of
// the cases that faults are planted in, and of what none of those models has (scales other than 1,
// maxima below 0, maps that do not keep 0).
#pragma once

#include <vector>

#include "tests/device/family_trials.h"

namespace ac::mutants {

std::vector<test::FamilyTrial> all_trials();

// Parts of these: plans and sizes of products; of attention; of what goes by rows, and of what
// chooses a token.
std::vector<test::FamilyTrial> trials_of_products();
std::vector<test::FamilyTrial> trials_of_attention();
std::vector<test::FamilyTrial> trials_of_rows();

}  // namespace ac::mutants
