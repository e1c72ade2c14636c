#include "kernels/shim/host_launch.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <boost/context/detail/fcontext.hpp>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "kernels/shim/race_check.h"

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
namespace {

namespace context = boost::context::detail;

// A fiber's stack, above a page that faults, so that an overrun is seen.
class Stack {
 public:
  static constexpr std::size_t bytes = 128 * 1024, guard = 4096;
  Stack() {
    memory_ = static_cast<char*>(mmap(nullptr, bytes + guard, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
    mprotect(memory_, guard, PROT_NONE);
  }
  ~Stack() { munmap(memory_, bytes + guard); }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  char* bottom() const { return memory_ + guard; }

 private:
  char* memory_;
};

// Shared memory of exactly `bytes`, all ones: NaN in every floating-point type.
class SharedMemory {
 public:
  explicit SharedMemory(std::size_t bytes) : bytes_(bytes) {
    if (posix_memalign(&memory_, 128, bytes) != 0) throw std::bad_alloc();
    std::memset(memory_, 0xff, bytes);
  }
  ~SharedMemory() { std::free(memory_); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  void* get() const { return memory_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void* memory_ = nullptr;
  std::size_t bytes_;
};

struct Copy {
  void* target;
  std::vector<unsigned char> bytes;
};

enum class State { ready, at_barrier, at_collective, polling, done };

struct Thread {
  std::unique_ptr<Stack> stack;
  context::fcontext_t fiber = nullptr;
  void* fake_stack = nullptr;  // AddressSanitizer's
  uint3 index{0, 0, 0};
  unsigned number = 0;
  State state = State::ready;
  const char* operation = "";  // what it waits at, and where
  Place place;
  void* payload = nullptr;
  bool (*poll)(void*) = nullptr;
  void* poll_state = nullptr;
  std::vector<Copy> open_copies;
  std::deque<std::vector<Copy>> copy_groups;
  unsigned warp_barriers = 0;
  bool after_dependency = false;
};

// Lanes that wait for each other; a warp may have several at once, with disjoint masks.
struct Collective {
  unsigned mask = 0, arrived = 0;
};

// What the host keeps in the 8 bytes of a copy barrier.
struct BarrierState {
  unsigned short arrivals_left, arrivals;
  int bytes_left : 31;
  unsigned phase : 1;
};
static_assert(sizeof(BarrierState) == 8);

struct Block {
  std::vector<Collective> collectives[32];  // of each warp
  std::unique_ptr<SharedMemory> dynamic_shared;
  std::map<const void*, std::unique_ptr<SharedMemory>> static_shared;
  std::vector<std::pair<BarrierState*, Copy>> bulk_copies;
  std::deque<unsigned> ready;
  std::vector<unsigned> polling;
  unsigned at_barrier = 0, block_barriers = 0;
};

class Scheduler {
 public:
  LaunchReport run(const HostLaunch& launch, void (*body)(void*), void* argument);

  // Called on fibers.
  void switch_away();
  void record(std::string error);
  [[noreturn]] void stop();
  void barrier(Place place);
  void collective(const char* operation, unsigned mask, void* payload,
                  void (*combine)(void* const[32], Place), Place place);
  void finish_collective(unsigned warp, unsigned mask, void (*combine)(void* const[32], Place),
                         Place place);
  void poll(const char* operation, bool (*ready)(void*), void* state, Place place);
  Thread& self() { return *current_; }
  Block& block() { return *block_; }
  RaceChecker* checker() { return checker_.get(); }
  const HostLaunch& launch() const { return *launch_; }
  std::string whereabouts(const Thread& thread, Place place) const;
  void check_race();

 private:
  void run_block();
  void resume(Thread& thread);
  void make_ready(const std::vector<unsigned>& threads);
  std::string describe_deadlock() const;
  static void fiber_main(context::transfer_t transfer);

  const HostLaunch* launch_ = nullptr;
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  std::vector<Thread> threads_;
  unsigned count_ = 0;
  Block* block_ = nullptr;
  Thread* current_ = nullptr;
  context::fcontext_t main_ = nullptr;
  void* main_fake_stack_ = nullptr;
  const void* main_stack_ = nullptr;
  std::size_t main_stack_bytes_ = 0;
  std::string error_;
  std::mt19937 random_;
  std::unique_ptr<RaceChecker> checker_;
};

Scheduler& scheduler() {
  static thread_local Scheduler instance;
  return instance;
}

bool same(const Place& a, const Place& b) {
  return a.line() == b.line() && std::string_view(a.file_name()) == b.file_name();
}

std::string text(const Place& place) {
  const std::string_view path = place.file_name();
  return fmt::format("{}:{}", path.substr(path.rfind('/') + 1), place.line());
}

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

}  // namespace

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
std::size_t dynamic_shared_bytes() { return scheduler().block().dynamic_shared->bytes(); }

void* static_shared_memory(const void* key, std::size_t bytes) {
  auto& memory = scheduler().block().static_shared[key];
  if (!memory) {
    memory = std::make_unique<SharedMemory>(bytes);
    if (race_checker != nullptr) race_checker->add_shared(memory->get(), bytes);
  }
  return memory->get();
}

// ---- asynchronous copies

namespace {

Copy begin_copy(void* shared, const void* global, unsigned bytes, bool valid) {
  Copy copy{shared, std::vector<unsigned char>(bytes, 0)};
  if (valid) std::memcpy(copy.bytes.data(), global, bytes);
  if (race_checker != nullptr) race_checker->start_copy(shared, bytes, race_moment);
  std::memset(shared, 0xff, bytes);
  return copy;
}

void land(const Copy& copy) {
  std::memcpy(copy.target, copy.bytes.data(), copy.bytes.size());
  if (RaceChecker* checker = scheduler().checker())
    checker->land_copy(copy.target, copy.bytes.size());
}

void check_aligned(const void* shared, const void* global, unsigned bytes, Place place) {
  const auto low_bits =
      reinterpret_cast<std::uintptr_t>(shared) | reinterpret_cast<std::uintptr_t>(global) | bytes;
  if (low_bits % 16 != 0) fail("an asynchronous copy is not of whole, aligned 16 bytes", place);
}

}  // namespace

void copy_async(void* shared, const void* global, unsigned bytes, bool valid, Place place) {
  check_aligned(shared, global, bytes, place);
  scheduler().self().open_copies.push_back(begin_copy(shared, global, bytes, valid));
}

void commit_copies() {
  Thread& thread = scheduler().self();
  thread.copy_groups.push_back(std::move(thread.open_copies));
  thread.open_copies.clear();
}

void wait_for_copies(unsigned groups_left) {
  Thread& thread = scheduler().self();
  while (thread.copy_groups.size() > groups_left) {
    for (const Copy& copy : thread.copy_groups.front()) {
      land(copy);
      // Only its own thread knows so: to all others it is a write of this moment.
      if (race_checker != nullptr)
        race_checker->access(copy.target, copy.bytes.size(), true, race_moment);
    }
    thread.copy_groups.pop_front();
  }
}

// ---- bulk copies

namespace {

void finish_phase(BarrierState& state) {
  if (state.arrivals_left != 0 || state.bytes_left != 0) return;
  state.phase ^= 1;
  state.arrivals_left = state.arrivals;
}

}  // namespace

void barrier_init(void* barrier, unsigned arrivals) {
  auto& state = *static_cast<BarrierState*>(barrier);
  state.arrivals = state.arrivals_left = static_cast<unsigned short>(arrivals);
  state.bytes_left = 0;
  state.phase = 0;
}

void barrier_expect(void* barrier, unsigned bytes) {
  auto& state = *static_cast<BarrierState*>(barrier);
  state.bytes_left += static_cast<int>(bytes);
  --state.arrivals_left;
  finish_phase(state);
}

void copy_bulk(void* shared, const void* global, unsigned bytes, void* barrier, Place place) {
  check_aligned(shared, global, bytes, place);
  scheduler().block().bulk_copies.push_back(
      {static_cast<BarrierState*>(barrier), begin_copy(shared, global, bytes, true)});
}

void barrier_wait(void* barrier, unsigned parity, Place place) {
  struct Wait {
    BarrierState* state;
    unsigned parity;
  } wait{static_cast<BarrierState*>(barrier), parity};
  wait_until(
      "a wait for bulk copies",
      [](void* argument) {
        const auto& w = *static_cast<Wait*>(argument);
        if (w.state->phase != w.parity) return true;
        std::erase_if(scheduler().block().bulk_copies, [&](const auto& pending) {
          if (pending.first != w.state) return false;
          land(pending.second);
          w.state->bytes_left -= static_cast<int>(pending.second.bytes.size());
          return true;
        });
        finish_phase(*w.state);
        return w.state->phase != w.parity;
      },
      &wait, place);
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
