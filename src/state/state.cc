#include "state/state.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace ac {

std::string to_string(const StateSpec& state) {
  const KvSizes sizes = kv_sizes(state);
  return fmt::format("{} heads={} key={} value={} window={}", short_name(state.dtype), sizes.heads,
                     sizes.key_size, sizes.value_size, state.window);
}

const char* why_impossible(const StateSpec& state) {
  if (state.tensors.size() != 2 || state.tensors[kKeys].name != "keys" ||
      state.tensors[kValues].name != "values")
    return "is not of keys and values";
  if (state.tensors[kKeys].rows != state.tensors[kValues].rows)
    return "has more heads of keys than of values, or fewer";
  for (const StateTensor& tensor : state.tensors)
    if (tensor.rows < 1 || tensor.size < 1) return "has an empty axis";
  if (state.window < 0) return "has a negative window";
  return nullptr;
}

std::int64_t elements_of_token(const StateSpec& state) {
  std::int64_t elements = 0;
  for (const StateTensor& tensor : state.tensors) elements += tensor.rows * tensor.size;
  return elements;
}

std::int64_t bytes_of(const StateSpec& state, std::size_t tensor) {
  return state.tensors.at(tensor).rows * state.slots * state.tensors.at(tensor).size *
         static_cast<std::int64_t>(bytes_of(state.dtype));
}

std::int64_t element_at(const StateTensor& tensor, std::int64_t slots, std::int64_t row,
                        std::int64_t token) {
  return (row * slots + token % slots) * tensor.size;
}

std::int64_t slots_for(const StateSpec& state, std::int64_t max_context, std::int64_t chunk) {
  if (state.window == 0 || state.window >= max_context) return max_context;
  return std::min(max_context, state.window + chunk - 1);
}

bool can_hold(const StateSpec& state, std::int64_t slots, std::int64_t cached,
              std::int64_t tokens) {
  return cached + tokens <= slots || (state.window > 0 && state.window <= slots);
}

std::int64_t slots_touched(const StateSpec& state, std::int64_t cached, std::int64_t tokens) {
  const std::int64_t slots = std::min(cached + tokens, state.slots);
  if (state.window == 0 || state.window >= slots) return slots;
  return std::min(slots, state.window + tokens - 1);
}

// A ring may go round between two tokens.
std::vector<SlotRun> slots_of(const StateSpec& state, std::int64_t begin, std::int64_t end) {
  AC_ASSERT(0 <= begin && begin <= end && end - begin <= state.slots);
  const std::int64_t first = begin % state.slots;
  const std::int64_t before = std::min(end - begin, state.slots - first);
  std::vector<SlotRun> runs;
  if (before > 0) runs.push_back({first, before});
  if (before < end - begin) runs.push_back({0, end - begin - before});
  return runs;
}

bool holds(const StateSpec& state, std::int64_t begin, std::int64_t reached) {
  return begin >= reached - state.slots;
}

bool can_rewind(const StateSpec& state, std::int64_t tokens, std::int64_t reached) {
  return state.window == 0 || tokens == 0 ||
         std::max<std::int64_t>(tokens - state.window + 1, 0) >= reached - state.slots;
}

std::int64_t slack(const StateSpec& state, std::int64_t max_context) {
  return state.window > 0 && state.slots < max_context ? state.slots - state.window : max_context;
}

StateSpec kv_state(DType dtype, std::int64_t heads, std::int64_t key_size, std::int64_t value_size,
                   std::int64_t window, std::string module, std::int64_t slots) {
  return {.kind = StateKind::kv,
          .dtype = dtype,
          .tensors = {{"keys", heads, key_size}, {"values", heads, value_size}},
          .window = window,
          .slots = slots,
          .module = std::move(module)};
}

KvSizes kv_sizes(const StateSpec& state) {
  AC_ASSERT(state.kind == StateKind::kv && state.tensors.size() == 2);
  return {state.tensors[kKeys].rows, state.tensors[kKeys].size, state.tensors[kValues].size};
}

bool may_be_huge(const StateSpec&, std::size_t tensor) { return tensor != kKeys; }

}  // namespace ac
