// Kernel source from op and plan.
#pragma once

#include <string>
#include <string_view>

#include "build/compile.h"
#include "generate/plan_text.h"

namespace ac {

// Instantiates the macro of a family's header: AC_GEMV_KERNEL of kernels/gemv.cuh for "gemv". The
// entry is named for the family and for all that makes the kernel what it is, so that equal kernels
// have one name. `functor` is the body of a struct that the macro takes as a further argument; may
// be empty.
KernelSource instantiate(std::string_view family, std::string_view op_type, const std::string& op,
                         std::string_view plan_type, const std::string& plan,
                         const std::string& functor = {});

template <class Op, class Plan>
KernelSource source_of(std::string_view family, const Op& op, const Plan& plan,
                       const std::string& functor = {}) {
  static_assert(lists_all_fields<Op>() && lists_all_fields<Plan>());
  return instantiate(family, struct_name(op), cpp_of(op), struct_name(plan), cpp_of(plan), functor);
}

}  // namespace ac
