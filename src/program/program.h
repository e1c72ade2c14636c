// A compiled model as data: buffers, and a list of phases, each with the launches that run a step.
// This is what program.json of a package holds, and all that a runtime knows of a model.
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/json.h"
#include "program/buffer.h"
#include "program/launch.h"
#include "state/state.h"

namespace ac {

// A step has a row for each token. The head gives logits to the last row, or to all rows. In a step
// of each, a row is one token of a sequence of its own, and has logits.
enum class Rows : std::uint8_t { last, all, each };
constexpr std::array<std::string_view, 3> kRows = {"last", "all", "each"};

// The steps of min_tokens to max_tokens that follow `from` cached tokens or more, and what runs
// them. It computes the right thing after fewer cached tokens too, only slower than another phase.
struct Phase {
  std::string name = {};  // "prefill", "decode"; equal for phases that differ in `from` alone
  std::int64_t min_tokens = 1, max_tokens = 1;
  std::int64_t from = 0;
  std::vector<Launch> launches = {};
  std::vector<std::string> notes = {};  // of each launch: the implementation and where in the model
  std::int32_t ids = -1, logits = -1;   // buffers
  // A step of a request that draws its tokens, instead of taking the likeliest, runs these before
  // its last launch. None: such requests cannot be served.
  std::vector<Launch> draw = {};
  // Chooses again after a step, among the tokens that a mask allows: the first and the last of
  // these for the likeliest, all of them to draw. There are some where there are some of `draw`.
  // In steps of several sequences, these run for each row, in place of `draw` and of what ends a
  // step of one.
  std::vector<Launch> masked = {};
  Rows rows = Rows::last;
  std::vector<const Launch*> all() const;  // of all three lists
  std::string label() const;               // "decode from 4096"; the name where `from` is 0
  bool operator==(const Phase&) const = default;
};

struct Program {
  std::string model;
  std::string target;  // "host", "sm_90a"
  DType dtype = DType::f32;
  std::int64_t vocab = 0, max_context = 0;
  bool quick = false;          // kernels of the cost model's choice: a faster program can be made
  std::int64_t positions = 0;  // that the model is right for; 0: any
  std::string positions_because;  // why no more; may be empty
  std::vector<StateSpec> states;
  std::map<std::string, std::string> stores;  // name to path
  std::vector<Buffer> buffers;
  std::int64_t arena_bytes = 0, constant_bytes = 0;
  std::map<std::string, std::string> kernels;  // entry to file, in the package
  std::vector<Phase> phases;  // for each step of 1 to longest_step() tokens there is one

  // The phase that runs a step of `tokens` tokens after `cached` ones.
  // Of steps of several sequences: the phase for one that has so many cached.
  const Phase& phase_of(std::int64_t tokens, std::int64_t cached, Rows rows = Rows::last) const;
  // Tokens; 0 if no phase has these rows. Buffers have room for the longest step with the last row,
  // and no other is longer.
  std::int64_t longest_step(Rows rows = Rows::last) const;
  bool draws() const;       // whether requests may draw their tokens, and choose under a mask
  DType ids_dtype() const;  // of token ids, in all phases
  bool operator==(const Program&) const = default;
};

// Puts the scratch buffers of all phases into one arena, so that those alive at once do not meet.
void plan_memory(Program& program);

// That every launch, pointer and buffer is inside of what it refers to. An error (bad_input) names
// the phase, launch and buffer.
void verify(const Program& program, const std::string& origin);

Json to_json(const Program& program);
Program program_from_json(const Json& json, const std::string& origin);
// Whether it is of the format that this program reads.
bool has_this_format(const Json& json);

StateSpec state_from_json(const Json& json, const std::string& origin);
Json to_json(const Count& count);
Count count_from_json(const Json& json, const std::string& origin);
Json to_json(const Launch& launch);
Launch launch_from_json(const Json& json, const std::string& origin);

// Cosine and sine of position * inv_freq, times scale: [positions, inv_freq.size(), 2].
std::vector<float> rope_table(const std::vector<float>& inv_freq, double scale,
                              std::int64_t positions);

}  // namespace ac
