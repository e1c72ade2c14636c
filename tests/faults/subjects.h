// Cases as subjects of the gate: the truth from a graph, the launch through the host device.
#pragma once

#include <string>

#include "tests/faults/cases.h"
#include "validate/subject.h"

namespace ac::kernels {

// The subject of the case of that name. `kernel` is the address of its kernel; with `check_races`
// it was compiled with -fsanitize=thread.
validate::Subject subject_of_case(const std::string& name, void* kernel, bool check_races);

}  // namespace ac::kernels
