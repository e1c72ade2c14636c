// Kernel source from op and plan.
#pragma once

#include <string>
#include <string_view>

#include "build/compile.h"

namespace ac {

// Instantiates `macro` of `header` ("kernels/gemv.cuh"). The entry is named for the family and for
// all that makes the kernel what it is, so that equal kernels have one name. `functor` is the body
// of a struct that the macro takes as a further argument; may be empty.
KernelSource instantiate(std::string_view family, std::string_view header, std::string_view macro,
                         std::string_view op_type, const std::string& op,
                         std::string_view plan_type, const std::string& plan,
                         const std::string& functor = {});

}  // namespace ac
