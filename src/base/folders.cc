#include "base/folders.h"

#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace ac {

bool is_read_only(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::path there = std::filesystem::absolute(folder, error);
  while (there.has_relative_path() && !std::filesystem::exists(there, error))
    there = there.parent_path();
  return std::filesystem::is_directory(there, error) && access(there.c_str(), W_OK | X_OK) != 0 &&
         (errno == EROFS || errno == EACCES || errno == EPERM);
}

}  // namespace ac
