// Plans of the compiler that faults are planted in, beside the cases of cases.h: they are made and
// judged as a compilation does it.
#pragma once

#include <string>
#include <vector>

#include "compile/realise.h"

namespace ac::kernels {

std::vector<std::string> plan_case_names();
Request request_of_case(const std::string& name);

}  // namespace ac::kernels
