// One launch of the fallback kernel, while its sizes are still those of the graph.
#pragma once

#include <string>
#include <vector>

#include "generate/generate.h"
#include "kernels/fallback_plan.h"

namespace ac {

struct FallbackTensor {
  kernels::Element element = kernels::Element::f32;
  int buffer = 0;
  Count start = {};  // bytes behind the buffer's
  Dim first;         // elements behind the start
  Shape strides;     // one for each axis of the call, outer then inner ones
};

// kernels/fallback_plan.h says what each kind takes.
struct FallbackCall {
  kernels::FallbackKind kind;
  std::vector<FallbackTensor> in;
  FallbackTensor out;  // strides of the outer axes only
  Shape outer, inner;
  std::size_t indexed = 0;              // the last outer axes whose index the kernel asks for
  int position = -1;                    // the position's buffer, if it has one
  kernels::FallbackParams params = {};  // for the plain numbers in it
  Format format = {};                   // scaled_product
  std::string what;                     // for errors
};

// Adds the launch, and the source of its kernel unless it is there. Nothing for an empty result.
void add_fallback(Generated& generated, FallbackCall call, const Setting& setting);

}  // namespace ac
