// The parts of weights in a format (base/weight_format.h), from whatever layout a checkpoint stores
// them in (base/weight_layout.h).
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "base/weight_layout.h"
#include "checkpoint/checkpoint.h"

namespace ac {

// The tensor that holds the part of this shape, as it is stored; another shape or type is an error
// (bad_input).
TensorView require_stored(const Checkpoint& checkpoint, std::string_view key,
                          std::span<const std::int64_t> shape, const PartInFile& in_file);

// Calls its argument with ranges that make up [0, count).
using Shared = std::function<void(
    std::int64_t count, const std::function<void(std::int64_t begin, std::int64_t end)>&)>;
void alone(std::int64_t count, const std::function<void(std::int64_t, std::int64_t)>& work);

// The part itself. Where the file's bytes are another arrangement, `made` holds the view's.
struct PartView {
  TensorView view;
  std::shared_ptr<const std::vector<std::byte>> made;
};
PartView require_part(const Checkpoint& checkpoint, std::string_view key,
                      std::span<const std::int64_t> shape, const PartInFile& in_file,
                      const Shared& share = alone);

}  // namespace ac
