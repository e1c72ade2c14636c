// What a plan asks of a device, and the roofline that ranks plans by it: a prediction, no
// measurement.
#pragma once

#include <cstdint>
#include <string_view>

#include "device/device_info.h"

namespace ac {

// What a plan asks of an SM, and how it uses the memory bus. Its work comes in units (weight rows
// of a warp, rows of a team, vectors of a thread) that blocks take in turns.
struct Footprint {
  int threads = 0;        // a block
  int shared_bytes = 0;   // a block, the static part included
  int registers = 0;      // a thread needs at least, estimated
  int blocks_per_sm = 0;  // that the plan aims at
  long long grid = 0;
  double units = 1;           // in all
  double units_at_once = 1;   // of a block
  double unit_in_flight = 0;  // bytes of loads under way for one unit
  double unit_seconds = 0;    // between one unit and the next, when nothing is under way
  double block_seconds = 0;   // before a block begins with the first
  double starts = 1;          // blocks wait for others to end; 0: others work meanwhile
  double finish_seconds = 0;  // after the last
  double slowdown = 1;        // of all loads
  double flops = 0;           // a second that arithmetic reaches; 0: the device's plain units
};

constexpr int kBaseRegisters = 32;  // of a thread of most kernels, besides what it holds

// What holds a kernel up, by the cost model.
enum class Limit : std::uint8_t { launch, memory, latency, compute };
std::string_view to_string(Limit limit);

// How likely a candidate is not to work out, for whoever orders attempts.
enum class Risk : std::uint8_t { low, medium, high };
std::string_view to_string(Risk risk);

struct Cost {
  double microseconds = 0;
  double bytes = 0, flops = 0;
  double occupancy = 0;  // resident threads of those that an SM can have
  Limit limit = Limit::memory;
  Risk risk = Risk::low;
};

// With the share of the roofline that loads in flight and occupancy allow.
Cost roofline(const Footprint& need, double bytes, double flops, const DeviceInfo& device);
template <class Task>
Cost roofline(const Task& task, const typename Task::Plan& plan, const DeviceInfo& device) {
  return roofline(task.footprint(plan, device), task.bytes(), task.flops(), device);
}

// What the kernel promises the compiler must exist on an SM: the first that does not, or null.
const char* why_too_much(const Footprint& need, const DeviceInfo& device);

}  // namespace ac
