#include "emit/package_files.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "build/digest.h"

namespace ac {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargestFile = std::size_t{4} << 30;

}  // namespace

Json digests_of(const fs::path& package) {
  std::vector<std::string> names;
  for (auto entry = fs::recursive_directory_iterator(package);
       entry != fs::recursive_directory_iterator(); ++entry) {
    const std::string name = entry->path().lexically_relative(package).generic_string();
    if (name == "weights") entry.disable_recursion_pending();
    if (entry->is_regular_file() && name != "plan.json") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  Json digests = Json::object();
  for (const std::string& name : names)
    digests[name] = sha256(read_file(package / name, kLargestFile));
  return digests;
}

std::vector<std::string> changed_files(const fs::path& package, const Json& digests,
                                       const std::string& origin) {
  if (!digests.is_object()) bad_input("{}: \"files\" is not an object", origin);
  std::vector<std::string> changed;
  for (const auto& [name, digest] : digests.items()) {
    const fs::path relative = name;
    if (!digest.is_string() || relative.is_absolute() || relative.lexically_normal() != relative ||
        name.starts_with(".."))
      bad_input("{}: \"files\" names {}, which is no file of a package", origin, quote(name));
    std::error_code error;
    if (!fs::is_regular_file(package / relative, error))
      changed.push_back(fmt::format("{} is missing", quote(name)));
    else if (sha256(read_file(package / relative, kLargestFile)) != digest.get<std::string>())
      changed.push_back(fmt::format("{} is not the file that was compiled", quote(name)));
  }
  return changed;
}

}  // namespace ac
