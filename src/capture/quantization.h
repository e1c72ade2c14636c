// What quantization_config of a config.json says: which linears have their weights in which format
// (base/weight_format.h), and how the checkpoint stores them (base/weight_layout.h).
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/weight_layout.h"
#include "capture/config_fields.h"

namespace ac {

struct StoredFormat {
  Format format = {};
  FileLayout layout = {};
};

struct Quantization {
  Format format = {};  // plain: of no linear
  FileLayout layout = {};
  // Linears that are plain nevertheless: modules with these paths, beginnings or ends of paths; of
  // these paths and no other; and those whose path matches one of these patterns.
  std::vector<std::string> plain_modules = {}, plain_paths = {}, plain_patterns = {};
  // Linears in the format, by ends of paths; empty: all the others.
  std::vector<std::string> only = {};
  // Where tensors say themselves what they are: of each module that is in a format. Then nothing of
  // the above counts.
  std::map<std::string, StoredFormat, std::less<>> of_module = {};

  StoredFormat stored_as(std::string_view module) const;
};

// What is not supported is an error (bad_input) that names the field and says why. How activations
// would be quantised while the model runs is of no matter: they are not.
Quantization read_quantization(const ConfigFields& config);

// What hf_quant_config.json in a model's folder says, which ModelOpt's checkpoints have instead.
// Plain where there is no such file.
Quantization read_hf_quant_config(const std::filesystem::path& folder);

// What a folder's config.json says, or that file instead.
Quantization quantization_in(const std::filesystem::path& folder);

// A pattern as Python's re.match takes it. In a simple one, nothing is special but '.', what is
// escaped, '*' behind a character, '^' at the beginning and '$' at the end.
bool is_simple_pattern(std::string_view pattern);
bool matches(std::string_view pattern, std::string_view text);

}  // namespace ac
