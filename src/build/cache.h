// Built kernels on disk, shared by every process of the user.
//
// An entry is a folder named by its key, with a record (what the compiler said, checksums) and the
// artifact. It is made elsewhere and renamed into place whole; of two that make the same, the
// second uses the first one's. Nothing is synced to disk: what a crash of the machine leaves
// incomplete fails its checksum and counts as absent. Times of files mean nothing, except that an
// unfinished folder of hours ago is nobody's and is removed.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "build/compile.h"

namespace ac {

struct CacheEntry {
  std::string artifact_name;  // empty: the kernel does not compile
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
    ~Workspace();
    Workspace(const Workspace&) = delete;
    Workspace& operator=(const Workspace&) = delete;

    std::filesystem::path scratch() const { return path_ / "scratch"; }
    std::filesystem::path entry() const { return path_ / "entry"; }  // becomes the cache's

   private:
    std::filesystem::path path_;
  };
  Workspace workspace() const { return Workspace(folder_); }

  // What is known of the key, if it is all there and unharmed.
  std::optional<BuildResult> find(const std::string& key) const;

  // The workspace's entry folder, with the artifact in it, becomes the key's entry.
  BuildResult keep(const std::string& key, const Workspace& workspace,
                   const CacheEntry& entry) const;

 private:
  void sweep() const;
  void remove_harmed(const std::string& key) const;

  std::filesystem::path folder_;
};

}  // namespace ac
