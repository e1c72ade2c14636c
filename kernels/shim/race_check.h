// Finds missing barriers exactly. Code compiled with -fsanitize=thread calls __tsan_read4(address)
// and the like before every access; race_check.cc defines those calls (libtsan is not linked) and
// keeps, for each byte of the shared memory of the blocks that run, and of what the launch writes
// in global memory, who touched it and when. Two accesses race if another thread made one of them,
// one writes, and nothing orders them: a barrier of the cluster, the block or the warp, or an
// arrival at a barrier in shared memory and a wait for it, which may pass on what others have told
// before (vector clocks). Blocks that do not run together are ordered by counters alone: what a
// thread knew at its last fence when it counted is ordered before whoever counts later, once that
// one has fenced, or those that it meets have. Of each byte of global memory the last reader and
// the last writer are known, no others.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

namespace ac::kernels::host {

class RaceChecker {
 public:
  // The thread that runs, counted through the cluster's blocks.
  struct Moment {
    unsigned thread = 0;
    bool after_dependency = false;
  };

  struct Race {
    std::size_t offset = 0;  // in its piece of memory
    unsigned first = 0, second = 0;
    const char* what = nullptr;
  };

  // What the launch may write in global memory.
  void add_global(const void* begin, std::size_t bytes);
  void add_stack(const void* begin, std::size_t bytes) { stacks_.push_back({begin, bytes}); }
  // Of the blocks that run together, with so many threads in all.
  void begin_cluster(unsigned threads);
  void add_shared(const void* begin, std::size_t bytes);

  void access(const void* address, std::size_t bytes, bool write, const Moment& now);
  // An asynchronous copy owns these bytes from its start until it lands: earlier accesses must be
  // ordered before. If it lands at a barrier, whoever waits there is ordered after, and nobody
  // else.
  void start_copy(const void* address, std::size_t bytes, const Moment& now);
  void land_copy(const void* address, std::size_t bytes, const void* barrier = nullptr);

  // What orders threads. Those meet that `mask` has a bit of, counted from `first`, or so many.
  void meet(unsigned first, unsigned mask);
  void meet_all(unsigned first, unsigned count);
  void arrive(const void* barrier, unsigned thread);
  void complete(const void* barrier);  // its phase
  void passed(const void* barrier, unsigned thread);
  // An atomic operation, before which and after which fences count.
  void count(const void* address, std::size_t bytes, const Moment& now);
  void fence(unsigned thread);

  bool found() const { return race_.what != nullptr; }
  const Race& race() const { return race_; }

 private:
  // Of each thread, then of each barrier, how much of what it did is known.
  using Clock = std::vector<unsigned>;
  struct Knowledge {
    Clock own;       // of the cluster
    Clock counters;  // of each one, how often it had passed something on
  };
  struct Barrier {
    std::size_t number = 0;  // in clocks
    unsigned phases = 0;
    Clock arrived, completed;
  };
  struct Counter {
    std::size_t number = 0;
    unsigned passed_on = 0;
  };
  // What a cluster's counting passed on.
  struct Told {
    std::size_t counter;
    unsigned time;
    Clock known;
  };
  static constexpr int nobody = -1, copy_in_flight = -2;
  struct Memory {
    const void* begin;
    std::size_t bytes;
  };
  // Who accessed it last, and when by its own clock; all readers if there is more than one.
  struct Byte {
    int writer = nobody, reader = nobody;
    unsigned written = 0, read = 0;
    std::unique_ptr<Clock> readers;
  };
  struct Piece : Memory {
    std::vector<Byte> shadow;
  };
  // Threads are counted through all clusters, in the order in which they run.
  struct GlobalByte {
    int writer = nobody, reader = nobody;
    unsigned written = 0, read = 0;
    bool atomic = false;  // the last write
  };
  struct GlobalPiece : Memory {
    std::vector<GlobalByte> shadow;
  };

  static unsigned at(const Clock& clock, std::size_t i) { return i < clock.size() ? clock[i] : 0; }
  static void learn(Clock& clock, const Clock& from);
  static void learn(Knowledge& of, const Knowledge& from);
  void meet(const std::vector<unsigned>& threads);
  Clock& clock(unsigned thread) { return knows_[thread].own; }
  unsigned now(unsigned thread) const { return knows_[thread].own[thread]; }
  Barrier& barrier(const void* address);
  void set_owner(const void* address, std::size_t bytes, int writer, unsigned written);
  template <class Some>
  static Some* find(std::vector<Some>& pieces, const void* address);
  bool ordered(int before, unsigned when, unsigned thread) const;
  bool ordered_in_grid(int before, unsigned when, unsigned thread) const;
  int racing_reader(const Byte& byte, unsigned thread) const;
  void note_reader(Byte& byte, unsigned thread) const;
  void access_global(GlobalPiece& piece, const void* address, std::size_t bytes, bool write,
                     bool atomic, unsigned thread);
  void report(const Memory& piece, const void* address, unsigned first, unsigned second,
              const char* what);

  std::vector<Piece> shared_;
  std::vector<GlobalPiece> global_;
  std::vector<Memory> stacks_;
  std::vector<Knowledge> knows_;   // each thread of the cluster
  std::vector<Knowledge> fenced_;  // of that, what a fence has come after
  std::map<const void*, Barrier> barriers_;
  std::map<const void*, Counter> counters_;
  std::vector<std::vector<Told>> told_;  // by each cluster so far; the last one runs
  Race race_;
};

// The checker of the launch that runs on this thread, and the moment of the running fiber.
extern constinit thread_local RaceChecker* race_checker;
extern constinit thread_local RaceChecker::Moment race_moment;

}  // namespace ac::kernels::host
