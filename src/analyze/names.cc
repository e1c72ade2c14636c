// Enumerations of regions, as printed.
#include "analyze/region.h"
#include "base/error.h"

namespace ac {

bool is_hard(Reason reason) { return reason <= Reason::dynamic_shape; }

std::string_view to_string(Role role) {
  switch (role) {
    case Role::activation:
      return "activation";
    case Role::weight:
      return "weight";
    case Role::constant:
      return "constant";
    case Role::positions:
      return "positions";
    case Role::state:
      return "state";
  }
  AC_UNREACHABLE();
}

std::string_view to_string(Access access) {
  switch (access) {
    case Access::streaming:
      return "streaming";
    case Access::row_reduction:
      return "row-wise reduction";
    case Access::matrix:
      return "matrix";
    case Access::gather:
      return "gather";
    case Access::attention:
      return "attention";
  }
  AC_UNREACHABLE();
}

std::string_view to_string(Category category) {
  switch (category) {
    case Category::gemm:
      return "GEMM";
    case Category::gemm_epilogue:
      return "GEMM + epilogue";
    case Category::softmax:
      return "softmax-like";
    case Category::rms_norm:
      return "RMSNorm-like";
    case Category::layer_norm:
      return "LayerNorm-like";
    case Category::elementwise:
      return "elementwise chain";
    case Category::reduction_pointwise:
      return "reduction-pointwise";
    case Category::attention:
      return "attention";
    case Category::rope_append:
      return "RoPE + append";
    case Category::embedding:
      return "embedding";
    case Category::mixed:
      return "mixed";
  }
  AC_UNREACHABLE();
}

std::string_view to_string(Reason reason) {
  switch (reason) {
    case Reason::state:
      return "state";
    case Reason::aliasing:
      return "aliasing";
    case Reason::unsupported_dtype:
      return "unsupported dtype";
    case Reason::mixed_dtype:
      return "mixed dtype";
    case Reason::dynamic_shape:
      return "dynamic shape";
    case Reason::stands_alone:
      return "stands alone";
    case Reason::several_uses:
      return "several uses";
    case Reason::side_input:
      return "side input";
    case Reason::layout:
      return "layout";
    case Reason::shape:
      return "shape";
    case Reason::reduction_axes:
      return "reduction axes";
    case Reason::order:
      return "order";
    case Reason::not_compute:
      return "not compute";
    case Reason::not_connected:
      return "not connected";
    case Reason::not_convex:
      return "not convex";
  }
  AC_UNREACHABLE();
}

}  // namespace ac
