// Which files of a model hold its weights. The download asks this as well as the checkpoint, so
// that what is fetched is what will be read.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace ac {

inline constexpr const char* kSingleWeights = "model.safetensors";
inline constexpr const char* kWeightIndex = "model.safetensors.index.json";

struct WeightIndex {
  std::filesystem::path path;
  std::map<std::string, std::string, std::less<>> shard_of;  // tensor -> file name
  std::vector<std::string> shards;                           // sorted, each once

  bool mentions(std::string_view file) const;
};

// Validates the whole index: names are safe (model_files.h) and end in .safetensors.
// `path` is what is read, `shown_as` its name in messages.
WeightIndex read_weight_index(const std::filesystem::path& path, const std::string& shown_as);

}  // namespace ac
