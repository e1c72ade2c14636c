#include "answer/package_text.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include "base/error.h"
#include "runtime/package_files.h"
#include "text/text_files.h"

namespace ac {

namespace fs = std::filesystem;

fs::path text_of_package(const fs::path& package) {
  const PackageFiles files(package);
  const fs::path folder = package / text::kTextFolder;
  if (!files.lists(fmt::format("{}/tokenizer.json", text::kTextFolder))) return {};
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (!entry.is_directory())
      files.check(entry.path().lexically_relative(package).generic_string());
  return folder;
}

void reading_whole(const fs::path& package, const std::function<void()>& read) {
  const auto identity = [&] {
    struct stat info{};
    return stat(package.c_str(), &info) == 0 ? info.st_ino : 0;
  };
  for (;;) {
    const auto before = identity();
    try {
      return read();
    } catch (const Error&) {
      if (identity() == before) throw;
    }
  }
}

}  // namespace ac
