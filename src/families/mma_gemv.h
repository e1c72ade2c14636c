// Products with one token or a few by tensor cores.
#pragma once

#include "families/gemv.h"
#include "kernels/mma_gemv_plan.h"

namespace ac {

struct MmaGemvTask : GemvProblem {
  static constexpr std::string_view family = "mma_gemv";
  static constexpr const char* left_out_on_host =
      "it computes what gemv does, slower where tensor cores are imitated";
  static constexpr bool few_as_one = true;  // they fill columns that one token leaves empty
  using Plan = kernels::MmaGemvPlan;

  static Match<MmaGemvTask> match(const Body& body);
  std::vector<Plan> plans() const;
  const char* why_illegal(const Plan& plan, const DeviceInfo& device) const;
  Footprint footprint(const Plan& plan, const DeviceInfo& device) const;
  Cost cost(const Plan& plan, const DeviceInfo& device) const {
    return roofline(*this, plan, device);
  }
  Extent extent(const Plan& plan) const;
  static void write_id(const Plan& plan, IdText& id);
  static std::string_view kind(const Plan& plan) {
    return plan.rows == 4 ? "4 rows" : plan.rows == 8 ? "8 rows" : "16 rows";
  }
  static Plan alone(const Plan& plan) { return for_one_token(plan); }
  Generated lower(const Lowering& to, const Plan& plan, const Operands& operands) const;
};

}  // namespace ac
