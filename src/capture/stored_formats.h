// Holds a checkpoint's tensors to the formats that its config says. A weight that is in another
// format than that has the right name and shape, and wrong values.
#pragma once

#include <filesystem>

#include "capture/config.h"
#include "ir/graph.h"

namespace ac {

// Where `directory` has no weights, nothing is checked. What contradicts is an error (bad_input)
// that names the tensor.
void check_formats(const std::filesystem::path& directory, const DecoderConfig& config,
                   const Graph& graph);

// Where a config says that groups of columns are listed, and all lists are in order, none is read.
void settle_order(const std::filesystem::path& directory, DecoderConfig& config);

// The type of scales of groups is the checkpoint's: no config says it.
void settle_scales(const std::filesystem::path& directory, DecoderConfig& config);

}  // namespace ac
