// What tokens of a sequence left in an engine's states, kept and brought back.
#include "base/error.h"
#include "runtime/engine.h"

namespace ac {

// Tensor by tensor, [rows, tokens, size].
void Engine::parts_of(
    std::int64_t begin, std::int64_t end,
    const std::function<void(std::size_t at, std::byte* in_state, std::size_t bytes)>& copy) const {
  std::size_t at = 0;
  for (std::size_t i = 0; i < program_.buffers.size(); ++i) {
    const Buffer& buffer = program_.buffers[i];
    if (buffer.role != Buffer::Role::state) continue;
    const StateSpec& state = program_.states[static_cast<std::size_t>(buffer.state)];
    const std::int64_t rows = state.tensors[static_cast<std::size_t>(buffer.tensor)].rows;
    const auto slot_bytes = static_cast<std::size_t>(buffer.bytes.fixed / rows / state.slots);
    const std::vector<SlotRun> runs = slots_of(state, begin, end);
    for (std::int64_t row = 0; row < rows; ++row)
      for (const SlotRun& run : runs) {
        const auto slot = static_cast<std::size_t>(row * state.slots + run.first);
        const std::size_t bytes = static_cast<std::size_t>(run.count) * slot_bytes;
        copy(at, static_cast<std::byte*>(addresses_[i]) + slot * slot_bytes, bytes);
        at += bytes;
      }
  }
}

std::size_t Engine::piece_bytes(std::int64_t tokens) const {
  std::size_t all = 0;
  parts_of(0, tokens, [&](std::size_t, std::byte*, std::size_t bytes) { all += bytes; });
  return all;
}

bool Engine::holds(std::int64_t begin, std::int64_t end) const {
  for (const StateSpec& state : program_.states)
    if (!ac::holds(state, begin, reached_)) return false;
  return 0 <= begin && begin <= end && end <= position_;
}

void Engine::save(std::int64_t begin, std::int64_t end, const Device::Memory& to) {
  AC_ASSERT(holds(begin, end) && to.bytes() >= piece_bytes(end - begin));
  parts_of(begin, end, [&](std::size_t at, std::byte* from, std::size_t bytes) {
    device_.copy(static_cast<std::byte*>(to.address()) + at, from, bytes);
  });
}

void Engine::append(const Device::Memory& piece, std::int64_t tokens) {
  AC_ASSERT(piece.bytes() >= piece_bytes(tokens));
  check_step(tokens);
  parts_of(position_, position_ + tokens, [&](std::size_t at, std::byte* to, std::size_t bytes) {
    device_.copy(to, static_cast<const std::byte*>(piece.address()) + at, bytes);
  });
  set_position(position_ + tokens);
  reached_ = std::max(reached_, position_);
  last_ = nullptr;
}

}  // namespace ac
