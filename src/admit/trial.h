// What is run to admit one implementation of a region: the region as a small step of its own, of
// sizes that a CPU can run (every inner dimension and every tail is the real one; outer extents may
// be smaller), and the launches that compute it. A package keeps its trials, so that admission can
// be repeated anywhere.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/json.h"
#include "generate/generate.h"
#include "validate/gate.h"

namespace ac {

// What a trial is for: whether a candidate may be timed, whether it may be used where it was
// chosen, and whether its threads race.
enum class Purpose : std::uint8_t { quick, as_used, races };
std::string_view to_string(Purpose purpose);

struct Trial {
  Purpose purpose = Purpose::quick;
  std::string step;  // in its printed form
  std::int64_t tokens = 1, capacity = 1;
  // Steps of as many tokens are tried too, by a few launches: those around a tile's.
  std::vector<std::int64_t> other_tokens = {};
  std::vector<std::int64_t> positions;         // edges
  std::map<std::string, std::int64_t> limits;  // of inputs that hold ids
  // Weights with more rows than this repeat so many, and what else has as many columns repeats its
  // columns (validate/repeated_subject.h); 0: none does.
  std::int64_t distinct_rows = 0;
  // A kernel that chooses the largest of so many logits: there is no step then.
  std::int64_t vocab = 0;
  DType logits = DType::f32;
  // Positions of the log of a kernel that ends a step: the step has the token ids and no op then.
  std::int64_t log = 0;
  // Or one that draws a token, after the largest was chosen.
  bool draws = false;
  // Or one that chooses among the tokens that a mask allows. Of its buffers, the node 0 is the
  // logits, and the node 1 what the mask leaves of them.
  bool masks = false;
  bool expensive = false;  // so much work that the truth of some rows must do, and fewer repeats
  bool vast = false;       // so much that fewer scenarios must do as well
  bool thorough = false;   // more scenarios than usual
  // A NaN or infinity among the values of new tokens may reach tokens that do not see it, as in
  // attention that multiplies by 0 instead of leaving out; scenarios with those are left out.
  bool spreads = false;
  // It rounds weights in a format of codes to their dtype, as whoever publishes them does: so does
  // the plain implementation that its errors are measured by.
  bool rounds_weights = false;
  // Launches that take several rows run with so many, each with memory of its own, one of which is
  // judged, another one each time; 1: there are no such launches.
  std::int64_t rows = 1;
  std::vector<Buffer> buffers;
  std::vector<Launch> launches;
  // What computes the step's first token in a step of one. A token among others must have the bits
  // that it has there, if there are any launches.
  std::vector<Launch> alone = {};
  // All that may run, in an order of no meaning.
  std::vector<const Launch*> all_launches() const;
};
// Rows of a launch whose truth is computed where the real extents are judged.
inline constexpr std::int64_t kJudgedRows = 16;
// The trial's step with `rows` in its weights at most, if that can be its distinct_rows.
std::optional<StepGraph> with_distinct_rows(const Trial& trial, std::int64_t rows);
// How thoroughly the gate looks at a trial.
validate::GateOptions gate_for(const Trial& trial);
Json to_json(const Trial& trial);
Trial trial_from_json(const Json& json, const std::string& origin);
// That all it refers to is there, and of a size that makes sense. An error (bad_input) says what is
// not.
void verify(const Trial& trial, const std::string& origin);

// Carries out the launches of a trial, with its buffers at these places, those of each row one
// after the other, and returns what went wrong or "". `order` counts: who can vary the order of
// threads or blocks does so by it.
using RunLaunches = std::function<std::string(
    const Trial& trial, const std::vector<std::span<std::byte>>& places, unsigned order)>;

validate::Verdict run_trial(const Trial& trial, const RunLaunches& run);

}  // namespace ac
