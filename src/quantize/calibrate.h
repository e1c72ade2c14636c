// What a text shows of a model's linears: how large the inputs are that meet each column of their
// weights. An error in a column counts by that.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "capture/model.h"

namespace ac {

// By the key of a linear's weight, of each of its columns.
using Importance = std::map<std::string, std::vector<float>>;

// The mean square of each input over all tokens, as the reference executor computes the model. Each
// piece of the text begins anew. `on_tokens` hears how many have been run.
Importance mean_squares(const Model& model, const std::vector<std::vector<std::int64_t>>& pieces,
                        const std::function<void(std::size_t done)>& on_tokens = {});

}  // namespace ac
