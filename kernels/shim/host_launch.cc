#include "kernels/shim/host_launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string_view>

#include "kernels/shim/scheduler.h"

namespace ac::kernels {

constinit thread_local uint3 threadIdx{0, 0, 0};
constinit thread_local uint3 blockIdx{0, 0, 0};
constinit thread_local dim3 blockDim;
constinit thread_local dim3 gridDim;

namespace host {

namespace {

// Kernels ask for it all the time, so that it must cost no more than a load.
constinit thread_local Scheduler* running = nullptr;

// Mostly of one address, which is quickly told.
bool same(const char* a, const char* b) { return a == b || std::string_view(a) == b; }
bool same(const Place& a, const Place& b) {
  return a.line() == b.line() && same(a.file_name(), b.file_name());
}

std::string text(const Place& place) {
  const std::string_view path = place.file_name();
  return fmt::format("{}:{}", path.substr(path.rfind('/') + 1), place.line());
}

std::string text(const Block& block) {
  return fmt::format("block ({}, {}, {})", block.index.x, block.index.y, block.index.z);
}

}  // namespace

Scheduler& scheduler() { return *running; }

void Scheduler::fiber_main(context::transfer_t transfer) {
  Scheduler& s = *static_cast<Scheduler*>(transfer.data);
  s.arrive(transfer.fctx, s.current_->context);
  s.body_(s.argument_);
  s.current_->state = State::done;
  s.go_to(nullptr);
}

// Whoever goes on says here whom it comes from, who then can be gone back to.
void Scheduler::arrive(context::fcontext_t from, [[maybe_unused]] Context& here) {
  left_->fiber = from;
#ifdef AC_ASAN
  __sanitizer_finish_switch_fiber(here.fake_stack, &left_->bottom, &left_->bytes);
#endif
}

// On to another thread, or to the loop of the launch; returns when this one's turn comes again.
void Scheduler::go_to(Thread* next) {
  Context& here = current_ != nullptr ? current_->context : main_;
  Context& there = next != nullptr ? next->context : main_;
  [[maybe_unused]] const bool ends = current_ != nullptr && current_->state == State::done;
  left_ = &here;
  last_ = current_;
  current_ = next;
  if (next != nullptr) {
    threadIdx = next->index;
    blockIdx = next->block->index;
  }
  race_checker = next != nullptr ? checker_.get() : nullptr;
  if (race_checker != nullptr)
    race_moment = {next->block->first + next->number, next->after_dependency};
#ifdef AC_ASAN
  __sanitizer_start_switch_fiber(ends ? nullptr : &here.fake_stack, there.bottom, there.bytes);
#endif
  arrive(context::jump_fcontext(there.fiber, this).fctx, here);
}

// A thread that waits goes on to the next one itself, but for what only the launch's loop does.
void Scheduler::switch_away() {
  Thread* next = nullptr;
  if (!ready_.empty() && error_.empty() && !checker_) {
    next = &threads_[ready_.front()];
    ready_.pop_front();
  }
  if (next != current_) go_to(next);
}

std::string Scheduler::whereabouts(const Thread& thread, Place place) const {
  return fmt::format("kernel {}, {}, thread {}, {}", launch_->name, text(*thread.block),
                     thread.number, text(place));
}

// Nothing switches back to a fiber that stops here, so its callers must own no memory.
void Scheduler::stop() {
  current_->state = State::done;
  for (;;) switch_away();
}

void Scheduler::record(std::string error) {
  if (error_.empty()) error_ = std::move(error);
}

void Scheduler::make_ready() {
  for (unsigned t : woken_) threads_[t].state = State::ready;
  if (launch_->schedule == Schedule::reverse) std::reverse(woken_.begin(), woken_.end());
  if (launch_->schedule == Schedule::shuffled) std::shuffle(woken_.begin(), woken_.end(), random_);
  const auto at = launch_->schedule == Schedule::ahead ? ready_.begin() : ready_.end();
  ready_.insert(at, woken_.begin(), woken_.end());
}

void Scheduler::meet(Meeting& meeting, const char* operation, unsigned first, unsigned count,
                     Place place) {
  Thread& thread = *current_;
  if (meeting.arrived == 0) {
    meeting.first = &thread;
  } else if (!same(meeting.first->place, place)) {
    record(fmt::format("divergent barrier: {}; thread {} of {} waits at {}",
                       whereabouts(thread, place), meeting.first->number,
                       text(*meeting.first->block), text(meeting.first->place)));
    stop();
  }
  thread.state = State::at_barrier;
  thread.operation = operation;
  thread.place = place;
  if (++meeting.arrived == count) {
    meeting.arrived = 0;
    woken_.resize(count);
    std::iota(woken_.begin(), woken_.end(), first);
    make_ready();
  }
  switch_away();
}

void Scheduler::barrier(Place place) {
  Block& block = *current_->block;
  if (checker_ && block.meeting.arrived + 1 == count_) checker_->meet_all(block.first, count_);
  meet(block.meeting, "__syncthreads", block.first, count_, place);
}

void Scheduler::barrier_of_first(unsigned count, Place place) {
  Block& block = *current_->block;
  if (current_->number >= count) fail("a thread comes to a barrier of others", place);
  Meeting& meeting = block.meeting_of_first;
  if (checker_ && meeting.arrived + 1 == count) checker_->meet_all(block.first, count);
  meet(meeting, "a barrier of the block's first threads", block.first, count, place);
}

void Scheduler::cluster_barrier(Place place) {
  const unsigned count = count_ * static_cast<unsigned>(blocks_.size());
  if (checker_ && meeting_.arrived + 1 == count) checker_->meet_all(0, count);
  meet(meeting_, "a cluster's barrier", 0, count, place);
}

Block& Scheduler::block(unsigned rank, Place place) {
  if (rank >= blocks_.size() || launch_->cluster == 0)
    fail("a block of the cluster is reached that is not there", place);
  // Then, the memory may be another's.
  if (!blocks_[rank].started || blocks_[rank].left == 0)
    fail("a block of the cluster is reached before its start or after its end", place);
  return blocks_[rank];
}

void Scheduler::collective(const char* operation, unsigned mask, void* payload,
                           void (*combine)(void* const[32], Place), Place place) {
  Thread& thread = *current_;
  const unsigned warp = thread.number / 32, lane = thread.number % 32;
  if (!(mask >> lane & 1)) {
    record(fmt::format("{} by a lane outside its mask: {}", operation, whereabouts(thread, place)));
    stop();
  }
  const unsigned first_of_warp = thread.block->first + warp * 32;
  auto& collectives = thread.block->collectives[warp];
  auto waiting = std::find_if(collectives.begin(), collectives.end(),
                              [&](const Collective& c) { return (c.mask & mask) != 0; });
  if (waiting == collectives.end()) {
    collectives.push_back({mask, 0});
    waiting = collectives.end() - 1;
  } else {
    const Thread& first =
        threads_[first_of_warp + static_cast<unsigned>(__builtin_ctz(waiting->arrived))];
    if (waiting->mask != mask || !same(first.operation, operation) || !same(first.place, place)) {
      record(fmt::format("{} diverges from thread {}, which waits in a {} at {}: {}", operation,
                         first.number, first.operation, text(first.place),
                         whereabouts(thread, place)));
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
    finish_collective(first_of_warp, mask, combine, place);
  }
  switch_away();
}

void Scheduler::finish_collective(unsigned first, unsigned mask,
                                  void (*combine)(void* const[32], Place), Place place) {
  void* payloads[32] = {};
  for (unsigned lane = 0; lane < 32; ++lane)
    if (mask >> lane & 1) payloads[lane] = threads_[first + lane].payload;
  if (combine != nullptr) combine(payloads, place);
  if (checker_ && combine == nullptr) checker_->meet(first, mask);  // a shuffle orders nothing
  woken_.clear();
  for (unsigned lane = 0; lane < 32; ++lane)
    if (mask >> lane & 1) woken_.push_back(first + lane);
  make_ready();
}

// Whoever polls goes on only when nobody else can: what it waits for comes as late as possible. A
// warp that runs ahead of others takes what is there.
void Scheduler::poll(const char* operation, bool (*ready)(void*), void* state, Place place) {
  if (launch_->schedule == Schedule::ahead && ready(state)) return;
  Thread& thread = *current_;
  thread.state = State::polling;
  thread.operation = operation;
  thread.place = place;
  thread.poll = ready;
  thread.poll_state = state;
  polling_.push_back(thread.block->first + thread.number);
  switch_away();
}

std::string Scheduler::describe_deadlock() const {
  std::string description = fmt::format("deadlock: kernel {}", launch_->name);
  for (const Block& block : blocks_) {
    std::map<std::string, std::vector<unsigned>> groups;
    for (unsigned t = 0; t < count_; ++t) {
      const Thread& thread = threads_[block.first + t];
      const std::string what =
          thread.state == State::done
              ? "returned"
              : fmt::format("wait in {} at {}", thread.operation, text(thread.place));
      groups[what].push_back(t);
    }
    description += ", " + text(block);
    for (const auto& [what, threads] : groups)
      description +=
          fmt::format("; {} threads (first {}) {}", threads.size(), threads.front(), what);
  }
  return description;
}

void Scheduler::check_race() {
  if (!checker_ || !checker_->found() || !error_.empty()) return;
  const auto& race = checker_->race();
  error_ = fmt::format("race: kernel {}, {}: {}, threads {} and {}, byte {}", launch_->name,
                       text(blocks_.front()), race.what, race.first, race.second, race.offset);
}

void Scheduler::check_shared(const Block& block) {
  bool whole = !block.dynamic_shared || block.dynamic_shared->is_whole();
  for (const auto& [key, memory] : block.static_shared) whole = whole && memory->is_whole();
  if (!whole)
    record(fmt::format("kernel {}, {}: it wrote outside of its shared memory", launch_->name,
                       text(block)));
}

void Scheduler::start(Block& block) {
  // Even a block with no dynamic shared memory gets a pointer that nothing may be read from.
  block.dynamic_shared = std::make_unique<SharedMemory>(launch_->shared_bytes);
  if (checker_) checker_->add_shared(block.dynamic_shared->get(), launch_->shared_bytes);
  block.started = true;
  block.left = count_;
  for (unsigned t = 0; t < count_; ++t) {
    Thread& thread = threads_[block.first + t];
    char* const bottom = thread.stack->bottom();
#ifdef AC_ASAN
    ASAN_UNPOISON_MEMORY_REGION(bottom, Stack::bytes);
#endif
    // Stacks are whole pages apart: if all began at the same place of a page, the processor's first
    // cache would hold few of them at once. So each begins 7 cache lines below its neighbour's
    // place, of the 64 lines of a page.
    char* const top = bottom + Stack::bytes - t * 7 % 64 * 64;
    const auto bytes = static_cast<std::size_t>(top - bottom);
    thread.context = {context::make_fcontext(top, bytes, fiber_main), nullptr, bottom, bytes};
    thread.block = &block;
    thread.number = t;
    thread.index = {t % launch_->block.x, t / launch_->block.x % launch_->block.y,
                    t / (launch_->block.x * launch_->block.y)};
    thread.open_copies.clear();
    thread.copy_groups.clear();
    thread.deferred.clear();
    thread.deferred_groups.clear();
    thread.after_dependency = false;
  }
  woken_.resize(count_);
  std::iota(woken_.begin(), woken_.end(), block.first);
  make_ready();
}

// Called when nobody can go on: those of one block do that wait for something that has come, or
// else another block starts. A block thus runs ahead of the cluster's others as far as it can: what
// it does to them too early, it does.
void Scheduler::go_on() {
  std::vector<unsigned> ranks(blocks_.size());
  woken_.clear();
  std::iota(ranks.begin(), ranks.end(), 0u);
  if (launch_->schedule == Schedule::reverse) std::reverse(ranks.begin(), ranks.end());
  if (launch_->schedule == Schedule::shuffled) std::shuffle(ranks.begin(), ranks.end(), random_);
  for (unsigned rank : ranks) {
    std::erase_if(polling_, [&](unsigned t) {
      Thread& thread = threads_[t];
      const bool is_other_warp = !woken_.empty() && woken_.front() / 32 != t / 32;
      if (launch_->schedule == Schedule::ahead && is_other_warp) return false;
      if (thread.block != &blocks_[rank] || !thread.poll(thread.poll_state)) return false;
      woken_.push_back(t);
      return true;
    });
    if (!woken_.empty()) return make_ready();
  }
  for (unsigned rank : ranks)
    if (!blocks_[rank].started) return start(blocks_[rank]);
  record(describe_deadlock());
}

void Scheduler::run_cluster(unsigned number) {
  const dim3& grid = launch_->grid;
  blocks_ = std::vector<Block>(cluster_);
  for (unsigned rank = 0; rank < cluster_; ++rank) {
    const unsigned i = number * cluster_ + rank;
    blocks_[rank].index = {i % grid.x, i / grid.x % grid.y, i / (grid.x * grid.y)};
    blocks_[rank].first = rank * count_;
  }
  if (checker_) checker_->begin_cluster(count_ * cluster_);
  for (unsigned left = count_ * cluster_; left > 0 && error_.empty();) {
    if (ready_.empty()) {
      go_on();
      continue;
    }
    Thread& thread = threads_[ready_.front()];
    ready_.pop_front();
    go_to(&thread);
    if (last_->state == State::done) --left, --last_->block->left;
    check_race();
  }
  for (const Block& block : blocks_) check_shared(block);
  ready_.clear();
  polling_.clear();
  bulk_copies_.clear();
  meeting_ = {};
  blocks_.clear();
}

LaunchReport Scheduler::run(const HostLaunch& launch, void (*body)(void*), void* argument) {
  const dim3 grid = launch.grid, shape = launch.block;
  count_ = shape.x * shape.y * shape.z;
  if (count_ == 0 || count_ > 1024)
    return {fmt::format("kernel {}: a block of {} threads", launch.name, count_)};
  if (grid.x == 0 || grid.y == 0 || grid.z == 0)
    return {fmt::format("kernel {}: an empty grid", launch.name)};
  const bool is_grid = launch.cluster == 0;
  cluster_ = is_grid ? grid.x * grid.y * grid.z : launch.cluster;
  if (!is_grid && (cluster_ > 8 || grid.x % cluster_ != 0))
    return {fmt::format("kernel {}: a grid of {} blocks in clusters of {}", launch.name, grid.x,
                        launch.cluster)};
  launch_ = &launch;
  body_ = body;
  argument_ = argument;
  error_.clear();
  waited_ = false;
  read_words_.clear();
  random_.seed(launch.seed);
  const unsigned together = count_ * cluster_;
  if (threads_.size() < together) threads_.resize(together);
  for (unsigned t = 0; t < together; ++t)
    if (!threads_[t].stack) threads_[t].stack = std::make_unique<Stack>();
  checker_ = launch.check_races ? std::make_unique<RaceChecker>() : nullptr;
  if (checker_)
    for (unsigned t = 0; t < together; ++t)
      checker_->add_stack(threads_[t].stack->bottom(), Stack::bytes);
  blockDim = shape;
  gridDim = grid;

  std::vector<unsigned> order(grid.x * grid.y * grid.z / cluster_);
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), random_);
  for (unsigned i : order) {
    run_cluster(i);
    if (!error_.empty()) break;
  }
  checker_.reset();
  if (launch.must_wait && !waited_)
    record(fmt::format("kernel {} never waits for the kernel before it", launch.name));
  return {error_};
}

void* Scheduler::static_shared(Block& block, const void* key, std::size_t bytes) {
  auto& memory = block.static_shared[key];
  if (!memory) {
    memory = std::make_unique<SharedMemory>(bytes);
    if (race_checker != nullptr) race_checker->add_shared(memory->get(), bytes);
  }
  return memory->get();
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
  return scheduler().static_shared(scheduler().block(), key, bytes);
}

void meet_first(unsigned count, Place place) { scheduler().barrier_of_first(count, place); }

void meet_cluster(Place place) { scheduler().cluster_barrier(place); }

void* cluster_address(const void* shared, unsigned rank, Place place) {
  Scheduler& s = scheduler();
  Block& other = s.block(rank, place);
  const auto offset_in = [&](const SharedMemory& memory) -> std::optional<std::size_t> {
    const auto at =
        reinterpret_cast<std::uintptr_t>(shared) - reinterpret_cast<std::uintptr_t>(memory.get());
    if (at < memory.bytes()) return at;
    return std::nullopt;
  };
  if (const auto at = offset_in(*s.block().dynamic_shared))
    return static_cast<unsigned char*>(other.dynamic_shared->get()) + *at;
  for (const auto& [key, memory] : s.block().static_shared)
    if (const auto at = offset_in(*memory))
      return static_cast<unsigned char*>(s.static_shared(other, key, memory->bytes())) + *at;
  fail("an address in another block is not of shared memory", place);
}

void mark_dependency_wait() {
  scheduler().note_wait();
  scheduler().self().after_dependency = true;
  if (race_checker != nullptr) race_moment.after_dependency = true;
}

void note_word_stored(const void* word, unsigned tag, Place place) {
  Scheduler& s = scheduler();
  const auto read = s.read_words().find(word);
  if (read != s.read_words().end() && read->second == tag)
    fail("a word is stored that others have read already", place);
  if (race_checker == nullptr) return;
  race_checker->arrive(word, race_moment.thread);
  race_checker->complete(word);
}

void note_word_seen(const void* word, unsigned tag) {
  scheduler().read_words()[word] = tag;
  if (race_checker != nullptr) race_checker->passed(word, race_moment.thread);
}

int relaxed_lag() { return scheduler().launch().relaxed_lag; }

}  // namespace host

void __syncthreads(host::Place place) { host::scheduler().barrier(place); }

void __syncwarp(unsigned mask, host::Place place) {
  host::scheduler().collective("__syncwarp", mask, nullptr, nullptr, place);
}

LaunchReport run_on_host(const HostLaunch& launch, void (*thread_body)(void*), void* argument) {
  // Not in the thread's own storage, of which a library that is loaded late gets little.
  static thread_local const auto scheduler = std::make_unique<host::Scheduler>();
  host::running = scheduler.get();
  return scheduler->run(launch, thread_body, argument);
}

}  // namespace ac::kernels
