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

// A cache is [heads, slots, size], and its first tokens are the first slots of each head. Of a
// window, which goes round, all slots that hold something are kept: which token lies where follows
// from how many there were.
void Engine::pieces_of(
    const Snapshot& snapshot,
    const std::function<void(std::size_t memory, std::size_t at, std::byte* in_cache,
                             std::size_t bytes)>& copy) const {
  std::size_t memory = 0;
  for (std::size_t i = 0; i < program_.buffers.size(); ++i) {
    const Buffer& buffer = program_.buffers[i];
    if (buffer.kind != Buffer::Kind::keys && buffer.kind != Buffer::Kind::values) continue;
    const CacheSpec& cache = program_.caches[static_cast<std::size_t>(buffer.cache)];
    const auto head_bytes = static_cast<std::size_t>(buffer.bytes.fixed / cache.heads);
    const std::int64_t last = cache.window > 0 ? snapshot.reached_ : snapshot.tokens_;
    const std::size_t kept = head_bytes / static_cast<std::size_t>(cache.slots) *
                             static_cast<std::size_t>(std::min(last, cache.slots));
    for (std::int64_t head = 0; head < cache.heads; ++head) {
      const auto h = static_cast<std::size_t>(head);
      copy(memory, h * kept, static_cast<std::byte*>(addresses_[i]) + h * head_bytes, kept);
    }
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
