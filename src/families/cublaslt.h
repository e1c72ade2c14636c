// Products of many tokens by cuBLASLt, each matrix by itself.
#pragma once

#include "families/products.h"

namespace ac {

struct LibraryPlan {
  int algorithm = 0;              // of those that the library proposes,
  kernels::GemmShape chosen_for;  // for this
  AC_FIELDS(LibraryPlan, algorithm)
};

struct LibraryTask : GemmProblem {
  static constexpr std::string_view family = "cublaslt";
  static constexpr const char* left_out_on_host =
      "the host has no such library, but for what --families names";
  using Plan = LibraryPlan;

  static Match<LibraryTask> match(const Body& body);
  std::vector<Plan> plans() const;
  const char* why_illegal(const Plan& plan, const DeviceInfo& device) const;
  // A library's kernels are not ours to describe.
  Footprint footprint(const Plan&, const DeviceInfo&) const {
    return {.threads = 128, .blocks_per_sm = 1, .grid = 1};
  }
  Cost cost(const Plan& plan, const DeviceInfo& device) const;
  // As few tokens as make it take the algorithm that is wanted.
  Extent extent(const Plan& plan) const {
    return {.block = 32, .library_tokens = plan.chosen_for.m / 2 + 1};
  }
  static void write_id(const Plan& plan, IdText& id) { id.add("algorithm/{}", plan.algorithm); }
  static std::string_view kind(const Plan&) { return "library"; }
  Generated lower(const Lowering& to, const Plan& plan, const Operands& operands) const;
};

}  // namespace ac
