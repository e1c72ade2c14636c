// --weights, --head-weights and --calibrate: a checkpoint in 16 or 32 bits becomes one with codes
// of weights (quantize/quantize.h), in a folder of the user's or in the cache.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>

#include "base/progress.h"
#include "cli/source_arguments.h"
#include "quantize/quantize.h"

namespace ac {

class WeightsArgument {
 public:
  // Returns --weights. `what` follows the list of formats in its help.
  CLI::Option* add_to(CLI::App& command, const std::string& what = {});

  bool is_given() const { return !weights_.empty(); }
  bool is_calibrated() const { return !calibrate_.empty(); }
  const std::string& text() const { return weights_; }  // of --weights
  // A word that is none, or a head in another format, is an error (wrong_usage).
  void check() const;
  // What is quantized, captured by the native front end.
  Model capture(SourceArguments source, bool quiet) const;
  // Makes the folder `target`, which must not exist; it appears when it is whole.
  Quantized make(const Model& model, const std::filesystem::path& target, Progress& progress,
                 std::uint64_t most_in_shard = QuantizeOptions{}.most_in_shard) const;
  // The source with such weights, from the cache. What is not there is made, once.
  Model kept(const SourceArguments& source, bool quiet, Progress& progress) const;

 private:
  Importance calibrate(const Model& model, Progress& progress) const;

  std::string weights_, head_ = "keep", calibrate_;
  std::int64_t tokens_ = 512;  // of the text
};

}  // namespace ac
