#include "checkpoint/weight_index.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "checkpoint/model_files.h"

namespace ac {
namespace {

// Half a million tensors, as for a safetensors header.
constexpr JsonLimits kIndexLimits{.bytes = 100'000'000, .depth = 8, .values = 1'000'000};

}  // namespace

bool WeightIndex::mentions(std::string_view file) const {
  return std::ranges::binary_search(shards, file);
}

WeightIndex read_weight_index(const std::filesystem::path& path, const std::string& shown_as) {
  const Json root = parse_json(read_file(path, kIndexLimits.bytes), shown_as, kIndexLimits);
  const auto map = root.is_object() ? root.find("weight_map") : root.end();
  if (map == root.end() || !map->is_object())
    bad_input("{}: has no object \"weight_map\"", shown_as);

  WeightIndex index;
  index.path = path;
  std::set<std::string> shards;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string())
      bad_input("{}: tensor {}: the file name must be a string", shown_as, quote(tensor));
    const std::string name = file.get<std::string>();
    if (const std::string why = why_unsafe_name(name); !why.empty())
      bad_input("{}: tensor {}: the file name {} {}", shown_as, quote(tensor), quote(name), why);
    if (!name.ends_with(".safetensors"))
      bad_input("{}: tensor {}: {} is not a .safetensors file; convert the model to safetensors",
                shown_as, quote(tensor), quote(name));
    shards.insert(name);
    index.shard_of.emplace(tensor, name);
  }
  if (shards.empty()) bad_input("{}: names no tensors", shown_as);
  index.shards.assign(shards.begin(), shards.end());
  return index;
}

}  // namespace ac
