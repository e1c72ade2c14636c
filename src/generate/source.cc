#include "generate/source.h"

#include <fmt/format.h>

#include "build/digest.h"

namespace ac {

KernelSource instantiate(std::string_view family, std::string_view header, std::string_view macro,
                         std::string_view op_type, const std::string& op,
                         std::string_view plan_type, const std::string& plan,
                         const std::string& functor) {
  const std::string what = fmt::format("{}|{}|{}|{}", macro, op, plan, functor);
  const std::string entry = fmt::format("{}_{}", family, sha256(what).substr(0, 8));
  // Several of these may stand in one file: each has a namespace of its own.
  std::string text =
      fmt::format("#include \"{}\"\n\nnamespace ac::kernels::{} {{\n", header, entry);
  text += fmt::format("constexpr {} op{};\n", op_type, op);
  text += fmt::format("constexpr {} plan{};\n", plan_type, plan);
  if (!functor.empty()) text += fmt::format("struct Chain {{\n{}}};\n", functor);
  text += fmt::format("{}({}, op, plan{})\n", macro, entry, functor.empty() ? "" : ", Chain");
  text += fmt::format("}}  // namespace ac::kernels::{}\n", entry);
  return {entry, text};
}

}  // namespace ac
