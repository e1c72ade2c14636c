// From what the user calls a model to a directory on this machine: a path, or an id of the
// HuggingFace hub that is in the local cache already. Never uses the network; download.h does.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/environment.h"

namespace ac {

struct ModelId {
  std::string repository;  // "org/name", or "name" for a few old models
  std::string revision;    // a branch, a tag or a commit
};

// "org/name" or "org/name@revision"; nothing if the text cannot be an id.
std::optional<ModelId> parse_model_id(std::string_view text);

// CACHE/models--org--name
std::filesystem::path repository_folder(const std::filesystem::path& cache, const ModelId& id);

// 40 lowercase hexadecimal digits
bool is_commit(std::string_view text);

// The snapshot of that revision in the cache, if it is there with a config.json.
std::optional<std::filesystem::path> find_in_cache(const std::filesystem::path& cache,
                                                   const ModelId& id);

// A directory that holds config.json, or an id in the cache; otherwise an error that says where
// it looked.
std::filesystem::path resolve_model(const std::string& source, const Environment& environment);

// HF_TOKEN, else the content of $HF_HOME/token; empty if there is neither.
std::string hub_token(const Environment& environment);

}  // namespace ac
