// What a kernel family is: a kernel template that can compute some regions, and all that the
// compiler must know of it. Each has a module of its own, NAME.h and NAME.cc, and a place in the
// list (list.h). What it is asked to compute is a Task: its Op, and the sizes of the one
// problem; with a Plan, a task is an implementation. Which values of the region are the operands is
// no part of a task, so that equal regions share their tasks.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "device/device_info.h"
#include "families/cost.h"
#include "families/lowering.h"

namespace ac {

// Blocks that share the work in a trial: few, so that each has several turns, and more than one.
constexpr int kTrialProcessors = 2;
// Multiprocessors of a device that has as many as any plan wants.
constexpr int kAnyMultiprocessors = 1 << 20;
// Elements of a trial's caches at most: more keys than they hold are not judged.
constexpr std::int64_t kMostCached = 2'500'000;
// Heads of keys and values that show how blocks share them.
constexpr std::int64_t kFewHeads = 2;

// What of a plan says how large a trial must be for everything in it to happen, and what else the
// gate must know of its kernels. Every family says all of it.
struct Extent {
  // Outputs of one block, and blocks that run at once: a trial has more rows than these, with the
  // real tail.
  std::int64_t block = 64, at_once = 1;
  std::int64_t tokens = 0;  // of one block; 0: each by itself
  std::int64_t group = 1;   // blocks of tokens that go together through the rows
  // Cached keys that a warp or block takes at once, and those after which all places have been
  // used, splits, warps and the ring's slots: some are used again. 0: there are none.
  std::int64_t key_tile = 0, round = 0;
  std::int64_t kv_heads = std::numeric_limits<std::int64_t>::max();  // that are enough
  int layers = 0;               // of a region of layers, so many are enough
  bool spreads = false;         // as Trial::spreads
  bool rounds_weights = false;  // as Trial::rounds_weights
  // Of a library that is judged itself: so many tokens that it takes the algorithm it would.
  std::int64_t library_tokens = 0;
};

template <class Task>
struct Matched {
  Task task;
  typename Task::Operands operands;  // a value may be a view, unless its place says otherwise; -1
                                     // stands for none
};
template <class Task>
using Match = std::variant<Matched<Task>, std::string>;  // or why not

// Nothing of this has a default: a family that lacks something does not compile. One promise is
// made by having more: a family that gives a token the same bits whatever is computed with it has
// `alone(plan)`, the plan for one token, and its plans have `order(op, k)`, what decides in which
// order a token's sums are made. The gate holds it to the first, order_of() (list.h) goes by the
// second.
template <class Task>
concept KernelFamily = requires(const Task& task, const typename Task::Plan& plan,
                                const typename Task::Operands& operands, const DeviceInfo& device,
                                IdText& id, const Lowering& lowering) {
  { Task::family } -> std::convertible_to<std::string_view>;
  task.op;
  // The ways in which a kernel may hold what it loads (ring, depth, vector width, shared
  // memory) times those in which it may be spread over the device (threads, rows, split, grid).
  // Products are whole: what does not work together is counted by its reason, not left out in
  // silence.
  { task.plans() } -> std::same_as<std::vector<typename Task::Plan>>;
  // The first reason why the kernel cannot be, on this device, or null.
  { task.why_illegal(plan, device) } -> std::same_as<const char*>;
  { task.footprint(plan, device) } -> std::same_as<Footprint>;
  { task.cost(plan, device) } -> std::same_as<Cost>;
  { task.bytes() } -> std::same_as<double>;  // that must cross the memory bus
  { task.flops() } -> std::same_as<double>;
  { task.extent(plan) } -> std::same_as<Extent>;
  // Behind "FAMILY/": different for every plan.
  Task::write_id(plan, id);
  // What the diversity filter keeps one of.
  { Task::kind(plan) } -> std::convertible_to<std::string_view>;
  // Source and launches that compute these operands.
  { task.lower(lowering, plan, operands) } -> std::same_as<Generated>;
};

// One that computes regions: a match is about meaning and layout only, with sizes at one T and P. A
// family whose op has an `argmax` is asked for that too.
template <class Task>
concept RegionFamily = KernelFamily<Task> && requires(const Body& body) {
  { Task::match(body) } -> std::same_as<Match<Task>>;
};

template <class Task>
struct Implementation {
  Task task;
  typename Task::Plan plan;
};

}  // namespace ac
