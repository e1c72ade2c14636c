// Finds what threads do to each other in global memory with nothing that orders them. Blocks (of a
// cluster, all together) meet there by a counter: each writes, makes that visible by a fence, and
// counts itself; the one that finds all others counted reads what they wrote. The host runs them
// one after another, so that a missing barrier or fence changes no result there: this keeps who
// touched what, and what came before which fence (vector clocks, as race_check.h has them).
// Reads count for threads alone that have met a counter, as a cache may be read while its newest
// slot is written; of each byte the last one is kept.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

namespace ac::kernels::host {

using Clock = std::vector<unsigned>;
inline unsigned at(const Clock& clock, std::size_t i) { return i < clock.size() ? clock[i] : 0; }
void learn(Clock& clock, const Clock& from);

class GlobalMemory {
 public:
  struct Fault {
    unsigned other = 0;
    const char* what = nullptr;  // of none
  };

  void begin_cluster(unsigned threads);
  // Whether the thread's reads are looked at.
  bool asks(unsigned thread) const { return !threads_[thread].seen.empty(); }
  // What is wrong with an access of a thread with this clock.
  Fault read(const void* address, std::size_t bytes, unsigned thread, const Clock& clock);
  Fault write(const void* address, std::size_t bytes, unsigned thread, const Clock& clock);
  // An atomic one, of which each cluster's last counts. They do not race with each other.
  void add(const void* address, std::size_t bytes, unsigned thread, const Clock& clock);

  // Who counts itself publishes what its fences covered, and sees what others published there; a
  // fence later it knows.
  void fence(unsigned thread, const Clock& clock);
  void count(const void* counter, unsigned thread);
  void meet(const std::vector<unsigned>& threads);

 private:
  using Address = std::uintptr_t;
  // Who, and when by its own clock; nobody in cluster 0.
  struct Access {
    unsigned cluster = 0, thread = 0, when = 0;
  };
  struct Byte {
    Access written, read;
  };
  static constexpr Address page = 256;
  using Page = std::array<Byte, page>;
  struct Published {
    unsigned cluster;
    Clock clock;
  };
  struct Thread {
    Clock fenced;
    std::map<Address, std::size_t> seen, known;  // of a counter, how many have counted
  };
  // Whether `thread` knows of it.
  bool knows(const Access& access, unsigned thread, const Clock& clock) const;
  Byte& byte_at(Address at) { return bytes_[at / page][at % page]; }

  unsigned cluster_ = 0;
  bool has_met_ = false;  // a fence or a counter, in this cluster
  std::vector<Thread> threads_;
  std::unordered_map<Address, Page> bytes_;
  std::unordered_map<Address, std::vector<Access>> added_;  // of each cluster
  std::map<Address, std::vector<Published>> published_;     // by counter
};

}  // namespace ac::kernels::host
