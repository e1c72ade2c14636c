// One piece of memory that launches read and write: what it holds, and where that comes from. A
// generator names buffers by the nodes of a step; in a program they have their places. The gate,
// the lab and the engine give each an address, and launch by one loop (launch_all).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/weight_layout.h"
#include "program/launch.h"

namespace ac {

struct Buffer {
  enum class Role : std::uint8_t {
    ids,         // token ids of a step: an input
    position,    // i32[1]: tokens before those of a step
    token,       // i32[1]: the token that a step chose
    log,         // i32[max_context + 1]: the token that was chosen for each position
    until,       // when a text ends (kernels/advance_plan.h)
    settings,    // how a request draws its tokens (program/sampling.h)
    allowed,     // a bit for each token that may be chosen (kernels/mask_logits_plan.h)
    weight,      // tensor `key` of `store`, of this shape: a weight, or one part of it
    constant,    // what `node` says; of a program, at `offset` of constants.bin
    rope_table,  // f32[positions, rotary / 2, 2]: cosine and sine of position * inv_freq, * scale
    state,       // tensor `tensor` of the state `state`
    scratch,     // what `node` leaves for later launches of the step, or work space without one; of
                 // a program, at `offset` of the arena, which the buffers of a phase share
    counters,    // 0 before the first launch, and after every one
    kept,        // 0 before the first launch; then what launches have left, of whatever step
  };
  Role role = Role::scratch;
  std::string name = {};  // for people
  DType dtype = DType::i32;
  Count bytes = {};                      // 0: whoever gives it an address knows
  std::int32_t node = -1;                // of a step: constant, scratch; rope_table: inv_freq
  std::string store = {}, key = {};      // weight
  std::vector<std::int64_t> shape = {};  // weight
  std::int64_t offset = 0;               // of a program: constant, scratch
  std::int64_t state = -1;               // state
  std::int32_t tensor = 0;               // state
  std::int32_t source = -1;              // of a program, rope_table: the buffer of inv_freq
  double scale = 1;                      // rope_table
  PartInFile in_file = {};               // weight: the part of a format that this is

  bool is_workspace() const { return role == Role::scratch && node < 0; }
  // Whether each sequence has one of its own.
  bool is_of_sequence() const;
  // Where random elements are as large as those of a trained weight.
  double typical(int which = 0) const;
  WeightPart weight_part() const { return in_file.traits_of_part(); }
  bool operator==(const Buffer&) const = default;
};
std::string_view to_string(Buffer::Role role);
// Up to where the next buffer in the same memory may begin.
constexpr std::int64_t aligned(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

Json to_json(const Buffer& buffer);
Buffer buffer_from_json(const Json& json, const std::string& origin);

}  // namespace ac
