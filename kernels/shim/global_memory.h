// Finds what a block reads of others that they did not publish. Blocks meet in global memory by a
// counter: each writes, makes that visible by a fence, and counts itself; the one that finds all
// others counted reads what they wrote. The host runs blocks one after another, so that a missing
// barrier or fence changes no result there: this keeps who wrote what, and what came before which
// fence (vector clocks, as race_check.h has them). Only reads behind a counter are looked at, as a
// cache may be read while its newest slot is written.
#pragma once

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
  // Who wrote, and when by its own clock.
  struct Write {
    unsigned block = 0, thread = 0, when = 0;
  };
  struct Fault {
    unsigned writer;
    const char* what;
  };

  void begin_block(unsigned threads);
  // Plain and atomic writes, of which each block's last one counts.
  void write(const void* address, std::size_t bytes, unsigned thread, unsigned when);
  void add(const void* address, std::size_t bytes, unsigned thread, unsigned when);
  // What is wrong with a read of a thread with this clock; no `what` if nothing is.
  Fault read(const void* address, std::size_t bytes, unsigned thread, const Clock& clock) const;

  // Who counts itself publishes what its fences covered, and sees what others published there; a
  // fence later it knows.
  void fence(unsigned thread, const Clock& clock);
  void count(const void* counter, unsigned thread);
  void meet(const std::vector<unsigned>& threads);

 private:
  using Address = std::uintptr_t;
  static constexpr Address word = 4;
  struct Published {
    unsigned block;
    Clock clock;
  };
  struct Thread {
    Clock fenced;
    std::map<Address, std::size_t> seen, known;  // of a counter, how many have published
  };
  const char* wrong(const Write& write, unsigned thread, const Clock& clock) const;

  unsigned block_ = 0;
  bool does_anything_ = false;  // this block, of what is here
  std::vector<Thread> threads_;
  std::unordered_map<Address, Write> written_;             // by word
  std::unordered_map<Address, std::vector<Write>> added_;  // of each block
  std::map<Address, std::vector<Published>> published_;    // by counter
};

}  // namespace ac::kernels::host
