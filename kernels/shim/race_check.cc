#include "kernels/shim/race_check.h"

#include <cstdint>

namespace ac::kernels::host {

constinit thread_local RaceChecker* race_checker = nullptr;
constinit thread_local RaceChecker::Moment race_moment;

void RaceChecker::begin_block() { shared_.clear(); }

void RaceChecker::add_shared(const void* begin, std::size_t bytes) {
  shared_.push_back({begin, bytes, std::vector<Byte>(bytes)});
}

RaceChecker::Piece* RaceChecker::find(std::vector<Piece>& pieces, const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  for (Piece& piece : pieces) {
    const auto begin = reinterpret_cast<std::uintptr_t>(piece.begin);
    if (at >= begin && at < begin + piece.bytes) return &piece;
  }
  return nullptr;
}

// Whether an earlier access by `thread`, after that many barriers, is not ordered before now.
bool RaceChecker::unordered(int thread, unsigned block, unsigned warp, const Moment& now) {
  if (thread < 0 || static_cast<unsigned>(thread) == now.thread) return false;
  if (block != now.block_barriers) return false;
  const bool same_warp = static_cast<unsigned>(thread) / 32 == now.thread / 32;
  return !same_warp || warp == now.warp_barriers;
}

void RaceChecker::report(const Piece& piece, const void* address, int first, const Moment& now,
                         const char* what) {
  if (found()) return;
  race_ = {static_cast<std::size_t>(static_cast<const char*>(address) -
                                    static_cast<const char*>(piece.begin)),
           static_cast<unsigned>(first), now.thread, what};
}

void RaceChecker::access(const void* address, std::size_t bytes, bool write, const Moment& now) {
  Piece* piece = find(shared_, address);
  if (piece == nullptr) {
    if (write && !now.after_dependency && find(stacks_, address) == nullptr && !found())
      race_ = {0, now.thread, now.thread,
               "global memory is written before the wait for the previous kernel"};
    return;
  }
  const std::size_t offset = static_cast<std::size_t>(static_cast<const char*>(address) -
                                                      static_cast<const char*>(piece->begin));
  for (std::size_t i = offset; i < offset + bytes && i < piece->bytes; ++i) {
    Byte& byte = piece->shadow[i];
    if (byte.writer == copy_in_flight)
      return report(*piece, address, static_cast<int>(now.thread), now,
                    "an access to memory that a copy is filling");
    if (unordered(byte.writer, byte.write_block, byte.write_warp, now))
      return report(*piece, address, byte.writer, now,
                    write ? "two writes race" : "a read races with an earlier write");
    const int self = static_cast<int>(now.thread);
    if (write) {
      if (unordered(byte.reader, byte.read_block, byte.read_warp, now))
        return report(*piece, address, byte.reader, now, "a write races with an earlier read");
      if (unordered(byte.other_reader, byte.other_block, byte.other_warp, now))
        return report(*piece, address, byte.other_reader, now,
                      "a write races with an earlier read");
      byte.writer = self;
      byte.write_block = now.block_barriers;
      byte.write_warp = now.warp_barriers;
    } else {
      // Keep the last reader, and the last one of another warp (or, failing that, another thread).
      if (byte.reader >= 0 && byte.reader != self &&
          (byte.other_reader < 0 || byte.reader / 32 != self / 32)) {
        byte.other_reader = byte.reader;
        byte.other_block = byte.read_block;
        byte.other_warp = byte.read_warp;
      }
      byte.reader = self;
      byte.read_block = now.block_barriers;
      byte.read_warp = now.warp_barriers;
    }
  }
}

void RaceChecker::set_owner(const void* address, std::size_t bytes, int writer) {
  Piece* piece = find(shared_, address);
  if (piece == nullptr) return;
  const std::size_t offset = static_cast<std::size_t>(static_cast<const char*>(address) -
                                                      static_cast<const char*>(piece->begin));
  for (std::size_t i = offset; i < offset + bytes && i < piece->bytes; ++i) {
    piece->shadow[i] = Byte{};
    piece->shadow[i].writer = writer;
  }
}

void RaceChecker::start_copy(const void* address, std::size_t bytes, const Moment& now) {
  access(address, bytes, true, now);
  set_owner(address, bytes, copy_in_flight);
}

void RaceChecker::land_copy(const void* address, std::size_t bytes) {
  set_owner(address, bytes, -1);
}

namespace {
void note(const void* address, std::size_t bytes, bool write) {
  if (race_checker != nullptr) race_checker->access(address, bytes, write, race_moment);
}
}  // namespace

}  // namespace ac::kernels::host

// What compilers emit under -fsanitize=thread for code without std::atomic.
#define AC_TSAN_ACCESS(bytes)                                                              \
  void __tsan_read##bytes(void* p) { ac::kernels::host::note(p, bytes, false); }           \
  void __tsan_write##bytes(void* p) { ac::kernels::host::note(p, bytes, true); }           \
  void __tsan_unaligned_read##bytes(void* p) { ac::kernels::host::note(p, bytes, false); } \
  void __tsan_unaligned_write##bytes(void* p) { ac::kernels::host::note(p, bytes, true); }

extern "C" {
AC_TSAN_ACCESS(1)
AC_TSAN_ACCESS(2)
AC_TSAN_ACCESS(4)
AC_TSAN_ACCESS(8)
AC_TSAN_ACCESS(16)
void __tsan_read_range(void* p, unsigned long bytes) { ac::kernels::host::note(p, bytes, false); }
void __tsan_write_range(void* p, unsigned long bytes) { ac::kernels::host::note(p, bytes, true); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
}
