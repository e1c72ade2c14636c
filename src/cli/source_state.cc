#include "cli/source_state.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "build/digest.h"

namespace ac {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kSmallFile = 1u << 20;  // the content of which counts, beside size and time
constexpr std::size_t kMostFiles = 10'000;

// What tells that a file is another one.
Json state_of(const fs::path& file) {
  const auto bytes = fs::file_size(file);
  Json state = {bytes, fs::last_write_time(file).time_since_epoch().count()};
  if (bytes <= kSmallFile) state.push_back(sha256(read_file(file, kSmallFile)));
  return state;
}

}  // namespace

std::string file_of(const std::string& source) {
  const std::size_t end = source.rfind(".py:");
  return end == std::string::npos ? source : source.substr(0, end + 3);
}

Json state_of_source(const fs::path& source) {
  if (!fs::is_directory(source)) return state_of(source);
  std::vector<fs::path> files;
  for (auto at = fs::recursive_directory_iterator(source); at != fs::end(at); ++at) {
    if (at->path().filename().string().starts_with('.')) {
      if (at->is_directory()) at.disable_recursion_pending();
    } else if (at->is_regular_file()) {
      files.push_back(at->path());
      if (files.size() > kMostFiles)
        bad_input("{}: the folder has more than {} files", source.string(), kMostFiles);
    }
  }
  std::ranges::sort(files);
  Json state = Json::object();
  for (const fs::path& file : files) state[file.lexically_relative(source)] = state_of(file);
  return state;
}

std::string plain_name(const std::string& source) {
  std::string name = fs::path(source).lexically_normal().filename().string();
  if (name.empty()) name = fs::path(source).lexically_normal().parent_path().filename().string();
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0 && c != '.' && c != '-'; }, '_');
  return name.substr(0, 60);
}

}  // namespace ac
