#include "base/temporary_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>

#include "base/error.h"

namespace ac {

TemporaryFolder::TemporaryFolder() {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
  if (error) job_failed("there is no folder for temporary files: {}", error.message());
  std::string name = parent / "agentcompile-XXXXXX";
  if (!mkdtemp(name.data()))
    job_failed("{}: cannot create a temporary folder: {}", parent.string(), std::strerror(errno));
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;  // nothing is wrong with the job if tidying up fails
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace ac
