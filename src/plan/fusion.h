// The fusion sub-planner: which neighbouring nodes of a step could share a kernel. Each
// neighbourhood is offered whole, in parts and not fused at all; what may not be one region says
// why. Choosing between them is the search's affair.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "families/list.h"

namespace ac {

enum class Fusion : std::uint8_t { full, partial, none };
std::string_view to_string(Fusion fusion);

// What becomes one kernel.
struct Part {
  // Without a value: the argmax of the logits, by a kernel of its own.
  std::optional<Wanted> wanted;
  int space = -1;  // filled in by the planner
};

struct FusionOption {
  Fusion fusion = Fusion::none;
  std::string text;  // "rms_norm+linear+linear+linear | silu"
  std::vector<Part> parts;
  std::optional<Boundary> refused;  // a part is no region; there are no parts then
  // The sum of what is predicted for the best candidate of each part, if all have one.
  std::optional<double> microseconds;
};

struct Neighbourhood {
  enum class Kind : std::uint8_t {
    products,       // of one x, with the norm before and the epilogue behind: QKV, gate and up, o
    head,           // the products that make the logits, with greedy sampling
    attention,      // norms and RoPE of query and key, append, attend
    projections,    // of many tokens: the products of q, k and v with the attention behind them;
                    // apart, they are left to the neighbourhoods that each of the two is
    residual_norm,  // an addition and the norm of its sum
    layers,  // all of the step, in one kernel or few; apart, their nodes are left to the other
             // neighbourhoods: that option has no parts
  };
  Kind kind = Kind::products;
  std::vector<NodeId> nodes;
  std::vector<FusionOption> options;
};
std::string_view to_string(Neighbourhood::Kind kind);

std::vector<Neighbourhood> propose_fusions(const UseDef& uses);

}  // namespace ac
