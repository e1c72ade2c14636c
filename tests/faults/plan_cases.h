// Plans of the compiler that faults are planted in, beside the cases of cases.h: they are made and
// judged as a compilation does it.
#pragma once

#include <string>
#include <vector>

#include "tests/device/admission.h"

namespace ac::kernels {

std::vector<std::string> plan_case_names();
test::Admission admission_of_case(const std::string& name);

}  // namespace ac::kernels
