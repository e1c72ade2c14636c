// What an engine has cached, kept and brought back.
#include <algorithm>

#include "base/error.h"
#include "runtime/engine.h"

namespace ac {

std::size_t Engine::Snapshot::bytes() const {
  std::size_t bytes = 0;
  for (const auto& memory : memory_) bytes += memory->bytes();
  return bytes;
}

// A tensor is [rows, slots, size], and a snapshot keeps the same first slots of each row.
void Engine::pieces_of(
    const Snapshot& snapshot,
    const std::function<void(std::size_t memory, std::size_t at, std::byte* in_state,
                             std::size_t bytes)>& copy) const {
  std::size_t memory = 0;
  for (std::size_t i = 0; i < program_.buffers.size(); ++i) {
    const Buffer& buffer = program_.buffers[i];
    if (buffer.role != Buffer::Role::state) continue;
    const StateSpec& state = program_.states[static_cast<std::size_t>(buffer.state)];
    const std::int64_t rows = state.tensors[static_cast<std::size_t>(buffer.tensor)].rows;
    const auto row_bytes = static_cast<std::size_t>(buffer.bytes.fixed / rows);
    const auto kept =
        row_bytes / static_cast<std::size_t>(state.slots) *
        static_cast<std::size_t>(slots_kept(state, snapshot.tokens_, snapshot.reached_));
    for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row)
      copy(memory, row * kept, static_cast<std::byte*>(addresses_[i]) + row * row_bytes, kept);
    ++memory;
  }
}

Engine::Snapshot Engine::save(std::int64_t tokens) {
  check_truncate(tokens);
  Snapshot snapshot;
  snapshot.engine_ = this;
  snapshot.tokens_ = tokens;
  snapshot.reached_ = tokens == 0 ? 0 : reached_;
  std::vector<std::size_t> sizes;
  pieces_of(snapshot, [&](std::size_t memory, std::size_t at, std::byte*, std::size_t bytes) {
    sizes.resize(memory + 1);
    sizes[memory] = at + bytes;
  });
  for (const std::size_t size : sizes)
    snapshot.memory_.push_back(device_.allocate(std::max<std::size_t>(size, 1)));
  pieces_of(snapshot, [&](std::size_t memory, std::size_t at, std::byte* from, std::size_t bytes) {
    device_.copy(static_cast<std::byte*>(snapshot.memory_[memory]->address()) + at, from, bytes);
  });
  return snapshot;
}

void Engine::restore(const Snapshot& snapshot) {
  AC_ASSERT(snapshot.engine_ == this);
  pieces_of(snapshot, [&](std::size_t memory, std::size_t at, std::byte* to, std::size_t bytes) {
    device_.copy(to, static_cast<std::byte*>(snapshot.memory_[memory]->address()) + at, bytes);
  });
  set_position(snapshot.tokens_);
  reached_ = snapshot.reached_;
  last_ = nullptr;
}

}  // namespace ac
