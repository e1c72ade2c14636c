// The native front end: the graph of a HuggingFace decoder from its config.json alone, with no
// Python and no weights. It gives what the Python capture gives after normalisation: tokens on the
// first axis, no batch, one node a weight, nodes in the order in which transformers computes them.
#pragma once

#include <filesystem>
#include <string>

#include "capture/config.h"
#include "capture/model.h"

namespace ac {

Model capture_native(const std::filesystem::path& directory);

Graph build_decoder(const DecoderConfig& config, std::string name);

}  // namespace ac
