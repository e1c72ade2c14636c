#include "families/cost.h"

#include <algorithm>
#include <cmath>

namespace ac {
namespace {

constexpr int kMaxThreads = 1024;

// Blocks that an SM really has at once.
int resident_blocks(const Footprint& need, const DeviceInfo& device) {
  constexpr int kReserved = 1024;  // shared memory that each block loses to the system
  int blocks = std::min({need.blocks_per_sm, device.blocks, device.threads / need.threads,
                         device.registers / (need.threads * need.registers)});
  if (need.shared_bytes > 0)
    blocks = std::min(blocks, (device.shared_bytes) / (need.shared_bytes + kReserved));
  return std::max(blocks, 1);
}

Risk risk_of(const Footprint& need, const DeviceInfo& device) {
  // Compilers need a few registers more than any estimate, and spill when there are none.
  const double registers =
      double(need.registers) * need.threads * need.blocks_per_sm / device.registers;
  const double shared = double(need.shared_bytes) / std::max(1, device.max_shared_bytes);
  if (registers > 0.85 || shared > 0.9) return Risk::high;
  return registers > 0.6 || shared > 0.6 ? Risk::medium : Risk::low;
}

}  // namespace

Cost roofline(const Footprint& need, double bytes, double flops, const DeviceInfo& device) {
  Cost cost;
  cost.bytes = bytes;
  cost.flops = flops;
  cost.risk = risk_of(need, device);
  const int resident = resident_blocks(need, device);
  cost.occupancy = double(resident) * need.threads / device.threads;

  const double sms = device.multiprocessors;
  const double slots = std::min<double>(double(need.grid), sms * resident) * need.units_at_once;
  const double rounds = std::ceil(need.units / slots);
  const double last = need.units - (rounds - 1) * slots;  // units of the last round
  // Little's law: the bytes under way, of what the bus takes in one latency.
  const double wanted = device.bandwidth * device.latency;
  const auto share = [&](double units) {
    const double in_flight = std::min(units * need.unit_in_flight, cost.bytes);
    return std::max(in_flight / std::hypot(in_flight, wanted), 1e-6);
  };
  // Blocks drift apart, so that the last round is not quite by itself.
  const double alone = device.constants().gemv.alone;
  const double busy = std::min(slots, need.units), rest = last / need.units;
  const double memory = need.slowdown * cost.bytes / device.bandwidth *
                        ((1 - alone * rest) / share(busy) + alone * rest / share(last));
  const double compute = cost.flops / (need.flops > 0 ? need.flops : device.flops);

  // Blocks beyond those that are resident start one after another.
  const double generations = std::max(1.0, double(need.grid) / (sms * resident));
  const double starts = (generations - 1) * need.starts * device.constants().gemv.block_start +
                        need.block_seconds * need.blocks_per_sm * generations;
  const double body = std::max(memory, compute) + starts + need.finish_seconds +
                      need.unit_seconds * std::min(rounds, need.units);
  cost.microseconds = (device.launch + body) * 1e6;
  cost.limit = body < device.launch ? Limit::launch
               : compute > memory   ? Limit::compute
               : share(busy) < 0.7  ? Limit::latency
                                    : Limit::memory;
  return cost;
}

const char* why_too_much(const Footprint& need, const DeviceInfo& device) {
  if (need.threads > kMaxThreads || need.threads * need.blocks_per_sm > device.threads)
    return "more resident threads than an SM has";
  if (need.blocks_per_sm > device.blocks) return "more resident blocks than an SM has";
  if (need.blocks_per_sm * need.threads * need.registers > device.registers)
    return "more registers than an SM has for the resident threads";
  if (need.shared_bytes > device.max_shared_bytes) return "too much shared memory";
  return nullptr;
}

std::string_view to_string(Limit limit) {
  constexpr std::string_view names[] = {"launch", "memory", "latency", "compute"};
  return names[static_cast<int>(limit)];
}
std::string_view to_string(Risk risk) {
  constexpr std::string_view names[] = {"low", "medium", "high"};
  return names[static_cast<int>(risk)];
}

}  // namespace ac
