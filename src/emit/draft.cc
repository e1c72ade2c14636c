#include "emit/draft.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>

#include "base/error.h"
#include "base/forked.h"
#include "base/interrupt.h"

namespace ac {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".partial";

std::string prefix(const fs::path& target) { return "." + target.filename().string() + "."; }

// The process in ".NAME.PID.partial" of this target; 0 for other names.
pid_t writer_of(const std::string& name, const fs::path& target) {
  const std::string begin = prefix(target);
  if (!name.starts_with(begin) || !name.ends_with(kSuffix)) return 0;
  pid_t pid = 0;
  const char* const end = name.data() + name.size() - kSuffix.size();
  const auto [stop, error] = std::from_chars(name.data() + begin.size(), end, pid);
  return error == std::errc() && stop == end && pid > 0 ? pid : 0;
}

}  // namespace

Draft::Draft(const fs::path& target)
    : target_(target),
      path_(target.parent_path() / fmt::format("{}{}{}", prefix(target), getpid(), kSuffix)),
      unfinished_(path_) {
  std::error_code error;
  fs::create_directories(target.parent_path(), error);
  for (const auto& entry : fs::directory_iterator(target.parent_path(), error)) {
    const pid_t writer = writer_of(entry.path().filename(), target);
    std::error_code ignored;
    if (writer > 0 && (writer == getpid() || !is_running(writer)))
      fs::remove_all(entry.path(), ignored);
  }
  if (!fs::create_directory(path_, error))
    job_failed("cannot create {}: {}", path_.string(),
               error ? error.message() : "something of that name cannot be removed");
}

Draft::~Draft() {
  std::error_code ignored;  // the next writer tries again
  fs::remove_all(path_, ignored);
}

bool Draft::publish(bool replace) {
  // A signal that is removing the draft must not have it become the package meanwhile.
  const std::lock_guard lock(Leftovers::ours().mutex);
  const auto rename = [&](unsigned flags) {
    return renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target_.c_str(), flags) == 0;
  };
  if (rename(RENAME_NOREPLACE)) return true;
  if (errno == EINVAL || errno == ENOSYS) return publish_plainly(replace);
  if (errno == EEXIST && !replace) return false;
  // The old one gets the draft's name, and is removed with it.
  if (errno == EEXIST && rename(RENAME_EXCHANGE)) return true;
  job_failed("cannot rename {} to {}: {}", path_.string(), target_.string(), std::strerror(errno));
}

// On file systems where folders cannot change places.
bool Draft::publish_plainly(bool replace) {
  std::error_code error;
  if (fs::exists(target_)) {
    if (!replace) return false;
    fs::remove_all(target_, error);
  }
  if (!error) fs::rename(path_, target_, error);
  if (error)
    job_failed("cannot rename {} to {}: {}", path_.string(), target_.string(), error.message());
  return true;
}

}  // namespace ac
