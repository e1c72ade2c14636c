#include "base/temporary_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <system_error>

#include "base/error.h"

namespace ac {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "agentcompile-";
constexpr std::size_t kDigits = 16;

bool is_name(const std::string& name, const std::string& prefix) {
  return name.size() == prefix.size() + kDigits && name.starts_with(prefix) &&
         name.find_first_not_of("0123456789abcdef", prefix.size()) == std::string::npos;
}

fs::path system_folder() {
  std::error_code error;
  const fs::path folder = fs::temp_directory_path(error);
  if (error) job_failed("there is no folder for temporary files: {}", error.message());
  static const bool swept = (TemporaryFolder::sweep(folder, kPrefix), true);
  static_cast<void>(swept);
  return folder;
}

int open_folder(const fs::path& path) {
  return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

}  // namespace

TemporaryFolder::TemporaryFolder() { make(system_folder(), kPrefix); }

TemporaryFolder::TemporaryFolder(const fs::path& parent, const std::string& prefix) {
  make(parent, prefix);
}

void TemporaryFolder::make(const fs::path& parent, const std::string& prefix) {
  static thread_local std::random_device random;
  for (;;) {
    path_ = parent / fmt::format("{}{:08x}{:08x}", prefix, random(), random());
    unfinished_.emplace(path_);
    if (mkdir(path_.c_str(), 0700) == 0) {
      if (own()) return;
    } else if (errno != EEXIST) {
      job_failed("{}: cannot create a temporary folder: {}", parent.string(), std::strerror(errno));
    }
  }
}

// False if another process took it for one that was left, before it was locked.
bool TemporaryFolder::own() {
  lock_ = open_folder(path_);
  // A file system without locks has nobody who sweeps, either.
  const bool taken = lock_ < 0 || (flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK);
  struct stat ours{}, there{};
  if (!taken && fstat(lock_, &ours) == 0 && lstat(path_.c_str(), &there) == 0 &&
      ours.st_ino == there.st_ino)
    return true;
  if (lock_ >= 0) close(lock_);
  lock_ = -1;
  return false;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;  // nothing is wrong with the job if tidying up fails
  fs::remove_all(path_, ignored);
  if (lock_ >= 0) close(lock_);
}

void TemporaryFolder::sweep(const fs::path& parent, const std::string& prefix) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(parent, ignored)) {
    if (!is_name(entry.path().filename(), prefix)) continue;
    const int folder = open_folder(entry.path());
    if (folder < 0) continue;
    struct stat info{};
    if (fstat(folder, &info) == 0 && info.st_uid == geteuid() &&
        flock(folder, LOCK_EX | LOCK_NB) == 0)
      fs::remove_all(entry.path(), ignored);
    close(folder);
  }
}

}  // namespace ac
