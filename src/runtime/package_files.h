// The files of a package as they were compiled. digests.json has the SHA-256 of every other file
// and of that list itself; whoever loads a file reads it here, so that nothing is parsed or run but
// the bytes that were compiled. What was added to the folder since is not looked at.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ac {

// Of all files in the folder; the last file that a package gets.
void write_digests(const std::filesystem::path& package);

class PackageFiles {
 public:
  // Reads digests.json. A folder that is no package, and a damaged list, are errors (bad_input).
  explicit PackageFiles(const std::filesystem::path& package);

  const std::filesystem::path& folder() const { return folder_; }
  std::string digest() const;  // of all files
  // The content of a file. One that is missing, not listed or not as it was compiled is an error
  // (bad_input) that names it.
  std::string read(const std::string& name) const;
  // The same errors about a file that someone else maps into memory.
  void check(const std::string& name) const;
  bool lists(const std::string& name) const { return digests_.count(name) > 0; }
  // Each file that is missing or was changed, for people.
  std::vector<std::string> changed() const;

 private:
  std::filesystem::path find(const std::string& name) const;
  void compare(const std::string& name, std::string_view content) const;

  std::filesystem::path folder_;
  std::map<std::string, std::string> digests_;  // by the file's name in the package
};

}  // namespace ac
