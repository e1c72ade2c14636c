// The content-addressed half of a repository in the HuggingFace cache: partial files that grow,
// are checked and become blobs. See download.h for the layout.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace ac {

// The hub names large (LFS) files by their SHA-256 and small ones by git's blob hash.
struct BlobId {
  std::string hash;  // lowercase hexadecimal
  bool is_sha256 = false;
  std::uint64_t size = 0;
};

// Held while a blob is written; other processes wait. Released with the object.
class BlobLock {
 public:
  // Calls `on_wait` once if another process holds the lock.
  BlobLock(const std::filesystem::path& lock_file, const std::function<void()>& on_wait);
  BlobLock(const BlobLock&) = delete;
  BlobLock& operator=(const BlobLock&) = delete;
  ~BlobLock();

 private:
  int fd_;
};

class PartialBlob {
 public:
  // Opens or creates FOLDER/HASH.incomplete; what an earlier try left there stays.
  PartialBlob(const std::filesystem::path& folder, BlobId id);
  PartialBlob(const PartialBlob&) = delete;
  PartialBlob& operator=(const PartialBlob&) = delete;
  ~PartialBlob();

  std::uint64_t size() const { return size_; }
  void append(std::string_view bytes);
  void restart();
  // Size and hash are as promised.
  bool is_right() const;
  // The blob's final name; only when is_right().
  void publish();

 private:
  std::filesystem::path final_path_, path_;
  BlobId id_;
  int fd_;
  std::uint64_t size_ = 0;
};

}  // namespace ac
