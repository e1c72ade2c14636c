#include "admit/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "device/host.h"
#include "device/host_product.h"
#include "device/launcher.h"

namespace ac {
namespace {

constexpr std::byte kGuardByte{0xa5};
constexpr std::size_t kPiece = std::size_t{8} << 20;  // of what comes back from a device

// The copy of one buffer on a device.
class Mirror {
 public:
  Mirror(Device& device, std::size_t bytes, std::size_t guard)
      : device_(device),
        bytes_(bytes),
        guard_(guard),
        memory_(device.allocate(bytes + 2 * guard)) {}

  std::size_t bytes() const { return bytes_; }
  std::byte* address() const { return static_cast<std::byte*>(memory_->address()) + guard_; }

  void load(std::span<const std::byte> from) {
    device_.fill(memory_->address(), guard_, static_cast<unsigned char>(kGuardByte));
    device_.fill(address() + bytes_, guard_, static_cast<unsigned char>(kGuardByte));
    device_.upload(address(), from);
  }
  // Whether the guards are whole. Weights come to hundreds of megabytes, and seldom change: what
  // is as it was is not written.
  bool store(std::span<std::byte> to, Device::Memory& staging, Device::Mark& arrived) const {
    const auto piece = [&](const std::byte* from, std::size_t bytes) {
      device_.download_later(staging.address(), from, bytes);
      arrived.set(), arrived.wait();
      return std::span(static_cast<const std::byte*>(staging.address()), bytes);
    };
    for (std::size_t at = 0; at < bytes_; at += kPiece) {
      const auto now = piece(address() + at, std::min(kPiece, bytes_ - at));
      if (std::memcmp(to.data() + at, now.data(), now.size()) != 0)
        std::memcpy(to.data() + at, now.data(), now.size());
    }
    const auto is_whole = [&](const std::byte* guard) {
      return std::ranges::all_of(piece(guard, guard_),
                                 [](std::byte byte) { return byte == kGuardByte; });
    };
    return guard_ == 0 || (is_whole(address() - guard_) && is_whole(address() + bytes_));
  }

 private:
  Device& device_;
  std::size_t bytes_, guard_;
  std::unique_ptr<Device::Memory> memory_;
};

// Places, each once: rows share their weights.
struct Distinct {
  explicit Distinct(const std::vector<std::span<std::byte>>& all) {
    for (const std::span<std::byte>& place : all) {
      const auto same = std::ranges::find_if(places, [&](const std::span<std::byte>& one) {
        return one.data() == place.data() && one.size() == place.size();
      });
      which.push_back(static_cast<std::size_t>(same - places.begin()));
      if (same == places.end()) places.push_back(place);
    }
  }
  std::vector<std::span<std::byte>> places;
  std::vector<std::size_t> which;  // of these, by place
};

std::vector<std::vector<void*>> by_row(const Trial& trial, const std::vector<void*>& addresses) {
  std::vector<std::vector<void*>> rows;
  const std::size_t each = trial.buffers.size();
  for (std::size_t at = 0; at < addresses.size(); at += each)
    rows.emplace_back(addresses.begin() + static_cast<std::ptrdiff_t>(at),
                      addresses.begin() + static_cast<std::ptrdiff_t>(at + each));
  return rows;
}

void launch_trial(const Trial& trial, const std::vector<void*>& addresses, const EncodeMap& encode,
                  const RunLaunch& run) {
  if (trial.rows == 1) return launch_all(trial.launches, trial.tokens, addresses, encode, run);
  for (const Launch& launch : trial.launches)
    run(launch, bind_rows(launch, by_row(trial, addresses), encode));
}

}  // namespace

validate::Verdict judge(const Trial& trial, const KernelFiles& files) {
  std::map<std::string, HostKernel> kernels;
  for (const Launch* launch : trial.all_launches())
    if (!launch->product && kernels.count(launch->kernel) == 0)
      kernels.emplace(launch->kernel, HostKernel(files.at(launch->kernel), launch->kernel));
  return run_trial(trial,
                   [&](const Trial& at, const std::vector<std::span<std::byte>>& places,
                       unsigned order) -> std::string {
                     using kernels::Schedule;
                     constexpr Schedule schedules[] = {Schedule::forward, Schedule::reverse,
                                                       Schedule::shuffled, Schedule::ahead};
                     std::vector<void*> addresses;
                     for (const std::span<std::byte>& place : places)
                       addresses.push_back(place.data());
                     std::string error;
                     launch_trial(
                         at, addresses, encode_map_on_host,
                         [&](const Launch& launch, std::span<const std::byte> params) {
                           if (!error.empty()) return;
                           if (launch.product) return multiply_on_host(*launch.product, params);
                           const HostKernel& kernel = kernels.at(launch.kernel);
                           const auto grid = [&](std::size_t axis) {
                             return static_cast<unsigned>(axis == 2 && launch.rows > 1
                                                              ? at.rows
                                                              : launch.grid[axis].at(at.tokens));
                           };
                           const kernels::HostLaunch shape{
                               .grid = {grid(0), grid(1), grid(2)},
                               .block = {static_cast<unsigned>(launch.threads)},
                               .shared_bytes = static_cast<std::size_t>(launch.shared_bytes),
                               .schedule = schedules[order % 4],
                               .seed = order + 1,
                               .copies_at_once = order % 3 == 1,
                               .check_races = trial.purpose == Purpose::races,
                               .must_wait = true,
                               // A kernel that reads the position early may find that of the
                               // token before.
                               .relaxed_lag = static_cast<int>(order % 2)};
                           error = kernel.launch(shape, params).error;
                         });
                     return error;
                   });
}

validate::Verdict judge_on(Device& device, const Trial& trial, const KernelFiles& files,
                           std::size_t guard) {
  Launcher launcher(device);
  for (const Launch* launch : trial.all_launches()) launcher.add(*launch, files);
  std::vector<Mirror> mirrors;
  const auto staging = device.allocate_staging(std::max(kPiece, guard));
  const auto arrived = device.make_mark();
  return run_trial(trial,
                   [&](const Trial& at, const std::vector<std::span<std::byte>>& places,
                       unsigned) -> std::string {
                     const Distinct distinct(places);
                     const bool fits = std::ranges::equal(
                         mirrors, distinct.places, {}, &Mirror::bytes, &std::span<std::byte>::size);
                     if (!fits) mirrors.clear();
                     if (mirrors.empty())
                       for (const std::span<std::byte>& place : distinct.places)
                         mirrors.emplace_back(device, place.size(), guard);
                     for (std::size_t i = 0; i < mirrors.size(); ++i)
                       mirrors[i].load(distinct.places[i]);
                     std::vector<void*> addresses;
                     for (const std::size_t i : distinct.which)
                       addresses.push_back(mirrors[i].address());
                     if (at.rows == 1)
                       launcher.launch(at.launches, at.tokens, addresses);
                     else
                       for (const Launch& launch : at.launches)
                         launcher.launch_rows(launch, by_row(at, addresses));
                     device.synchronize();
                     for (std::size_t i = 0; i < mirrors.size(); ++i)
                       if (!mirrors[i].store(distinct.places[i], *staging, *arrived))
                         return fmt::format(
                             "it wrote outside of the buffer {} of the launch",
                             std::ranges::find(distinct.which, i) - distinct.which.begin());
                     return {};
                   });
}

}  // namespace ac
