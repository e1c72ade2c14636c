#include "kernels/shim/race_check.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace ac::kernels::host {

constinit thread_local RaceChecker* race_checker = nullptr;
constinit thread_local RaceChecker::Moment race_moment;

void RaceChecker::begin_cluster(unsigned threads) {
  shared_.clear();
  barriers_.clear();
  clocks_.assign(threads, Clock(threads, 0));
  for (unsigned t = 0; t < threads; ++t) clocks_[t][t] = 1;
  published_.assign(threads, 0);
  global_.begin_cluster(threads);
}

void RaceChecker::add_shared(const void* begin, std::size_t bytes) {
  Piece& piece = shared_.emplace_back(Piece{begin, bytes, {}});
  piece.shadow.resize(bytes);
}

// With what nobody may touch.
RaceChecker::Piece* RaceChecker::find(const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address) + guard;
  for (Piece& piece : shared_) {
    const auto begin = reinterpret_cast<std::uintptr_t>(piece.begin);
    if (at >= begin && at < begin + piece.bytes + 2 * guard) return &piece;
  }
  return nullptr;
}

void RaceChecker::add_stack(const void* begin, std::size_t bytes) {
  const StackMemory stack{reinterpret_cast<std::uintptr_t>(begin), bytes};
  stacks_.push_back(stack);
  stacks_by_address_.insert(
      std::ranges::upper_bound(stacks_by_address_, stack.begin, {}, &StackMemory::begin), stack);
}

bool RaceChecker::is_on_stack(const void* address, unsigned thread) const {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (thread < stacks_.size() && stacks_[thread].has(at)) return true;
  const auto next = std::ranges::upper_bound(stacks_by_address_, at, {}, &StackMemory::begin);
  return next != stacks_by_address_.begin() && (next - 1)->has(at);
}

// ---- what orders threads

void RaceChecker::meet(const std::vector<unsigned>& threads) {
  Clock all;
  for (const unsigned t : threads) learn(all, clocks_[t]);
  for (const unsigned t : threads) {
    clocks_[t] = all;
    ++clocks_[t][t];
  }
  global_.meet(threads);
}

void RaceChecker::meet(unsigned first, unsigned mask) {
  std::vector<unsigned> threads;
  for (unsigned lane = 0; lane < 32; ++lane)
    if (mask >> lane & 1) threads.push_back(first + lane);
  meet(threads);
}

void RaceChecker::meet_all(unsigned first, unsigned count) {
  std::vector<unsigned> threads(count);
  std::iota(threads.begin(), threads.end(), first);
  meet(threads);
}

RaceChecker::Barrier& RaceChecker::barrier(const void* address) {
  const std::size_t number = clocks_.size() + barriers_.size();
  const auto [found, is_new] = barriers_.try_emplace(address);
  if (is_new) found->second.number = number;
  return found->second;
}

void RaceChecker::arrive(const void* address, unsigned thread) {
  learn(barrier(address).arrived, clocks_[thread]);
  ++clocks_[thread][thread];
}

void RaceChecker::complete(const void* address) {
  Barrier& b = barrier(address);
  learn(b.completed, b.arrived);
  if (b.completed.size() <= b.number) b.completed.resize(b.number + 1, 0);
  b.completed[b.number] = ++b.phases;
}

void RaceChecker::passed(const void* address, unsigned thread) {
  learn(clocks_[thread], barrier(address).completed);
}

// What comes later is not covered by it.
void RaceChecker::publish(unsigned thread) { published_[thread] = clocks_[thread][thread]++; }

// Whether `thread` knows what another one, or a barrier's copies, did at that time.
bool RaceChecker::ordered(int before, unsigned when, unsigned thread) const {
  if (before < 0 || static_cast<unsigned>(before) == thread) return true;
  return when <= at(clocks_[thread], static_cast<std::size_t>(before));
}

// ---- accesses

int RaceChecker::racing_reader(const Byte& byte, unsigned thread) const {
  if (!byte.readers) return ordered(byte.reader, byte.read, thread) ? nobody : byte.reader;
  for (const Read& read : *byte.readers) {
    const auto reader = static_cast<int>(read.thread);
    if (!ordered(reader, read.when, thread)) return reader;
  }
  return nobody;
}

void RaceChecker::note_reader(Byte& byte, unsigned thread) const {
  const unsigned now = clocks_[thread][thread];
  if (!byte.readers && (byte.reader < 0 || ordered(byte.reader, byte.read, thread))) {
    byte.reader = static_cast<int>(thread), byte.read = now;  // who knows the last one knows both
    return;
  }
  if (!byte.readers) {
    const Read first{static_cast<unsigned>(byte.reader), byte.read};
    byte.readers = std::make_unique<std::vector<Read>>(1, first);
  }
  const auto at = std::ranges::lower_bound(*byte.readers, thread, {}, &Read::thread);
  if (at != byte.readers->end() && at->thread == thread)
    at->when = now;
  else
    byte.readers->insert(at, {thread, now});
}

void RaceChecker::report(const Piece& piece, const void* address, int first, const Moment& now,
                         const char* what) {
  if (found()) return;
  race_ = {static_cast<std::size_t>(static_cast<const char*>(address) -
                                    static_cast<const char*>(piece.begin)),
           static_cast<unsigned>(first), now.thread, what};
}

void RaceChecker::access(const void* address, std::size_t bytes, bool write, const Moment& now) {
  Piece* piece = find(address);
  if (piece == nullptr) return access_global(address, bytes, write, now);
  const std::size_t offset = static_cast<std::size_t>(static_cast<const char*>(address) -
                                                      static_cast<const char*>(piece->begin));
  if (offset + bytes > piece->bytes || offset > piece->bytes)
    return report(*piece, address, static_cast<int>(now.thread), now,
                  "an access outside of shared memory");
  for (std::size_t i = offset; i < offset + bytes && i < piece->bytes; ++i) {
    Byte& byte = piece->shadow[i];
    if (byte.writer == copy_in_flight)
      return report(*piece, address, static_cast<int>(now.thread), now,
                    "an access to memory that a copy is filling");
    if (!ordered(byte.writer, byte.written, now.thread)) {
      if (static_cast<std::size_t>(byte.writer) >= clocks_.size())
        return report(*piece, address, static_cast<int>(now.thread), now,
                      "an access to what a copy brought that was not waited for");
      return report(*piece, address, byte.writer, now,
                    write ? "two writes race" : "a read races with an earlier write");
    }
    const auto writer = static_cast<std::size_t>(byte.writer);
    if (now.in_products && byte.writer >= 0 && writer < published_.size() &&
        byte.written > published_[writer])
      return report(*piece, address, byte.writer, now,
                    "products read what was written and not published to them");
    if (!write) {
      note_reader(byte, now.thread);
      continue;
    }
    if (const int reader = racing_reader(byte, now.thread); reader != nobody)
      return report(*piece, address, reader, now, "a write races with an earlier read");
    byte.writer = static_cast<int>(now.thread);
    byte.written = clocks_[now.thread][now.thread];
    byte.reader = nobody;
    byte.readers.reset();
  }
}

void RaceChecker::access_global(const void* address, std::size_t bytes, bool write,
                                const Moment& now) {
  if (found() || (!write && !global_.asks(now.thread)) || is_on_stack(address, now.thread)) return;
  GlobalMemory::Fault fault;
  if (!write)
    fault = global_.read(address, bytes, now.thread, clocks_[now.thread]);
  else if (!now.after_dependency)
    fault = {now.thread, "global memory is written before the wait for the previous kernel"};
  else
    fault = global_.write(address, bytes, now.thread, clocks_[now.thread]);
  if (fault.what != nullptr) race_ = {0, fault.other, now.thread, fault.what};
}

// What comes later is not covered by it.
void RaceChecker::fence(unsigned thread) {
  global_.fence(thread, clocks_[thread]);
  ++clocks_[thread][thread];
}

void RaceChecker::atomic(const void* address, std::size_t bytes, unsigned thread) {
  if (find(address) != nullptr) return;
  global_.add(address, bytes, thread, clocks_[thread]);
}

void RaceChecker::count(const void* counter, unsigned thread) {
  if (find(counter) == nullptr) global_.count(counter, thread);
}

void RaceChecker::set_owner(const void* address, std::size_t bytes, int writer, unsigned written) {
  Piece* piece = find(address);
  if (piece == nullptr) return;
  const std::size_t offset = static_cast<std::size_t>(static_cast<const char*>(address) -
                                                      static_cast<const char*>(piece->begin));
  for (std::size_t i = offset; i < offset + bytes && i < piece->bytes; ++i) {
    Byte& byte = piece->shadow[i];
    byte = {};
    byte.writer = writer, byte.written = written;
  }
}

void RaceChecker::start_copy(const void* address, std::size_t bytes, const Moment& now) {
  access(address, bytes, true, now);
  set_owner(address, bytes, copy_in_flight, 0);
}

void RaceChecker::land_copy(const void* address, std::size_t bytes, const void* at_barrier) {
  if (at_barrier == nullptr) return set_owner(address, bytes, nobody, 0);
  const Barrier& b = barrier(at_barrier);
  set_owner(address, bytes, static_cast<int>(b.number), b.phases + 1);
}

namespace {
void note(const void* address, std::size_t bytes, bool write) {
  if (race_checker != nullptr) race_checker->access(address, bytes, write, race_moment);
}
}  // namespace

void note_fence() {
  if (race_checker != nullptr) race_checker->fence(race_moment.thread);
}
void note_publication() {
  if (race_checker != nullptr) race_checker->publish(race_moment.thread);
}
void note_atomic(const void* address, std::size_t bytes) {
  if (race_checker != nullptr) race_checker->atomic(address, bytes, race_moment.thread);
}
void note_count(const void* counter) {
  if (race_checker != nullptr) race_checker->count(counter, race_moment.thread);
}

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
// Clang's names, from 15 on, for copies and fills that a structure's assignment becomes.
void* __tsan_memcpy(void* to, const void* from, unsigned long bytes) {
  ac::kernels::host::note(from, bytes, false);
  ac::kernels::host::note(to, bytes, true);
  return std::memcpy(to, from, bytes);
}
void* __tsan_memmove(void* to, const void* from, unsigned long bytes) {
  ac::kernels::host::note(from, bytes, false);
  ac::kernels::host::note(to, bytes, true);
  return std::memmove(to, from, bytes);
}
void* __tsan_memset(void* to, int value, unsigned long bytes) {
  ac::kernels::host::note(to, bytes, true);
  return std::memset(to, value, bytes);
}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
}
