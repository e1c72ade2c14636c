#include "kernels/shim/race_check.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>

namespace ac::kernels::host {

constinit thread_local RaceChecker* race_checker = nullptr;
constinit thread_local RaceChecker::Moment race_moment;

void RaceChecker::add_global(const void* begin, std::size_t bytes) {
  global_.push_back({{begin, bytes}, std::vector<GlobalByte>(bytes)});
}

void RaceChecker::begin_cluster(unsigned threads) {
  shared_.clear();
  barriers_.clear();
  knows_.assign(threads, {Clock(threads, 0), {}});
  for (unsigned t = 0; t < threads; ++t) knows_[t].own[t] = 1;
  fenced_.assign(threads, {});
  told_.emplace_back();
}

void RaceChecker::add_shared(const void* begin, std::size_t bytes) {
  shared_.push_back({{begin, bytes}, std::vector<Byte>(bytes)});
}

template <class Some>
Some* RaceChecker::find(std::vector<Some>& pieces, const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  for (Some& piece : pieces) {
    const auto begin = reinterpret_cast<std::uintptr_t>(piece.begin);
    if (at >= begin && at < begin + piece.bytes) return &piece;
  }
  return nullptr;
}

// ---- what orders threads

void RaceChecker::learn(Clock& clock, const Clock& from) {
  if (clock.size() < from.size()) clock.resize(from.size(), 0);
  for (std::size_t i = 0; i < from.size(); ++i) clock[i] = std::max(clock[i], from[i]);
}

void RaceChecker::learn(Knowledge& of, const Knowledge& from) {
  learn(of.own, from.own);
  learn(of.counters, from.counters);
}

void RaceChecker::meet(const std::vector<unsigned>& threads) {
  Knowledge all, fenced;
  for (const unsigned t : threads) learn(all, knows_[t]), learn(fenced, fenced_[t]);
  for (const unsigned t : threads) {
    knows_[t] = all, fenced_[t] = fenced;
    ++clock(t)[t];
  }
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

void RaceChecker::fence(unsigned thread) {
  fenced_[thread] = knows_[thread];
  ++clock(thread)[thread];
}

void RaceChecker::count(const void* address, std::size_t bytes, const Moment& now) {
  GlobalPiece* const piece = find(global_, address);
  if (piece == nullptr) return;
  access_global(*piece, address, bytes, true, true, now.thread);
  const auto [found, is_new] = counters_.try_emplace(address);
  Counter& counter = found->second;
  if (is_new) counter.number = counters_.size() - 1;
  const Knowledge& fenced = fenced_[now.thread];
  if (!fenced.own.empty())
    told_.back().push_back({counter.number, ++counter.passed_on, fenced.own});
  Clock& counters = knows_[now.thread].counters;
  if (counters.size() <= counter.number) counters.resize(counter.number + 1, 0);
  counters[counter.number] = counter.passed_on;
}

RaceChecker::Barrier& RaceChecker::barrier(const void* address) {
  const std::size_t number = knows_.size() + barriers_.size();
  const auto [found, is_new] = barriers_.try_emplace(address);
  if (is_new) found->second.number = number;
  return found->second;
}

void RaceChecker::arrive(const void* address, unsigned thread) {
  learn(barrier(address).arrived, clock(thread));
  ++clock(thread)[thread];
}

void RaceChecker::complete(const void* address) {
  Barrier& b = barrier(address);
  learn(b.completed, b.arrived);
  if (b.completed.size() <= b.number) b.completed.resize(b.number + 1, 0);
  b.completed[b.number] = ++b.phases;
}

void RaceChecker::passed(const void* address, unsigned thread) {
  learn(clock(thread), barrier(address).completed);
}

// Whether `thread` knows what another one, or a barrier's copies, did at that time.
bool RaceChecker::ordered(int before, unsigned when, unsigned thread) const {
  if (before < 0 || static_cast<unsigned>(before) == thread) return true;
  return when <= at(knows_[thread].own, static_cast<std::size_t>(before));
}

// The same of a thread of any cluster. What blocks tell each other through a third one is not
// known.
bool RaceChecker::ordered_in_grid(int before, unsigned when, unsigned thread) const {
  if (before < 0) return true;
  const std::size_t cluster = static_cast<std::size_t>(before) / knows_.size(),
                    other = static_cast<std::size_t>(before) % knows_.size();
  if (cluster + 1 == told_.size()) return ordered(static_cast<int>(other), when, thread);
  return std::ranges::any_of(told_[cluster], [&](const Told& told) {
    return when <= at(told.known, other) && told.time <= at(fenced_[thread].counters, told.counter);
  });
}

// ---- accesses

int RaceChecker::racing_reader(const Byte& byte, unsigned thread) const {
  if (!byte.readers) return ordered(byte.reader, byte.read, thread) ? nobody : byte.reader;
  for (std::size_t t = 0; t < byte.readers->size(); ++t)
    if (!ordered(static_cast<int>(t), (*byte.readers)[t], thread)) return static_cast<int>(t);
  return nobody;
}

void RaceChecker::note_reader(Byte& byte, unsigned thread) const {
  const unsigned now = this->now(thread);
  if (!byte.readers && (byte.reader < 0 || ordered(byte.reader, byte.read, thread))) {
    byte.reader = static_cast<int>(thread), byte.read = now;  // who knows the last one knows both
    return;
  }
  if (!byte.readers) {
    byte.readers = std::make_unique<Clock>(knows_.size(), 0);
    (*byte.readers)[static_cast<std::size_t>(byte.reader)] = byte.read;
  }
  (*byte.readers)[thread] = now;
}

void RaceChecker::report(const Memory& piece, const void* address, unsigned first, unsigned second,
                         const char* what) {
  if (found()) return;
  race_ = {static_cast<std::size_t>(static_cast<const char*>(address) -
                                    static_cast<const char*>(piece.begin)),
           first, second, what};
}

void RaceChecker::access(const void* address, std::size_t bytes, bool write, const Moment& now) {
  Piece* piece = find(shared_, address);
  if (piece == nullptr) {
    if (write && !now.after_dependency && find(stacks_, address) == nullptr)
      report({address, bytes}, address, now.thread, now.thread,
             "global memory is written before the wait for the previous kernel");
    if (GlobalPiece* const global = find(global_, address))
      access_global(*global, address, bytes, write, false, now.thread);
    return;
  }
  const auto report_by = [&](int first, const char* what) {
    report(*piece, address, static_cast<unsigned>(first), now.thread, what);
  };
  const std::size_t offset = static_cast<std::size_t>(static_cast<const char*>(address) -
                                                      static_cast<const char*>(piece->begin));
  for (std::size_t i = offset; i < offset + bytes && i < piece->bytes; ++i) {
    Byte& byte = piece->shadow[i];
    if (byte.writer == copy_in_flight)
      return report_by(static_cast<int>(now.thread), "an access to memory that a copy is filling");
    if (!ordered(byte.writer, byte.written, now.thread)) {
      if (static_cast<std::size_t>(byte.writer) >= knows_.size())
        return report_by(static_cast<int>(now.thread),
                         "an access to what a copy brought that was not waited for");
      return report_by(byte.writer,
                       write ? "two writes race" : "a read races with an earlier write");
    }
    if (!write) {
      note_reader(byte, now.thread);
      continue;
    }
    if (const int reader = racing_reader(byte, now.thread); reader != nobody)
      return report_by(reader, "a write races with an earlier read");
    byte.writer = static_cast<int>(now.thread);
    byte.written = this->now(now.thread);
    byte.reader = nobody;
    byte.readers.reset();
  }
}

void RaceChecker::access_global(GlobalPiece& piece, const void* address, std::size_t bytes,
                                bool write, bool atomic, unsigned thread) {
  const int me = static_cast<int>((told_.size() - 1) * knows_.size() + thread);
  const auto number_of = [&](int other) {
    return static_cast<unsigned>(static_cast<std::size_t>(other) % knows_.size());
  };
  const std::size_t offset = static_cast<std::size_t>(static_cast<const char*>(address) -
                                                      static_cast<const char*>(piece.begin));
  for (std::size_t i = offset; i < offset + bytes && i < piece.bytes; ++i) {
    GlobalByte& byte = piece.shadow[i];
    if (!(atomic && byte.atomic) && !ordered_in_grid(byte.writer, byte.written, thread))
      return report(piece, address, number_of(byte.writer), thread,
                    write ? "two writes to global memory race"
                          : "a read of global memory races with an earlier write");
    if (write && !ordered_in_grid(byte.reader, byte.read, thread))
      return report(piece, address, number_of(byte.reader), thread,
                    "a write to global memory races with an earlier read");
    if (write)
      byte = {me, nobody, now(thread), 0, atomic};
    else
      byte.reader = me, byte.read = now(thread);
  }
}

void RaceChecker::set_owner(const void* address, std::size_t bytes, int writer, unsigned written) {
  Piece* piece = find(shared_, address);
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
