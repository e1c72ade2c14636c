// What a model keeps of a sequence from step to step. A model declares its states, and an op of
// memory `state` names one. What a kind means, besides its ops and kernels, is said here: its
// memory, which tokens it holds, what a piece of a sequence left in it, and how far back it can go.
// Reference, gate, lab and engine loop over specs.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/weight_format.h"

namespace ac {

enum class StateKind : std::uint8_t {
  kv,  // keys and values of an attention: a row for each head, a slot for each token
};
inline constexpr std::array<std::string_view, 1> kStateKinds = {"kv"};

// Elements [rows, slots, size].
struct StateTensor {
  std::string name;  // "keys"
  std::int64_t rows = 0, size = 0;
  DType dtype = DType::f16;  // in memory
  bool operator==(const StateTensor&) const = default;
};

struct StateSpec {
  StateKind kind = StateKind::kv;
  DType dtype = DType::f16;  // what elements mean, however they are stored
  std::vector<StateTensor> tensors = {};
  std::int64_t window = 0;  // tokens that a token sees, itself included; 0: all
  // Tokens that there is room for: the one at a position lies in the slot position % slots. 0 in a
  // step, which does not decide it.
  std::int64_t slots = 0;
  std::string module = {};  // for people

  std::string_view kind_name() const { return kStateKinds[static_cast<std::size_t>(kind)]; }
  bool operator==(const StateSpec&) const = default;
};

// As signatures of regions say it: "bf16 heads=8 key=64 value=64 window=0".
std::string to_string(const StateSpec& state);

// ---- memory

// Why there can be no such state, or null.
const char* why_impossible(const StateSpec& state);
// Of all tensors.
std::int64_t elements_of_token(const StateSpec& state);
std::int64_t bytes_of_token(const StateSpec& state);
std::int64_t bytes_of(const StateSpec& state, std::size_t tensor);
// Where a token's elements begin in a row of a tensor with so many slots.
std::int64_t element_at(const StateTensor& tensor, std::int64_t slots, std::int64_t row,
                        std::int64_t token);

// ---- time

// Slots for so many tokens in steps of up to `chunk`. A window's are a ring with room for a chunk
// more: a step of many tokens overwrites no token that its first one still sees.
std::int64_t slots_for(const StateSpec& state, std::int64_t max_context, std::int64_t chunk);
// Whether this many slots hold all that a step of `tokens` tokens after `cached` ones sees.
bool can_hold(const StateSpec& state, std::int64_t slots, std::int64_t cached, std::int64_t tokens);
// Slots that such a step reads or writes.
std::int64_t slots_touched(const StateSpec& state, std::int64_t cached, std::int64_t tokens);

// ---- pieces: what some tokens of a sequence left, to be kept elsewhere and brought back after
// what the tokens before them left

struct SlotRun {
  std::int64_t first = 0, count = 0;
  bool operator==(const SlotRun&) const = default;
};
// Where it lies, in the order of the tokens `begin` to `end`, which are at most as many as slots.
std::vector<SlotRun> slots_of(const StateSpec& state, std::int64_t begin, std::int64_t end);
// Whether it is still there after `reached` tokens.
bool holds(const StateSpec& state, std::int64_t begin, std::int64_t reached);

// ---- rewinding

// Whether the state after `tokens` tokens is still there after `reached`.
bool can_rewind(const StateSpec& state, std::int64_t tokens, std::int64_t reached);
// Tokens that may be run and forgotten again, wherever a sequence of up to max_context is.
std::int64_t slack(const StateSpec& state, std::int64_t max_context);

// ---- keys and values

// How keys and values are stored.
enum class KvStorage : std::uint8_t {
  elements,  // of the type that they mean
  // Codes of FP8 (E4M3), and a float32 scale for each head and token of keys and of values: the
  // largest magnitude is the code 448. kernels/row_codes.h has the rule.
  fp8,
};
inline constexpr std::array<std::string_view, 2> kKvStorages = {"auto",
                                                                "fp8"};  // as options say it

StateSpec kv_state(DType dtype, std::int64_t heads, std::int64_t key_size, std::int64_t value_size,
                   std::int64_t window, std::string module = {}, std::int64_t slots = 0,
                   KvStorage storage = KvStorage::elements);
std::string_view name_of(KvStorage storage);
KvStorage storage_of(const StateSpec& state);
// Of a model's states, which all are stored in one way.
KvStorage storage_of(const std::vector<StateSpec>& states);
struct KvSizes {
  std::int64_t heads, key_size, value_size;
};
// For the ops of this kind.
KvSizes kv_sizes(const StateSpec& state);
// Tensors; the last two of FP8 alone.
inline constexpr std::size_t kKeys = 0, kValues = 1, kKeyScales = 2, kValueScales = 3;

// ---- for the gate and for measurements

// Whether numbers are rounded to codes as they are appended.
bool has_codes(const StateSpec& state);
// What a tensor holds, as of a weight in a format: elements, codes or scales.
WeightPart::Kind part_of(const StateSpec& state, std::size_t tensor);
// Random elements that mean numbers of about 1: uniform in offset +- scale.
struct RandomElements {
  double offset = 0, scale = 1;
};
RandomElements random_of(const StateSpec& state, std::size_t tensor);
// Whether an element of the tensor may be as large as its type allows. Keys may not: scores of
// those leave no weight to any other token.
bool may_be_huge(const StateSpec& state, std::size_t tensor);

}  // namespace ac
