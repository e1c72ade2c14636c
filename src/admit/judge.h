// Admission on this machine: a trial with the built kernels that it names, on the host device.
#pragma once

#include <filesystem>
#include <map>

#include "admit/trial.h"

namespace ac {

// `files`: shared objects, by the entry of the kernel in them. What a kernel breaks, it breaks in
// this process: call it in a child (base/child.h).
validate::Verdict judge(const Trial& trial,
                        const std::map<std::string, std::filesystem::path>& files);

}  // namespace ac
