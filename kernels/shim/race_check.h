// Finds missing barriers exactly. Code compiled with -fsanitize=thread calls __tsan_read4(address)
// and the like before every access; race_check.cc defines those calls (libtsan is not linked) and
// keeps, for each byte of the shared memory of the blocks that run, who touched it and when. Two
// accesses race if another thread made one of them, one writes, and nothing orders them: a barrier
// of the cluster, the block or the warp, or an arrival at a barrier in shared memory and a wait for
// it, which may pass on what others have told before (vector clocks).
// Around each piece of shared memory lie bytes that nobody may touch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "kernels/shim/global_memory.h"

namespace ac::kernels::host {

class RaceChecker {
 public:
  // The thread that runs, counted through the blocks of its cluster.
  struct Moment {
    unsigned thread = 0;
    bool after_dependency = false;
    bool in_products = false;  // of warpgroup.cuh, which see what threads wrote and published
  };

  struct Race {
    std::size_t offset = 0;  // in its piece of shared memory
    unsigned first = 0, second = 0;
    const char* what = nullptr;
  };

  static constexpr std::size_t guard = 128;  // bytes before and behind a piece

  void begin_cluster(unsigned threads);  // in most kernels of one block
  void add_shared(const void* begin, std::size_t bytes);
  void access(const void* address, std::size_t bytes, bool write, const Moment& now);
  // An asynchronous copy owns these bytes from its start until it lands: earlier accesses must be
  // ordered before. If it lands at a barrier, whoever waits there is ordered after, and nobody
  // else.
  void start_copy(const void* address, std::size_t bytes, const Moment& now);
  void land_copy(const void* address, std::size_t bytes, const void* barrier = nullptr);
  // The first call adds the stack of thread 0, the next call that of thread 1, and so on.
  void add_stack(const void* begin, std::size_t bytes);

  // What orders threads. They meet where `mask` has a bit, counted from `first`, or so many do.
  void meet(unsigned first, unsigned mask);
  void meet_all(unsigned first, unsigned count);
  void arrive(const void* barrier, unsigned thread);
  void complete(const void* barrier);  // its phase
  void passed(const void* barrier, unsigned thread);
  // What it wrote to shared memory so far.
  void publish(unsigned thread);
  // In global memory.
  void fence(unsigned thread);
  void atomic(const void* address, std::size_t bytes, unsigned thread);
  void count(const void* counter, unsigned thread);

  bool found() const { return race_.what != nullptr; }
  const Race& race() const { return race_; }

 private:
  // Of each thread, then of each barrier, how much of what it did is known.
  struct Barrier {
    std::size_t number = 0;  // in clocks
    unsigned phases = 0;
    Clock arrived, completed;
  };
  static constexpr int nobody = -1, copy_in_flight = -2;
  struct Read {
    unsigned thread = 0, when = 0;
  };
  // Who accessed it last, and when by its own clock; all readers, in order, if there is more than
  // one.
  struct Byte {
    int writer = nobody, reader = nobody;
    unsigned written = 0, read = 0;
    std::unique_ptr<std::vector<Read>> readers;
  };
  struct Piece {
    const void* begin;
    std::size_t bytes;
    std::vector<Byte> shadow;
  };
  void meet(const std::vector<unsigned>& threads);
  Barrier& barrier(const void* address);
  void set_owner(const void* address, std::size_t bytes, int writer, unsigned written);
  Piece* find(const void* address);
  bool is_on_stack(const void* address, unsigned thread) const;
  void access_global(const void* address, std::size_t bytes, bool write, const Moment& now);
  bool ordered(int before, unsigned when, unsigned thread) const;
  int racing_reader(const Byte& byte, unsigned thread) const;
  void note_reader(Byte& byte, unsigned thread) const;
  void report(const Piece& piece, const void* address, int first, const Moment& now,
              const char* what);

  struct StackMemory {
    std::uintptr_t begin;
    std::size_t bytes;
    bool has(std::uintptr_t address) const { return address - begin < bytes; }
  };

  std::vector<Piece> shared_;
  std::vector<StackMemory> stacks_, stacks_by_address_;  // of threads
  std::vector<Clock> clocks_;                            // of threads
  std::vector<unsigned> published_;                      // of each thread, by its own clock
  std::map<const void*, Barrier> barriers_;
  GlobalMemory global_;
  Race race_;
};

// The checker of the launch that runs on this thread, and the moment of the running fiber.
extern constinit thread_local RaceChecker* race_checker;
extern constinit thread_local RaceChecker::Moment race_moment;

}  // namespace ac::kernels::host
