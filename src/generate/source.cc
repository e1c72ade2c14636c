#include "generate/source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "build/digest.h"

namespace ac {

KernelSource instantiate(std::string_view family, std::string_view op_type, const std::string& op,
                         std::string_view plan_type, const std::string& plan,
                         const std::string& functor) {
  std::string macro = fmt::format("AC_{}_KERNEL", family);
  std::ranges::transform(macro, macro.begin(), [](unsigned char c) { return std::toupper(c); });
  const std::string what = fmt::format("{}|{}|{}|{}", macro, op, plan, functor);
  const std::string entry = fmt::format("{}_{}", family, sha256(what).substr(0, 8));
  // Several of these may stand in one file: each has a namespace of its own.
  std::string text =
      fmt::format("#include \"kernels/{}.cuh\"\n\nnamespace ac::kernels::{} {{\n", family, entry);
  text += fmt::format("constexpr {} op{};\n", op_type, op);
  text += fmt::format("constexpr {} plan{};\n", plan_type, plan);
  if (!functor.empty()) text += fmt::format("struct Chain {{\n{}}};\n", functor);
  text += fmt::format("{}({}, op, plan{})\n", macro, entry, functor.empty() ? "" : ", Chain");
  text += fmt::format("}}  // namespace ac::kernels::{}\n", entry);
  return {entry, text};
}

}  // namespace ac
