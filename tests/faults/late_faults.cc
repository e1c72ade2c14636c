// Faults that show only where a kernel is used: with more blocks, more rows or more tokens than the
// quick trials have, or when threads run in an order that the host device does not take.
#include "tests/faults/faults.h"

namespace ac::kernels {

std::vector<Fault> late_faults() {
  const std::string gemv = "kernels/gemv.cuh", gemv_rows = "kernels/gemv_rows.cuh",
                    attention = "kernels/attention.cuh";
  return {
      {"blocks behind the eighth",
       gemv_rows,
       {{"= from_float<Y>(value);\n    if",
         "= from_float<Y>(blockIdx.x > 7 ? -value : value);\n    if"}},
       {"many rows"},
       true},
      {"a large grid leaves rows out",
       gemv,
       {{"stride = gridDim.x * plan", "stride = (gridDim.x + gridDim.x / 100) * plan"}},
       {"many rows"},
       true},
      {"a row behind the thousandth",
       gemv_rows,
       {{"= from_float<Y>(value);\n    if",
         "= from_float<Y>(row % 1000 == 999 ? value + 1 : value);\n    if"}},
       {"many rows"},
       true},
      {"a long context loses its end",
       attention,
       {{"end = position < capacity ? position : capacity;",
         "end = position < capacity ? position - position / 3000 * 16 : capacity;"}},
       {"llama", "phi"},
       true},
      {"keys behind the 4000th are not seen",
       attention,
       {{"end = position < capacity ? position : capacity;",
         "end = position < capacity ? (position > 4000 ? 4000 : position) : capacity;"}},
       {"qwen"},
       true},
  };
}

}  // namespace ac::kernels
