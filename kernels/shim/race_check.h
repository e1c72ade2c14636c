// Finds missing barriers exactly. Code compiled with -fsanitize=thread calls __tsan_read4(address)
// and the like before every access; race_check.cc defines those calls (libtsan is not linked) and
// keeps, for each byte of the running block's shared memory, who touched it since which barrier.
// Two accesses race if another thread made one of them, one writes, and no barrier lies between.
// It knows one block at a time: what blocks of a cluster do to each other it is not asked about.
#pragma once

#include <cstddef>
#include <vector>

namespace ac::kernels::host {

class RaceChecker {
 public:
  // When a thread runs: its number and how many barriers its block and its warp have passed.
  struct Moment {
    unsigned thread = 0, block_barriers = 0, warp_barriers = 0;
    bool after_dependency = false;
  };

  struct Race {
    std::size_t offset = 0;  // in its piece of shared memory
    unsigned first = 0, second = 0;
    const char* what = nullptr;
  };

  void begin_block();
  void add_shared(const void* begin, std::size_t bytes);
  void access(const void* address, std::size_t bytes, bool write, const Moment& now);
  // An asynchronous copy owns these bytes from its start until it lands: earlier accesses must be
  // ordered before, and whoever waits for it is ordered after.
  void start_copy(const void* address, std::size_t bytes, const Moment& now);
  void land_copy(const void* address, std::size_t bytes);
  void add_stack(const void* begin, std::size_t bytes) { stacks_.push_back({begin, bytes, {}}); }

  bool found() const { return race_.what != nullptr; }
  const Race& race() const { return race_; }

 private:
  static constexpr int copy_in_flight = -2;
  struct Byte {
    int writer = -1, reader = -1,
        other_reader = -1;  // two readers tell "me only" from "others too"
    unsigned write_block = 0, write_warp = 0, read_block = 0, read_warp = 0;
    unsigned other_block = 0, other_warp = 0;
  };
  struct Piece {
    const void* begin;
    std::size_t bytes;
    std::vector<Byte> shadow;
  };
  void set_owner(const void* address, std::size_t bytes, int writer);
  Piece* find(std::vector<Piece>& pieces, const void* address);
  static bool unordered(int thread, unsigned block, unsigned warp, const Moment& now);
  void report(const Piece& piece, const void* address, int first, const Moment& now,
              const char* what);

  std::vector<Piece> shared_, stacks_;
  Race race_;
};

// The checker of the launch that runs on this thread, and the moment of the running fiber.
extern constinit thread_local RaceChecker* race_checker;
extern constinit thread_local RaceChecker::Moment race_moment;

}  // namespace ac::kernels::host
