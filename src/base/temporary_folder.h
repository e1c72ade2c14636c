// A folder of our own, removed with all that is in it when its owner is gone, or when a signal ends
// the program. What a process left that could not remove it (kill -9), a later one does: the owner
// holds a lock of the folder, which nothing but its end releases.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/interrupt.h"

namespace ac {

class TemporaryFolder {
 public:
  // Under the system's folder for temporary files.
  TemporaryFolder();
  // PREFIX and 16 hexadecimal digits.
  TemporaryFolder(const std::filesystem::path& parent, const std::string& prefix);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

  // Removes folders of such names that are this user's and have no owner any more.
  static void sweep(const std::filesystem::path& parent, const std::string& prefix);

 private:
  void make(const std::filesystem::path& parent, const std::string& prefix);
  bool own();

  std::filesystem::path path_;
  int lock_ = -1;
  std::optional<UnfinishedFolder> unfinished_;
};

}  // namespace ac
