#include <algorithm>
#include <cmath>

#include "plan/plans.h"
#include "plan/space.h"

namespace ac {
namespace {

// Blocks that an SM really has at once.
int resident_blocks(const Footprint& need, const DeviceInfo& device) {
  constexpr int kReserved = 1024;  // shared memory that each block loses to the system
  int blocks = std::min({need.blocks_per_sm, device.blocks, device.threads / need.threads,
                         device.registers / (need.threads * need.registers)});
  if (need.shared_bytes > 0)
    blocks = std::min(blocks, (device.shared_bytes) / (need.shared_bytes + kReserved));
  return std::max(blocks, 1);
}

}  // namespace

Cost predict(const Choice& choice, const DeviceInfo& device) {
  const Footprint need = footprint(choice, device);
  Cost cost;
  cost.bytes = bytes_of(choice);
  cost.flops = flops_of(choice);
  const int resident = resident_blocks(need, device);
  cost.occupancy = double(resident) * need.threads / device.threads;

  // Little's law: the loads of all SMs under way, over what the bus takes in one latency.
  const double sms = device.multiprocessors;
  const double blocks = std::min<double>(resident, std::ceil(double(need.grid) / sms));
  const double busy_sms = std::min<double>(sms, double(need.grid));
  const double in_flight = std::min(busy_sms * blocks * need.in_flight, cost.bytes);
  const double wanted = device.bandwidth * device.latency;
  const double share = in_flight / std::hypot(in_flight, wanted);
  const double memory = cost.bytes / (device.bandwidth * std::max(share, 1e-4));
  const double compute = cost.flops / device.flops;

  // Blocks beyond those that are resident start, and read again what all share, one after another.
  const double generations = std::ceil(double(need.grid) / (double(resident) * sms));
  const double starts = (generations - 1) * device.latency;
  const double shared_reads =
      need.rounds_bytes * double(need.grid) / (4 * device.bandwidth);  // from L2
  // The last round is as long as the others, full or not.
  const double tail = need.waves > 1 ? device.latency / 2 : 0;

  const double body = std::max(memory, compute) + starts + shared_reads + tail;
  cost.microseconds = (device.launch + body) * 1e6;
  cost.limit = body < device.launch ? Limit::launch
               : compute > memory   ? Limit::compute
               : share < 0.7        ? Limit::latency
                                    : Limit::memory;
  return cost;
}

Risk risk_of(const Choice& choice, const DeviceInfo& device) {
  const Footprint need = footprint(choice, device);
  // Compilers need a few registers more than any estimate, and spill when there are none.
  const double registers =
      double(need.registers) * need.threads * need.blocks_per_sm / device.registers;
  const double shared = double(need.shared_bytes) / std::max(1, device.max_shared_bytes);
  if (registers > 0.85 || shared > 0.9) return Risk::high;
  return registers > 0.6 || shared > 0.6 ? Risk::medium : Risk::low;
}

}  // namespace ac
