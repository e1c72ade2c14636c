// From a checkpoint in 16 or 32 bits to one whose linears have weights of 8 or 4 bits, as
// compressed-tensors stores them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "quantize/calibrate.h"

namespace ac {

// What weights become: fp8 and int8 have a scale a row, int4 a scale for `group` of a row.
struct WeightsWanted {
  enum class Kind : std::uint8_t { fp8, int8, int4 };
  Kind kind = Kind::fp8;
  int group = 0;
};
// "fp8", "int8", "int4" or "int4:64". Another word is an error (wrong_usage) that starts with the
// option's name.
WeightsWanted parse_weights(const std::string& text, const std::string& option);

struct QuantizeOptions {
  WeightsWanted weights;
  bool head = false;  // the head, too
  // Called when all else has been checked; none: all columns are alike.
  std::function<Importance()> measure = {};
  std::uint64_t most_in_shard = 5'000'000'000;
  std::function<void(std::size_t done, std::size_t total, const std::string& module)> on_layer = {};
};

// Sums over weights.
struct Squares {
  double of_errors = 0, of_weights = 0;

  void add(const Squares& more) {
    of_errors += more.of_errors;
    of_weights += more.of_weights;
  }
  double relative() const;  // the root of the error's over the weights'
};
struct QuantizedLayer {
  std::string module;
  std::vector<std::int64_t> shape;
  Squares plain, weighted;  // by the columns' importance
};
struct Quantized {
  std::vector<QuantizedLayer> layers;
  Squares plain, weighted;                    // of all layers
  std::uint64_t bytes_before = 0, bytes = 0;  // of all tensors
};

// Writes into the folder `to`, which nobody looks into before this is done. `model` is of the
// native front end, and has its weights in one folder. Memory is that of the largest tensor.
Quantized quantize(const Model& model, const QuantizeOptions& options,
                   const std::filesystem::path& to);

}  // namespace ac
