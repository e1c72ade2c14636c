// Built kernels on disk, shared by every process of the user.
//
// An entry is a folder named by its key, with a record (what the compiler said, checksums) and the
// artifact. It is made elsewhere and renamed into place whole; of two that make the same, the
// second uses the first one's. Nothing is synced to disk: what a crash of the machine leaves
// incomplete fails its checksum: the user is warned, and it is made anew. A cache that may only be
// read is read; what it lacks is built for this process alone.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/temporary_folder.h"
#include "build/compile.h"

namespace ac {

struct CacheEntry {
  std::string artifact_name;  // empty: the kernel does not compile
  std::string digest = {};    // of the artifact; keep() fills it in
  std::string log;
  double seconds = 0;
  int registers = 0, spill_bytes = 0, static_shared = 0;
};

class KernelCache {
 public:
  explicit KernelCache(std::filesystem::path folder);

  // A folder in the cache that no one else uses, removed at the end.
  class Workspace {
   public:
    explicit Workspace(const std::filesystem::path& cache);

    std::filesystem::path scratch() const { return folder_.path() / "scratch"; }
    std::filesystem::path entry() const { return folder_.path() / "entry"; }  // becomes the cache's

   private:
    TemporaryFolder folder_;
  };
  Workspace workspace() const;

  // What is known of the key, if it is all there and unharmed.
  std::optional<BuildResult> find(const std::string& key) const;

  // The workspace's entry folder, with the artifact in it, becomes the key's entry.
  BuildResult keep(const std::string& key, const Workspace& workspace, CacheEntry entry) const;

 private:
  std::optional<BuildResult> find_in(const std::filesystem::path& cache,
                                     const std::string& key) const;
  void remove_harmed(const std::string& key) const;
  const std::filesystem::path& writable() const { return own_ ? own_->path() : folder_; }

  std::filesystem::path folder_;
  std::optional<TemporaryFolder> own_;  // in place of one that may not
};

}  // namespace ac
