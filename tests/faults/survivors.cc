// Faults that the gate admits, in these cases: what it does not see today.
#include "tests/faults/faults.h"

namespace ac::kernels {
namespace {

const std::string bias = "a bias below the bound: no run asks for the sign of the errors",
                  rounding = "rounding is not judged with so few random runs",
                  bounds = "the type's bound is wider than the difference",
                  order = "nothing sees what is read before the wait for the kernel before",
                  positions = "the trial's positions are small",
                  last_bit = "the last bit of a mean shows in one result of some thousands";

}  // namespace

const std::vector<Survivor>& survivors() {
  static const std::vector<Survivor> all = {
      {"norm over one element less", "geglu", bias},
      {"f16 partial sums", "geglu_erf", rounding},
      {"bf16 truncated", "scaled", rounding},
      {"bf16 truncated", "geglu", rounding},
      {"bf16 rounded away from zero", "scaled", rounding},
      {"bf16 rounded away from zero", "geglu", rounding},
      {"f16 truncated", "projection", rounding},
      {"f16 truncated", "qkv", rounding},
      {"x of the launch before", "gemv of registers", order},
      {"a fallback's mean is summed once", "fallback layer_norm", bounds},
      {"a fallback's angles in f32", "fallback rope", positions},
      {"squares of later tokens in another order", "gemv of five tokens", last_bit},
      {"squares of later tokens in another order", "gemv without a ring of three tokens", last_bit},
  };
  return all;
}

}  // namespace ac::kernels
