#include "runtime/package_files.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "base/text.h"
#include "build/digest.h"
#include "runtime/packages.h"

namespace ac {
namespace {

namespace fs = std::filesystem;

constexpr const char* kList = "digests.json";
constexpr std::size_t kLargestFile = std::size_t{4} << 30;
constexpr const char* kAgain = "compile the model again";

std::string_view text_of(const MappedFile& file) {
  const auto bytes = file.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

[[noreturn]] void no_package(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder, error))
    bad_input(
        "{0} does not exist; a model's id or file becomes a package by: agentcompile compile "
        "{0} -o PACKAGE",
        folder.string());
  const Packages packages = packages_in(folder);
  if (packages.empty()) bad_input("{} is no package: it has no program.json", folder.string());
  bad_input("{} has packages for {} targets: name one, such as {}", folder.string(),
            packages.size(), packages.begin()->second.string());
}

bool is_inside(const fs::path& name) {
  return !name.empty() && !name.is_absolute() && name.lexically_normal() == name &&
         !name.string().starts_with("..");
}

}  // namespace

void write_digests(const fs::path& package) {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(package))
    if (entry.is_regular_file())
      names.push_back(entry.path().lexically_relative(package).generic_string());
  std::erase(names, kList);
  std::ranges::sort(names);
  Json files = Json::object();
  for (const std::string& name : names) files[name] = sha256(text_of(MappedFile(package / name)));
  const std::string digest = sha256(files.dump());
  write_file(package / kList,
             Json{{"files", std::move(files)}, {"sha256_of_files", digest}}.dump(1) + "\n");
}

PackageFiles::PackageFiles(const fs::path& package) : folder_(package) {
  const fs::path list = package / kList;
  std::error_code error;
  if (!fs::exists(package / "program.json", error) && !fs::exists(list, error)) no_package(package);
  if (!fs::exists(list, error))
    bad_input("{}: is missing, so that nobody knows whether the package is whole: {}",
              list.string(), kAgain);
  const Json json = read_json(list);
  const auto damaged = [&] { bad_input("{}: is damaged: {}", list.string(), kAgain); };
  if (!json.is_object() || !json.contains("files") || !json["files"].is_object() ||
      json.value("sha256_of_files", Json()) != sha256(json["files"].dump()))
    damaged();
  for (const auto& [name, digest] : json["files"].items()) {
    if (!digest.is_string() || !is_inside(name)) damaged();
    digests_[name] = digest.get<std::string>();
  }
}

std::string PackageFiles::digest() const { return sha256(Json(digests_).dump()); }

void PackageFiles::compare(const std::string& name, std::string_view content) const {
  if (sha256(content) != digests_.at(name))
    bad_input("{}: is not the file that was compiled: {}", (folder_ / name).string(), kAgain);
}

fs::path PackageFiles::find(const std::string& name) const {
  fs::path file = folder_ / name;
  if (!lists(name))
    bad_input("{}: is no file of the package, by its {}: {}", file.string(), kList, kAgain);
  std::error_code error;
  if (!fs::exists(file, error))
    bad_input("{}: is missing from the package: {}", file.string(), kAgain);
  return file;
}

std::string PackageFiles::read(const std::string& name) const {
  std::string content = read_file(find(name), kLargestFile);
  compare(name, content);
  return content;
}

void PackageFiles::check(const std::string& name) const {
  compare(name, text_of(MappedFile(find(name))));
}

std::vector<std::string> PackageFiles::changed() const {
  std::vector<std::string> changed;
  for (const auto& [name, digest] : digests_) {
    std::error_code error;
    if (!fs::is_regular_file(folder_ / name, error))
      changed.push_back(fmt::format("{} is missing", quote(name)));
    else if (sha256(text_of(MappedFile(folder_ / name))) != digest)
      changed.push_back(fmt::format("{} is not the file that was compiled", quote(name)));
  }
  return changed;
}

}  // namespace ac
