// How the host device runs the blocks of a cluster, in most kernels one: their threads are fibers,
// and the scheduler switches to one that can go on until all have returned or none can.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/shim/host_launch.h"
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

namespace ac::kernels::host {

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

// Shared memory of exactly `bytes`, all ones: NaN in every floating-point type. What lies around it
// nobody may touch; AddressSanitizer sees who does.
class SharedMemory {
 public:
  static constexpr std::size_t alignment = 1024;  // the most that a kernel asks for
  static constexpr std::size_t guard = RaceChecker::guard;
  explicit SharedMemory(std::size_t bytes) : bytes_(bytes) {
    if (posix_memalign(&memory_, alignment, alignment + bytes + guard) != 0) throw std::bad_alloc();
    std::memset(memory_, 0xff, alignment + bytes + guard);
#ifdef AC_ASAN
    ASAN_POISON_MEMORY_REGION(get() - guard, guard);
    ASAN_POISON_MEMORY_REGION(get() + bytes, guard);
#endif
  }
  ~SharedMemory() {
#ifdef AC_ASAN
    ASAN_UNPOISON_MEMORY_REGION(memory_, alignment + bytes_ + guard);
#endif
    std::free(memory_);
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  unsigned char* get() const { return static_cast<unsigned char*>(memory_) + alignment; }
  std::size_t bytes() const { return bytes_; }
  // Whether nobody wrote around it.
  bool is_whole() const {
#ifdef AC_ASAN
    return true;
#else
    const auto is_guard = [](unsigned char byte) { return byte == 0xff; };
    return std::all_of(get() - guard, get(), is_guard) &&
           std::all_of(get() + bytes_, get() + bytes_ + guard, is_guard);
#endif
  }

 private:
  void* memory_ = nullptr;
  std::size_t bytes_;
};

struct Copy {
  void* target;
  std::vector<unsigned char> bytes;
};

// Work that waits: a call, and a copy of what it is called with (aligned as new aligns).
struct Deferred {
  void (*run)(const void* operation);
  std::vector<std::byte> operation;
};

enum class State { ready, at_barrier, at_collective, polling, done };

struct Block;

// Where something stopped and goes on, and what AddressSanitizer wants to know of its stack.
struct Context {
  context::fcontext_t fiber = nullptr;
  void* fake_stack = nullptr;
  const void* bottom = nullptr;
  std::size_t bytes = 0;
};

struct Thread {
  std::unique_ptr<Stack> stack;
  Context context;
  Block* block = nullptr;
  uint3 index{0, 0, 0};
  unsigned number = 0;  // in its block
  State state = State::ready;
  const char* operation = "";  // what it waits at, and where
  Place place;
  void* payload = nullptr;
  bool (*poll)(void*) = nullptr;
  void* poll_state = nullptr;
  std::vector<Copy> open_copies;
  std::deque<std::vector<Copy>> copy_groups;
  std::vector<Deferred> deferred;
  std::deque<std::vector<Deferred>> deferred_groups;
  bool after_dependency = false;
};

// Lanes that wait for each other; a warp may have several at once, with disjoint masks.
struct Collective {
  unsigned mask = 0, arrived = 0;
};

// A barrier of all threads of a block or cluster: how many are there, and the first of them.
struct Meeting {
  unsigned arrived = 0;
  const Thread* first = nullptr;
};

// What the host keeps in the 8 bytes of a copy barrier.
struct BarrierState {
  unsigned short arrivals_left, arrivals;
  int bytes_left : 31;
  unsigned phase : 1;
};
static_assert(sizeof(BarrierState) == 8);

struct Block {
  uint3 index{0, 0, 0};
  unsigned first = 0;  // of its threads, in the scheduler's list
  bool started = false;
  unsigned left = 0;                        // threads that have not returned
  std::vector<Collective> collectives[32];  // of each warp
  std::unique_ptr<SharedMemory> dynamic_shared;
  std::map<const void*, std::unique_ptr<SharedMemory>> static_shared;
  Meeting meeting, meeting_of_first;
};

class Scheduler {
 public:
  LaunchReport run(const HostLaunch& launch, void (*body)(void*), void* argument);

  // Called on fibers.
  void switch_away();
  void record(std::string error);
  [[noreturn]] void stop();
  void barrier(Place place);
  void barrier_of_first(unsigned count, Place place);
  void cluster_barrier(Place place);
  void collective(const char* operation, unsigned mask, void* payload,
                  void (*combine)(void* const[32], Place), Place place);
  void finish_collective(unsigned first, unsigned mask, void (*combine)(void* const[32], Place),
                         Place place);
  void poll(const char* operation, bool (*ready)(void*), void* state, Place place);
  Thread& self() { return *current_; }
  Block& block() { return *current_->block; }
  Block& block(unsigned rank, Place place);
  // Copies that a barrier counts, and that have not landed.
  std::map<BarrierState*, std::vector<Copy>>& bulk_copies() { return bulk_copies_; }
  void* static_shared(Block& block, const void* key, std::size_t bytes);
  RaceChecker* checker() { return checker_.get(); }
  const HostLaunch& launch() const { return *launch_; }
  std::string whereabouts(const Thread& thread, Place place) const;
  void check_race();
  void check_shared(const Block& block);
  void note_wait() { waited_ = true; }
  // The tag that a word of this launch was read with.
  std::unordered_map<const void*, unsigned>& read_words() { return read_words_; }

 private:
  void run_cluster(unsigned number);
  void start(Block& block);
  void meet(Meeting& meeting, const char* operation, unsigned first, unsigned count, Place place);
  void go_on();
  void go_to(Thread* next);
  void arrive(context::fcontext_t from, Context& here);
  void make_ready();
  std::string describe_deadlock() const;
  static void fiber_main(context::transfer_t transfer);

  const HostLaunch* launch_ = nullptr;
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  std::vector<Thread> threads_;  // of each block of the cluster
  unsigned count_ = 0;           // of a block's
  unsigned cluster_ = 1;         // blocks that run together
  std::vector<Block> blocks_;    // of the cluster
  std::deque<unsigned> ready_;
  std::vector<unsigned> woken_;  // those that become ready next
  std::vector<unsigned> polling_;
  std::map<BarrierState*, std::vector<Copy>> bulk_copies_;
  Meeting meeting_;  // of the cluster
  Thread* current_ = nullptr;
  Thread* last_ = nullptr;   // that ran before the current one
  Context* left_ = nullptr;  // of it, or the launch's loop
  Context main_;             // of that
  std::string error_;
  bool waited_ = false;  // any thread, for the kernel before
  std::unordered_map<const void*, unsigned> read_words_;
  std::mt19937 random_;
  std::unique_ptr<RaceChecker> checker_;
};

// Of this thread of the operating system.
Scheduler& scheduler();

}  // namespace ac::kernels::host
