// Kernels of this test's own that faults are planted in: what each computes, and with which plan.
// The compiler makes their sources and trials, and judges them, as it does with candidates of its
// own.
#pragma once

#include <string>
#include <vector>

#include "tests/device/admission.h"

namespace ac::kernels {

std::vector<std::string> own_case_names();
test::Admission admission_of_own_case(const std::string& name);

}  // namespace ac::kernels
