// Where scratch buffers lie: each in the lowest gap between those that are alive with it.
#include <algorithm>
#include <cmath>

#include "program/program.h"

namespace ac {
namespace {

struct Life {
  std::size_t buffer;
  std::size_t first, last;  // launches
  std::int64_t bytes;
};

std::vector<Life> lives(const Program& program, const Phase& phase) {
  std::vector<Life> found;
  std::vector<int> known(program.buffers.size(), -1);
  const auto use = [&](std::int32_t index, std::size_t at) {
    const auto i = static_cast<std::size_t>(index);
    const Buffer& buffer = program.buffers[i];
    if (buffer.role != Buffer::Role::scratch) return;
    if (known[i] < 0) {
      known[i] = static_cast<int>(found.size());
      const std::int64_t bytes = std::max<std::int64_t>(buffer.bytes.at(phase.max_tokens), 1);
      found.push_back({i, at, at, aligned(bytes)});
    }
    found[static_cast<std::size_t>(known[i])].last = at;
  };
  const auto use_all = [&](const Launch& launch, std::size_t at) {
    for (const Launch::Pointer& pointer : launch.pointers) use(pointer.buffer, at);
    for (const Launch::Map& map : launch.maps) use(map.buffer, at);
  };
  for (std::size_t at = 0; at < phase.launches.size(); ++at) use_all(phase.launches[at], at);
  // These come when all that a step computes is done; what ends it computes nothing.
  for (const std::vector<Launch>* some : {&phase.draw, &phase.masked})
    for (const Launch& launch : *some) use_all(launch, phase.launches.size());
  // What the step leaves behind is read after it.
  if (phase.logits >= 0) use(phase.logits, phase.launches.size());
  return found;
}

std::int64_t place(Program& program, std::vector<Life> lives) {
  // Large ones first: small ones fit into what they leave.
  std::stable_sort(lives.begin(), lives.end(),
                   [](const Life& a, const Life& b) { return a.bytes > b.bytes; });
  std::int64_t end = 0;
  std::vector<const Life*> placed;
  for (const Life& life : lives) {
    std::vector<std::pair<std::int64_t, std::int64_t>> taken;  // begin, end
    for (const Life* other : placed)
      if (other->first <= life.last && life.first <= other->last) {
        const std::int64_t begin = program.buffers[other->buffer].offset;
        taken.emplace_back(begin, begin + other->bytes);
      }
    std::sort(taken.begin(), taken.end());
    std::int64_t at = 0;
    for (const auto& [begin, stop] : taken) {
      if (at + life.bytes <= begin) break;
      at = std::max(at, stop);
    }
    program.buffers[life.buffer].offset = at;
    end = std::max(end, at + life.bytes);
    placed.push_back(&life);
  }
  return end;
}

}  // namespace

void plan_memory(Program& program) {
  program.arena_bytes = 0;
  for (const Phase& phase : program.phases)
    program.arena_bytes = std::max(program.arena_bytes, place(program, lives(program, phase)));
}

std::vector<float> rope_table(const std::vector<float>& inv_freq, double scale,
                              std::int64_t positions) {
  std::vector<float> table;
  table.reserve(static_cast<std::size_t>(positions) * inv_freq.size() * 2);
  for (std::int64_t position = 0; position < positions; ++position)
    for (const float frequency : inv_freq) {
      const double angle = static_cast<double>(position) * static_cast<double>(frequency);
      table.push_back(static_cast<float>(std::cos(angle) * scale));
      table.push_back(static_cast<float>(std::sin(angle) * scale));
    }
  return table;
}

}  // namespace ac
