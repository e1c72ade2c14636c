#include "kernels/shim/host_launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "kernels/shim/scheduler.h"

#if defined(__SANITIZE_ADDRESS__)
#define AC_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define AC_ASAN 1
#endif
#endif
#ifdef AC_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace ac::kernels {

constinit thread_local uint3 threadIdx{0, 0, 0};
constinit thread_local uint3 blockIdx{0, 0, 0};
constinit thread_local dim3 blockDim;
constinit thread_local dim3 gridDim;

namespace host {

Scheduler& scheduler() {
  static thread_local Scheduler instance;
  return instance;
}

namespace {

bool same(const Place& a, const Place& b) {
  return a.line() == b.line() && std::string_view(a.file_name()) == b.file_name();
}

std::string text(const Place& place) {
  const std::string_view path = place.file_name();
  return fmt::format("{}:{}", path.substr(path.rfind('/') + 1), place.line());
}

}  // namespace

void Scheduler::fiber_main(context::transfer_t transfer) {
  Scheduler& s = *static_cast<Scheduler*>(transfer.data);
#ifdef AC_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &s.main_stack_, &s.main_stack_bytes_);
#endif
  s.main_ = transfer.fctx;
  s.body_(s.argument_);
  s.current_->state = State::done;
#ifdef AC_ASAN
  __sanitizer_start_switch_fiber(nullptr, s.main_stack_, s.main_stack_bytes_);
#endif
  context::jump_fcontext(s.main_, nullptr);
}

void Scheduler::switch_away() {
#ifdef AC_ASAN
  Thread& thread = *current_;
  __sanitizer_start_switch_fiber(&thread.fake_stack, main_stack_, main_stack_bytes_);
  main_ = context::jump_fcontext(main_, nullptr).fctx;
  __sanitizer_finish_switch_fiber(thread.fake_stack, &main_stack_, &main_stack_bytes_);
#else
  main_ = context::jump_fcontext(main_, nullptr).fctx;
#endif
}

void Scheduler::resume(Thread& thread) {
  current_ = &thread;
  threadIdx = thread.index;
  race_moment = {thread.number, block_->block_barriers, thread.warp_barriers,
                 thread.after_dependency};
  race_checker = checker_.get();
#ifdef AC_ASAN
  __sanitizer_start_switch_fiber(&main_fake_stack_, thread.stack->bottom(), Stack::bytes);
#endif
  thread.fiber = context::jump_fcontext(thread.fiber, this).fctx;
#ifdef AC_ASAN
  __sanitizer_finish_switch_fiber(main_fake_stack_, nullptr, nullptr);
#endif
  race_checker = nullptr;
  current_ = nullptr;
}

std::string Scheduler::whereabouts(const Thread& thread, Place place) const {
  return fmt::format("kernel {}, block ({}, {}, {}), thread {}, {}", launch_->name, blockIdx.x,
                     blockIdx.y, blockIdx.z, thread.number, text(place));
}

// Nothing switches back to a fiber that stops here, so its callers must own no memory.
void Scheduler::stop() {
  current_->state = State::done;
  for (;;) switch_away();
}

void Scheduler::record(std::string error) {
  if (error_.empty()) error_ = std::move(error);
}

void Scheduler::make_ready(const std::vector<unsigned>& threads) {
  for (unsigned t : threads) threads_[t].state = State::ready;
  std::vector<unsigned> order = threads;
  if (launch_->schedule == Schedule::reverse) std::reverse(order.begin(), order.end());
  if (launch_->schedule == Schedule::shuffled) std::shuffle(order.begin(), order.end(), random_);
  block_->ready.insert(block_->ready.end(), order.begin(), order.end());
}

void Scheduler::barrier(Place place) {
  Thread& thread = *current_;
  for (unsigned t = 0; t < count_; ++t) {
    const Thread& other = threads_[t];
    if (other.state != State::at_barrier) continue;
    if (!same(other.place, place)) {
      record(fmt::format("divergent barrier: {}; thread {} waits at {}", whereabouts(thread, place),
                         t, text(other.place)));
      stop();
    }
    break;
  }
  thread.state = State::at_barrier;
  thread.operation = "__syncthreads";
  thread.place = place;
  if (++block_->at_barrier == count_) {
    block_->at_barrier = 0;
    ++block_->block_barriers;
    std::vector<unsigned> everyone(count_);
    for (unsigned t = 0; t < count_; ++t) everyone[t] = t;
    make_ready(everyone);
  }
  switch_away();
}

void Scheduler::collective(const char* operation, unsigned mask, void* payload,
                           void (*combine)(void* const[32], Place), Place place) {
  Thread& thread = *current_;
  const unsigned warp = thread.number / 32, lane = thread.number % 32;
  if (!(mask >> lane & 1)) {
    record(fmt::format("{} by a lane outside its mask: {}", operation, whereabouts(thread, place)));
    stop();
  }
  auto& collectives = block_->collectives[warp];
  auto waiting = std::find_if(collectives.begin(), collectives.end(),
                              [&](const Collective& c) { return (c.mask & mask) != 0; });
  if (waiting == collectives.end()) {
    collectives.push_back({mask, 0});
    waiting = collectives.end() - 1;
  } else {
    const unsigned other = warp * 32 + static_cast<unsigned>(__builtin_ctz(waiting->arrived));
    const Thread& first = threads_[other];
    if (waiting->mask != mask || std::string_view(first.operation) != operation ||
        !same(first.place, place)) {
      record(fmt::format("{} diverges from thread {}, which waits in a {} at {}: {}", operation,
                         other, first.operation, text(first.place), whereabouts(thread, place)));
      stop();
    }
  }
  thread.operation = operation;
  thread.place = place;
  thread.payload = payload;
  thread.state = State::at_collective;
  waiting->arrived |= 1u << lane;
  if (waiting->arrived == mask) {
    collectives.erase(waiting);
    finish_collective(warp, mask, combine, place);
  }
  switch_away();
}

void Scheduler::finish_collective(unsigned warp, unsigned mask,
                                  void (*combine)(void* const[32], Place), Place place) {
  void* payloads[32] = {};
  for (unsigned lane = 0; lane < 32; ++lane)
    if (mask >> lane & 1) payloads[lane] = threads_[warp * 32 + lane].payload;
  if (combine != nullptr) combine(payloads, place);
  std::vector<unsigned> lanes;
  for (unsigned lane = 0; lane < 32; ++lane)
    if (mask >> lane & 1) {
      lanes.push_back(warp * 32 + lane);
      if (combine == nullptr) ++threads_[lanes.back()].warp_barriers;  // only __syncwarp orders
    }
  make_ready(lanes);
}

// Whoever polls goes on only when nobody else can: what it waits for comes as late as possible.
void Scheduler::poll(const char* operation, bool (*ready)(void*), void* state, Place place) {
  Thread& thread = *current_;
  thread.state = State::polling;
  thread.operation = operation;
  thread.place = place;
  thread.poll = ready;
  thread.poll_state = state;
  block_->polling.push_back(thread.number);
  switch_away();
}

std::string Scheduler::describe_deadlock() const {
  std::map<std::string, std::vector<unsigned>> groups;
  for (unsigned t = 0; t < count_; ++t) {
    const Thread& thread = threads_[t];
    const std::string what =
        thread.state == State::done
            ? "returned"
            : fmt::format("wait in {} at {}", thread.operation, text(thread.place));
    groups[what].push_back(t);
  }
  std::string description = fmt::format("deadlock: kernel {}, block ({}, {}, {})", launch_->name,
                                        blockIdx.x, blockIdx.y, blockIdx.z);
  for (const auto& [what, threads] : groups)
    description += fmt::format("; {} threads (first {}) {}", threads.size(), threads.front(), what);
  return description;
}

void Scheduler::check_race() {
  if (!checker_ || !checker_->found() || !error_.empty()) return;
  const auto& race = checker_->race();
  error_ = fmt::format("race: kernel {}, block ({}, {}, {}): {}, threads {} and {}, byte {}",
                       launch_->name, blockIdx.x, blockIdx.y, blockIdx.z, race.what, race.first,
                       race.second, race.offset);
}

void Scheduler::run_block() {
  Block block;
  block_ = &block;
  if (checker_) checker_->begin_block();
  // Even a block with no dynamic shared memory gets a pointer that nothing may be read from.
  block.dynamic_shared = std::make_unique<SharedMemory>(launch_->shared_bytes);
  if (checker_) checker_->add_shared(block.dynamic_shared->get(), launch_->shared_bytes);

  std::vector<unsigned> everyone(count_);
  for (unsigned t = 0; t < count_; ++t) {
    everyone[t] = t;
    Thread& thread = threads_[t];
    char* const bottom = thread.stack->bottom();
#ifdef AC_ASAN
    ASAN_UNPOISON_MEMORY_REGION(bottom, Stack::bytes);
#endif
    thread.fiber = context::make_fcontext(bottom + Stack::bytes, Stack::bytes, fiber_main);
    thread.fake_stack = nullptr;
    thread.number = t;
    thread.index = {t % launch_->block.x, t / launch_->block.x % launch_->block.y,
                    t / (launch_->block.x * launch_->block.y)};
    thread.open_copies.clear();
    thread.copy_groups.clear();
    thread.deferred.clear();
    thread.deferred_groups.clear();
    thread.warp_barriers = 0;
    thread.after_dependency = false;
  }
  make_ready(everyone);

  unsigned left = count_;
  while (left > 0 && error_.empty()) {
    if (block.ready.empty()) {
      std::vector<unsigned> woken;
      std::erase_if(block.polling, [&](unsigned t) {
        if (!threads_[t].poll(threads_[t].poll_state)) return false;
        woken.push_back(t);
        return true;
      });
      if (woken.empty()) {
        error_ = describe_deadlock();
        break;
      }
      make_ready(woken);
    }
    Thread& thread = threads_[block.ready.front()];
    block.ready.pop_front();
    resume(thread);
    if (thread.state == State::done) --left;
    check_race();
  }
  block_ = nullptr;
}

LaunchReport Scheduler::run(const HostLaunch& launch, void (*body)(void*), void* argument) {
  const dim3 grid = launch.grid, shape = launch.block;
  count_ = shape.x * shape.y * shape.z;
  if (count_ == 0 || count_ > 1024)
    return {fmt::format("kernel {}: a block of {} threads", launch.name, count_)};
  if (grid.x == 0 || grid.y == 0 || grid.z == 0)
    return {fmt::format("kernel {}: an empty grid", launch.name)};
  launch_ = &launch;
  body_ = body;
  argument_ = argument;
  error_.clear();
  random_.seed(launch.seed);
  if (threads_.size() < count_) threads_.resize(count_);
  for (unsigned t = 0; t < count_; ++t)
    if (!threads_[t].stack) threads_[t].stack = std::make_unique<Stack>();
  checker_ = launch.check_races ? std::make_unique<RaceChecker>() : nullptr;
  if (checker_)
    for (unsigned t = 0; t < count_; ++t)
      checker_->add_stack(threads_[t].stack->bottom(), Stack::bytes);
  blockDim = shape;
  gridDim = grid;

  std::vector<unsigned> order(grid.x * grid.y * grid.z);
  for (unsigned i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), random_);
  for (unsigned i : order) {
    blockIdx = {i % grid.x, i / grid.x % grid.y, i / (grid.x * grid.y)};
    run_block();
    if (!error_.empty()) break;
  }
  checker_.reset();
  return {error_};
}

void fail(const char* what, Place place) {
  Scheduler& s = scheduler();
  s.record(fmt::format("{}: {}", what, s.whereabouts(s.self(), place)));
  s.stop();
}

void warp_collective(const char* operation, unsigned mask, void* payload,
                     void (*combine)(void* const[32], Place), Place place) {
  scheduler().collective(operation, mask, payload, combine, place);
}

void wait_until(const char* operation, bool (*ready)(void*), void* state, Place place) {
  scheduler().poll(operation, ready, state, place);
}

unsigned linear_thread() { return scheduler().self().number; }

void* dynamic_shared_memory() { return scheduler().block().dynamic_shared->get(); }

void* static_shared_memory(const void* key, std::size_t bytes) {
  auto& memory = scheduler().block().static_shared[key];
  if (!memory) {
    memory = std::make_unique<SharedMemory>(bytes);
    if (race_checker != nullptr) race_checker->add_shared(memory->get(), bytes);
  }
  return memory->get();
}

void mark_dependency_wait() {
  scheduler().self().after_dependency = true;
  race_moment.after_dependency = true;
}

int relaxed_lag() { return scheduler().launch().relaxed_lag; }

}  // namespace host

void __syncthreads(host::Place place) { host::scheduler().barrier(place); }

void __syncwarp(unsigned mask, host::Place place) {
  host::scheduler().collective("__syncwarp", mask, nullptr, nullptr, place);
}

LaunchReport run_on_host(const HostLaunch& launch, void (*thread_body)(void*), void* argument) {
  return host::scheduler().run(launch, thread_body, argument);
}

}  // namespace ac::kernels
