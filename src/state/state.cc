#include "state/state.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace ac {

std::string to_string(const StateSpec& state) {
  const KvSizes sizes = kv_sizes(state);
  return fmt::format("{} heads={} key={} value={} window={}{}", short_name(state.dtype),
                     sizes.heads, sizes.key_size, sizes.value_size, state.window,
                     storage_of(state) == KvStorage::fp8 ? " fp8" : "");
}

const char* why_impossible(const StateSpec& state) {
  const std::vector<StateTensor>& tensors = state.tensors;
  const bool has_scales = tensors.size() == 4;
  if ((tensors.size() != 2 && !has_scales) || tensors[kKeys].name != "keys" ||
      tensors[kValues].name != "values")
    return "is not of keys and values";
  if (tensors[kKeys].rows != tensors[kValues].rows)
    return "has more heads of keys than of values, or fewer";
  for (const StateTensor& tensor : tensors)
    if (tensor.rows < 1 || tensor.size < 1) return "has an empty axis";
  if (state.window < 0) return "has a negative window";
  const StateSpec fitting =
      kv_state(state.dtype, tensors[kKeys].rows, tensors[kKeys].size, tensors[kValues].size,
               state.window, {}, 0, has_scales ? KvStorage::fp8 : KvStorage::elements);
  if (tensors != fitting.tensors)
    return "is stored neither as its elements nor as codes of FP8 with a scale for each head";
  return nullptr;
}

std::int64_t elements_of_token(const StateSpec& state) {
  std::int64_t elements = 0;
  for (const StateTensor& tensor : state.tensors) elements += tensor.rows * tensor.size;
  return elements;
}

std::int64_t bytes_of_token(const StateSpec& state) {
  std::int64_t bytes = 0;
  for (const StateTensor& tensor : state.tensors)
    bytes += tensor.rows * tensor.size * static_cast<std::int64_t>(bytes_of(tensor.dtype));
  return bytes;
}

std::int64_t bytes_of(const StateSpec& state, std::size_t tensor) {
  const StateTensor& of = state.tensors.at(tensor);
  return of.rows * state.slots * of.size * static_cast<std::int64_t>(bytes_of(of.dtype));
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
                   std::int64_t window, std::string module, std::int64_t slots, KvStorage storage) {
  const bool is_fp8 = storage == KvStorage::fp8;
  const DType stored = is_fp8 ? DType::f8e4m3 : dtype;
  StateSpec state{
      .kind = StateKind::kv,
      .dtype = dtype,
      .tensors = {{"keys", heads, key_size, stored}, {"values", heads, value_size, stored}},
      .window = window,
      .slots = slots,
      .module = std::move(module)};
  if (is_fp8)
    for (const char* name : {"key_scales", "value_scales"})
      state.tensors.push_back({name, heads, 1, DType::f32});
  return state;
}

KvStorage storage_of(const StateSpec& state) {
  return state.kind == StateKind::kv && state.tensors.size() > 2 ? KvStorage::fp8
                                                                 : KvStorage::elements;
}

KvStorage storage_of(const std::vector<StateSpec>& states) {
  return states.empty() ? KvStorage::elements : storage_of(states.front());
}

std::string_view name_of(KvStorage storage) {
  return kKvStorages[static_cast<std::size_t>(storage)];
}

KvSizes kv_sizes(const StateSpec& state) {
  AC_ASSERT(state.kind == StateKind::kv && state.tensors.size() >= 2);
  return {state.tensors[kKeys].rows, state.tensors[kKeys].size, state.tensors[kValues].size};
}

bool may_be_huge(const StateSpec& state, std::size_t tensor) {
  return storage_of(state) == KvStorage::elements && tensor != kKeys;
}

bool has_codes(const StateSpec& state) { return storage_of(state) == KvStorage::fp8; }

WeightPart::Kind part_of(const StateSpec& state, std::size_t tensor) {
  if (storage_of(state) == KvStorage::elements) return WeightPart::Kind::elements;
  return tensor < kKeyScales ? WeightPart::Kind::codes : WeightPart::Kind::scales;
}

RandomElements random_of(const StateSpec& state, std::size_t tensor) {
  constexpr double kCode = 128;  // with three times as much, codes are still in range
  switch (part_of(state, tensor)) {
    case WeightPart::Kind::codes:
      return {0, kCode};
    case WeightPart::Kind::scales:
      return {1 / kCode, 1 / (2 * kCode)};
    default:
      return {};
  }
}

}  // namespace ac
