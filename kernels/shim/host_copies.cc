// What is asynchronous on the host device. Copies' bytes are read at the start and land at the
// wait, and until then the target is NaN; or they land at once, if the launch wants that.
#include <cstring>

#include "kernels/shim/scheduler.h"

namespace ac::kernels::host {

namespace {

Copy begin_copy(void* shared, const void* global, unsigned bytes, bool valid) {
  Copy copy{shared, std::vector<unsigned char>(bytes, 0)};
  if (valid) std::memcpy(copy.bytes.data(), global, bytes);
  if (race_checker != nullptr) race_checker->start_copy(shared, bytes, race_moment);
  if (scheduler().launch().copies_at_once)
    std::memcpy(shared, copy.bytes.data(), bytes);
  else
    std::memset(shared, 0xff, bytes);
  return copy;
}

void land(const Copy& copy, const void* barrier = nullptr) {
  std::memcpy(copy.target, copy.bytes.data(), copy.bytes.size());
  if (RaceChecker* checker = scheduler().checker())
    checker->land_copy(copy.target, copy.bytes.size(), barrier);
}

void check_aligned(const void* shared, const void* global, unsigned bytes, unsigned alignment,
                   Place place) {
  const auto low_bits =
      reinterpret_cast<std::uintptr_t>(shared) | reinterpret_cast<std::uintptr_t>(global) | bytes;
  if (low_bits % alignment != 0)
    fail(alignment == 4   ? "an asynchronous copy is not of whole, aligned 4 bytes"
         : alignment == 8 ? "an asynchronous copy is not of whole, aligned 8 bytes"
                          : "an asynchronous copy is not of whole, aligned 16 bytes",
         place);
}

}  // namespace

void copy_async(void* shared, const void* global, unsigned bytes, bool valid, Place place) {
  check_aligned(shared, global, bytes, bytes == 4 || bytes == 8 ? bytes : 16, place);
  scheduler().self().open_copies.push_back(begin_copy(shared, global, bytes, valid));
}

void commit_copies() {
  Thread& thread = scheduler().self();
  thread.copy_groups.push_back(std::move(thread.open_copies));
  thread.open_copies.clear();
}

void wait_for_copies(unsigned groups_left) {
  Thread& thread = scheduler().self();
  while (thread.copy_groups.size() > groups_left) {
    for (const Copy& copy : thread.copy_groups.front()) {
      land(copy);
      // Only its own thread knows so: to all others it is a write of this moment.
      if (race_checker != nullptr)
        race_checker->access(copy.target, copy.bytes.size(), true, race_moment);
    }
    thread.copy_groups.pop_front();
  }
}

// ---- other asynchronous work

void defer(void (*run)(const void* operation), const void* operation, std::size_t bytes) {
  const auto* first = static_cast<const std::byte*>(operation);
  scheduler().self().deferred.push_back({run, {first, first + bytes}});
}

void commit_deferred() {
  Thread& thread = scheduler().self();
  thread.deferred_groups.push_back(std::move(thread.deferred));
  thread.deferred.clear();
}

void wait_for_deferred(unsigned groups_left, Place place) {
  auto& groups = scheduler().self().deferred_groups;
  race_moment.in_products = true;
  while (groups.size() > groups_left) {
    for (const Deferred& deferred : groups.front()) deferred.run(deferred.operation.data());
    groups.pop_front();
  }
  race_moment.in_products = false;
  warp_collective("a wait for products", 0xffffffffu, nullptr, nullptr, place);
}

// ---- bulk copies

namespace {

void finish_phase(BarrierState& state) {
  if (state.arrivals_left != 0 || state.bytes_left != 0) return;
  state.phase ^= 1;
  state.arrivals_left = state.arrivals;
  if (RaceChecker* checker = scheduler().checker()) checker->complete(&state);
}

// Who makes a barrier writes it, and who uses it reads it.
void note_use(const BarrierState& state, bool makes) {
  if (race_checker != nullptr) race_checker->access(&state, sizeof state, makes, race_moment);
}

// Shared memory is all ones until someone makes a barrier there.
BarrierState& made_barrier(void* barrier, Place place) {
  auto& state = *static_cast<BarrierState*>(barrier);
  if (state.arrivals == 0xffff) fail("a barrier is used that nobody has made", place);
  return state;
}

void land(const Copy& copy, BarrierState& state) {
  land(copy, &state);
  state.bytes_left -= static_cast<int>(copy.bytes.size());
  finish_phase(state);
}

void arrive(BarrierState& state) {
  note_use(state, false);
  if (race_checker != nullptr) race_checker->arrive(&state, race_moment.thread);
  --state.arrivals_left;
  finish_phase(state);
}

}  // namespace

void barrier_init(void* barrier, unsigned arrivals) {
  auto& state = *static_cast<BarrierState*>(barrier);
  note_use(state, true);
  state.arrivals = state.arrivals_left = static_cast<unsigned short>(arrivals);
  state.bytes_left = 0;
  state.phase = 0;
}

void barrier_expect(void* barrier, unsigned bytes, Place place) {
  BarrierState& state = made_barrier(barrier, place);
  state.bytes_left += static_cast<int>(bytes);
  arrive(state);
}

void barrier_arrive(void* barrier, Place place) { arrive(made_barrier(barrier, place)); }

void copy_bulk(void* shared, const void* global, unsigned bytes, void* barrier, Place place) {
  check_aligned(shared, global, bytes, 16, place);
  if (bytes == 0) fail("a bulk copy of nothing", place);
  BarrierState* const state = &made_barrier(barrier, place);
  Copy copy = begin_copy(shared, global, bytes, true);
  if (scheduler().launch().copies_at_once)
    land(copy, *state);
  else
    scheduler().bulk_copies()[state].push_back(std::move(copy));
}

void barrier_wait(void* barrier, unsigned parity, Place place) {
  struct Wait {
    BarrierState* state;
    unsigned parity;
  } wait{&made_barrier(barrier, place), parity};
  note_use(*wait.state, false);
  wait_until(
      "a wait for bulk copies",
      [](void* argument) {
        const auto& w = *static_cast<Wait*>(argument);
        if (w.state->phase != w.parity) return true;
        for (const Copy& copy : scheduler().bulk_copies()[w.state])
          land(copy, static_cast<const void*>(w.state)),
              w.state->bytes_left -= static_cast<int>(copy.bytes.size());
        scheduler().bulk_copies().erase(w.state);
        finish_phase(*w.state);
        return w.state->phase != w.parity;
      },
      &wait, place);
  if (race_checker != nullptr) race_checker->passed(barrier, race_moment.thread);
}

}  // namespace ac::kernels::host
