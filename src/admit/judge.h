// Admission on this machine: a trial with the built kernels that it names. What a kernel breaks, it
// breaks in this process: call these in a child (base/child.h).
#pragma once

#include <filesystem>
#include <map>

#include "admit/trial.h"
#include "device/device.h"

namespace ac {

// By the entry of the kernel in them.
using KernelFiles = std::map<std::string, std::filesystem::path>;

// On the host device, with threads and blocks in several orders. `files` are shared objects, for a
// trial of races those built with HostChecks::races.
validate::Verdict judge(const Trial& trial, const KernelFiles& files);

// On a GPU: every storage is a copy between guards of so many bytes in the device's memory. With
// none, a tool that watches memory (compute-sanitizer) sees who reads behind it. `files` are
// cubins.
constexpr std::size_t kGuardBytes = 4096;
validate::Verdict judge_on(Device& device, const Trial& trial, const KernelFiles& files,
                           std::size_t guard = kGuardBytes);

}  // namespace ac
