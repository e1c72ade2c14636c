// What a package remembers of the checkpoints that it was compiled from: of each tensor that it
// loads, type, shape and a digest of some kilobytes at fixed places; and of the model's
// config.json, what it means. weights.json of a package has it.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "program/program.h"
#include "runtime/package_files.h"

namespace ac {

struct TensorPrint {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string sample;  // the digest
  bool operator==(const TensorPrint&) const = default;
};

struct CheckpointPrint {
  std::map<std::string, TensorPrint> tensors;
  std::string config;  // a digest; empty: there was no config.json
};
using Fingerprint = std::map<std::string, CheckpointPrint>;  // by store

// Whether the package has the store's file itself.
bool is_own(const std::string& store_path);

// Of all stores that lie outside of the package. One that has no weights yet is left out, and one
// that cannot be read as well: then `warnings` says why.
Fingerprint fingerprint_of(const Program& program, std::vector<std::string>& warnings);

void write_fingerprint(const Fingerprint& fingerprint, const std::filesystem::path& package);
Fingerprint read_fingerprint(const PackageFiles& files);

// Of the checkpoints outside of the package, or the one that is `named` instead: a digest of what a
// fingerprint has of them, and of their files' sizes and times.
std::string identity_of_weights(const Program& program, const std::filesystem::path& named = {});

Checkpoint open_store(const std::filesystem::path& path);

struct Difference {
  bool in_values_only = false;  // names, types and shapes agree
  std::string what;             // for people
};
// How a checkpoint differs from the one that the print was made of.
std::optional<Difference> difference(const CheckpointPrint& print, const Checkpoint& checkpoint);
// Whether a config.json lies in the folder and means something else.
bool config_differs(const CheckpointPrint& print, const std::filesystem::path& folder);

}  // namespace ac
