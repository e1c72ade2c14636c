#include "admit/judge.h"

#include "device/host.h"

namespace ac {

validate::Verdict judge(const Trial& trial,
                        const std::map<std::string, std::filesystem::path>& files) {
  std::map<std::string, HostKernel> kernels;
  for (const Launch& launch : trial.launches)
    if (kernels.count(launch.kernel) == 0)
      kernels.emplace(launch.kernel, HostKernel(files.at(launch.kernel), launch.kernel));
  const LaunchKernel run = [&](const Launch& launch, std::int64_t tokens,
                               std::span<const std::byte> params, unsigned order) {
    const auto size = [&](std::size_t axis) {
      return static_cast<unsigned>(launch.grid[axis].at(tokens));
    };
    constexpr kernels::Schedule schedules[] = {
        kernels::Schedule::forward, kernels::Schedule::reverse, kernels::Schedule::shuffled};
    const kernels::HostLaunch shape{
        .grid = {size(0), size(1), size(2)},
        .block = {static_cast<unsigned>(launch.threads)},
        .shared_bytes = static_cast<std::size_t>(launch.shared_bytes),
        .schedule = schedules[order % 3],
        .seed = order + 1,
        // A kernel that reads the position early may find that of the token before.
        .relaxed_lag = static_cast<int>(order % 2)};
    return kernels.at(launch.kernel).launch(shape, params).error;
  };
  return run_trial(trial, run);
}

}  // namespace ac
