// Whole layers of a decoder for one token, in one launch whose blocks wait for each other.
#pragma once

#include "families/family.h"
#include "kernels/layers_plan.h"

namespace ac {

struct LayersTask {
  static constexpr std::string_view family = "layers";
  // So that a whole model can be run with it where there is no GPU.
  static constexpr const char* left_out_on_host =
      "the host gains nothing by it, and takes it only where --families names it";
  using Plan = kernels::LayersPlan;
  // Rows of a weight, of which there may be others before.
  struct Matrix {
    NodeId weight = -1;
    std::int64_t first_row = 0;
  };
  struct LayerOperands {
    NodeId norm = -1, mlp_norm = -1, q_norm = -1, k_norm = -1;  // rms_norm nodes
    Matrix q, k, v, o, gate, up, down;
    NodeId rope = -1;    // of the query: the key's is equal
    NodeId attend = -1;  // the append_attend node
  };
  struct Operands {
    NodeId in = -1, out = -1;
    std::vector<LayerOperands> layers;
  };
  kernels::LayersOp op;
  int layers = 1;
  int tokens = 0;  // that are cached

  static Match<LayersTask> match(const Body& body);
  std::vector<Plan> plans() const;
  const char* why_illegal(const Plan& plan, const DeviceInfo& device) const;
  Footprint footprint(const Plan& plan, const DeviceInfo& device) const;
  Cost cost(const Plan& plan, const DeviceInfo& device) const;
  double bytes() const;
  double flops() const;
  Extent extent(const Plan& plan) const;
  static void write_id(const Plan& plan, IdText& id);
  static std::string_view kind(const Plan&) { return "words"; }
  Generated lower(const Lowering& to, const Plan& plan, const Operands& operands) const;
};

}  // namespace ac
