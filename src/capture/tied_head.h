// Which tensors of a checkpoint the embedding and the head of a decoder are, where its config ties
// them. transformers ties the two only where the checkpoint lacks one of them, or holds the same
// values for both; this does the same.
#pragma once

#include <filesystem>

#include "capture/config.h"

namespace ac {

bool has_weights(const std::filesystem::path& directory);

// Without weights in the directory the config alone decides. Reads both tensors where both exist:
// up to their first difference, which is near their beginning.
void settle_tied_head(const std::filesystem::path& directory, DecoderConfig& config);

}  // namespace ac
