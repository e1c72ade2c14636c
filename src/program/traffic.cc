#include "program/traffic.h"

#include <algorithm>
#include <set>

namespace ac {

Traffic& Traffic::operator+=(const Traffic& other) {
  weights += other.weights, cache += other.cache, rest += other.rest;
  return *this;
}

Traffic traffic_of(const Program& program, const Launch& launch, std::int64_t tokens,
                   std::int64_t cached) {
  std::set<std::int32_t> touched;
  bool takes_ids = false;
  for (const Launch::Map& map : launch.maps) touched.insert(map.buffer);
  for (const Launch::Pointer& pointer : launch.pointers) {
    touched.insert(pointer.buffer);
    takes_ids |=
        program.buffers[static_cast<std::size_t>(pointer.buffer)].role == Buffer::Role::ids;
  }
  Traffic traffic;
  for (const std::int32_t index : touched) {
    const Buffer& buffer = program.buffers[static_cast<std::size_t>(index)];
    const std::int64_t bytes = buffer.bytes.at(tokens);
    switch (buffer.role) {
      case Buffer::Role::weight:
        // Of a table, the rows of the ids.
        traffic.weights += takes_ids && buffer.shape.size() == 2 && buffer.shape[0] > 0
                               ? bytes / buffer.shape[0] * std::min(tokens, buffer.shape[0])
                               : bytes;
        break;
      case Buffer::Role::state: {
        const StateSpec& state = program.states[static_cast<std::size_t>(buffer.state)];
        traffic.cache += bytes / state.slots * slots_touched(state, cached, tokens);
        break;
      }
      case Buffer::Role::rope_table:
        traffic.rest += bytes / program.max_context * tokens;
        break;
      case Buffer::Role::log:
      case Buffer::Role::until:
      case Buffer::Role::counters:
      case Buffer::Role::kept:
        break;
      default:
        traffic.rest += bytes;
    }
  }
  return traffic;
}

Traffic traffic_of(const Program& program, const Phase& phase, std::int64_t tokens,
                   std::int64_t cached) {
  Traffic sum;
  for (const Launch& launch : phase.launches) sum += traffic_of(program, launch, tokens, cached);
  return sum;
}

}  // namespace ac
