// The parts of weights in a format (base/weight_format.h), from whatever layout a checkpoint stores
// them in (base/weight_layout.h).
#pragma once

#include <string_view>

#include "base/weight_layout.h"
#include "checkpoint/checkpoint.h"

namespace ac {

// The tensor that holds the part of this shape, as it is stored; another shape or type is an error
// (bad_input).
TensorView require_stored(const Checkpoint& checkpoint, std::string_view key,
                          std::span<const std::int64_t> shape, const PartInFile& in_file,
                          const Shared& share = alone);

// The part itself. Where the file's bytes are another arrangement, the view's are made.
TensorView require_part(const Checkpoint& checkpoint, std::string_view key,
                        std::span<const std::int64_t> shape, const PartInFile& in_file,
                        const Shared& share = alone);

}  // namespace ac
