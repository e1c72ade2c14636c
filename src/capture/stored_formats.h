// Holds a checkpoint's tensors to what its config says: names, shapes and formats. A weight that is
// in another format than that has the right name and shape, and wrong values.
#pragma once

#include <filesystem>

#include "base/dtype.h"
#include "capture/quantization.h"
#include "ir/graph.h"

namespace ac {

// The floating-point type of the checkpoint's embedding, or of its head if that stands for both;
// `otherwise` where there is none. transformers computes in it where config.json says no type.
DType stored_dtype(const std::filesystem::path& directory, DType otherwise);

// What no config says of a format, the checkpoint in `directory` does: the type of scales of
// groups, which is `computed` where there are no weights, and whether columns are of groups in
// another order than their own.
void settle_format(const std::filesystem::path& directory, DType computed, Quantization& said);

// All weights of the graph that are in the store "checkpoint", which is `directory`. Where it has
// no weights, nothing is checked. What contradicts is an error (bad_input) that names the tensor.
void check_formats(const std::filesystem::path& directory, const Quantization& said,
                   const Graph& graph);

// Warns where the checkpoint has weights that the graph does not read, such as biases that
// config.json does not tell of.
void warn_of_unread(const std::filesystem::path& directory, const Graph& graph);

}  // namespace ac
