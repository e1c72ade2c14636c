// A layout of checkpoints for weights in a format, where a test does not mind which.
#pragma once

#include "base/weight_layout.h"

namespace ac::test {

inline FileLayout any_layout(const Format& format) {
  for (const FileLayout layout :
       {FileLayout::packed, FileLayout::compressed, FileLayout::packed_fp4, FileLayout::gguf})
    if (can_store(layout, format)) return layout;
  return FileLayout::fine_grained;  // of plain weights, which have none
}

}  // namespace ac::test
