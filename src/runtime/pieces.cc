// What tokens of a sequence left in an engine's states, kept and brought back.
#include <optional>

#include "base/error.h"
#include "runtime/engine.h"

namespace ac {

// Tensor by tensor, [rows, tokens, size]. Parts of one length at one distance are given at once:
// where no window wraps, and states are alike, these are all.
void Engine::parts_of(
    std::int64_t begin, std::int64_t end,
    const std::function<void(std::size_t at, const Parts& in_states)>& copy) const {
  std::optional<Parts> parts;
  std::size_t first = 0;
  const auto add = [&](std::size_t at, std::byte* in_state, std::size_t bytes) {
    if (parts && parts->bytes == bytes) {
      const std::ptrdiff_t distance = in_state - (parts->first + (parts->count - 1) * parts->pitch);
      if (distance >= std::ptrdiff_t(bytes) &&
          (parts->count == 1 || distance == std::ptrdiff_t(parts->pitch))) {
        parts->pitch = static_cast<std::size_t>(distance), ++parts->count;
        return;
      }
    }
    if (parts) copy(first, *parts);
    parts = {.first = in_state, .bytes = bytes, .count = 1, .pitch = bytes};
    first = at;
  };
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
        add(at, static_cast<std::byte*>(addresses_[i]) + slot * slot_bytes, bytes);
        at += bytes;
      }
  }
  if (parts) copy(first, *parts);
}

std::size_t Engine::piece_bytes(std::int64_t tokens) const {
  std::size_t all = 0;
  parts_of(0, tokens, [&](std::size_t, const Parts& parts) { all += parts.count * parts.bytes; });
  return all;
}

bool Engine::holds(std::int64_t begin, std::int64_t end) const {
  for (const StateSpec& state : program_.states)
    if (!ac::holds(state, begin, reached_)) return false;
  return 0 <= begin && begin <= end && end <= position_;
}

void Engine::save(std::int64_t begin, std::int64_t end, const Device::Memory& to) {
  AC_ASSERT(holds(begin, end) && to.bytes() >= piece_bytes(end - begin));
  parts_of(begin, end, [&](std::size_t at, const Parts& from) {
    device_.copy_rows({.to = static_cast<std::byte*>(to.address()) + at,
                       .from = from.first,
                       .row_bytes = from.bytes,
                       .rows = from.count,
                       .to_pitch = from.bytes,
                       .from_pitch = from.pitch});
  });
}

void Engine::append(const Device::Memory& piece, std::int64_t tokens) {
  AC_ASSERT(piece.bytes() >= piece_bytes(tokens));
  check_step(tokens);
  parts_of(position_, position_ + tokens, [&](std::size_t at, const Parts& to) {
    device_.copy_rows({.to = to.first,
                       .from = static_cast<const std::byte*>(piece.address()) + at,
                       .row_bytes = to.bytes,
                       .rows = to.count,
                       .to_pitch = to.pitch,
                       .from_pitch = to.bytes});
  });
  set_position(position_ + tokens);
  reached_ = std::max(reached_, position_);
  last_ = nullptr;
}

}  // namespace ac
