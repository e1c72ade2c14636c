#include "compile/states.h"

namespace ac {
namespace {

constexpr std::int64_t kChunkOnGpu = 2048, kChunkOnHost = 128;

}  // namespace

std::int64_t default_chunk(const DeviceInfo& device) {
  return device.sm > 0 ? kChunkOnGpu : kChunkOnHost;
}

std::vector<StateSpec> sized_states(const StepGraph& step, std::int64_t max_context,
                                    std::int64_t chunk) {
  std::vector<StateSpec> states = step.states;
  for (StateSpec& state : states) {
    state.slots = slots_for(state, max_context, chunk);
    state.module.clear();
  }
  return states;
}

}  // namespace ac
