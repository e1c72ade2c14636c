// The memory and parallel sub-planners: for each family, the ways in which a kernel may hold what
// it loads (ring, depth, vector width, shared memory) times the ways in which it may be spread over
// the device (threads, rows, split, grid). Products are whole: what does not work together or on
// the device is counted by its reason, not left out in silence.
#pragma once

#include <string>
#include <vector>

#include "device/device_info.h"
#include "plan/task.h"

namespace ac {

std::vector<kernels::GemvPlan> enumerate_plans(const GemvTask& task);
std::vector<kernels::GemmPlan> enumerate_plans(const GemmTask& task);
std::vector<kernels::MmaGemmPlan> enumerate_plans(const MmaGemmTask& task);
std::vector<kernels::TmaGemmPlan> enumerate_plans(const TmaGemmTask& task);
std::vector<LibraryPlan> enumerate_plans(const LibraryTask& task);
std::vector<kernels::PrefillAttentionPlan> enumerate_plans(const PrefillAttentionTask& task);
std::vector<QkvAttentionPlan> enumerate_plans(const QkvAttentionTask& task);
std::vector<kernels::AttentionPlan> enumerate_plans(const AttentionTask& task);
std::vector<kernels::NormPlan> enumerate_plans(const NormTask& task);
std::vector<kernels::SoftmaxPlan> enumerate_plans(const SoftmaxTask& task);
std::vector<kernels::ReductionPlan> enumerate_plans(const ReductionTask& task);
std::vector<kernels::ElementwisePlan> enumerate_plans(const ElementwiseTask& task);
std::vector<kernels::EmbeddingPlan> enumerate_plans(const EmbeddingTask& task);
std::vector<kernels::SamplingPlan> enumerate_plans(const SamplingTask& task);

// What a plan asks of an SM, and how it uses the memory bus. Its work comes in units (weight rows
// of a warp, rows of a team, vectors of a thread) that blocks take in turns.
struct Footprint {
  int threads = 0;        // a block
  int shared_bytes = 0;   // a block, the static part included
  int registers = 0;      // a thread needs at least, estimated
  int blocks_per_sm = 0;  // that the plan aims at
  long long grid = 0;
  double units = 1;                // in all
  double units_at_once = 1;        // of a block
  double unit_in_flight = 0;       // bytes of loads under way for one unit
  double unit_seconds = 0;         // between one unit and the next, when nothing is under way
  double block_seconds = 0;        // before a block begins with the first
  double start_seconds = 0.95e-6;  // of a block where another has ended: fitted to GEMVs
  double finish_seconds = 0;       // after the last
  double slowdown = 1;             // of all loads
  double flops = 0;                // a second that arithmetic reaches; 0: the device's plain units
};

// The first reason why the kernel cannot be, on this device, or null.
const char* why_illegal(const Choice& choice, const DeviceInfo& device);
Footprint footprint(const Choice& choice, const DeviceInfo& device);
double bytes_of(const Choice& choice);
double flops_of(const Choice& choice);

}  // namespace ac
