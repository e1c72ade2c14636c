#include "build/headers.h"

#include <string_view>
#include <system_error>

#include "base/files.h"
#include "build/digest.h"

namespace ac {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargestHeader = 16u << 20;

std::string_view trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  return begin == std::string_view::npos ? std::string_view{} : text.substr(begin);
}

// The names in lines like `#include "name"`.
std::vector<std::string> included_names(std::string_view text) {
  std::vector<std::string> names;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = trim(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (!line.starts_with('#')) continue;
    line = trim(line.substr(1));
    if (!line.starts_with("include")) continue;
    line = trim(line.substr(7));
    if (!line.starts_with('"')) continue;
    line.remove_prefix(1);
    if (const std::size_t quote = line.find('"'); quote != std::string_view::npos)
      names.emplace_back(line.substr(0, quote));
  }
  return names;
}

}  // namespace

const Header* Headers::find(const std::string& name) {
  if (const auto known = known_.find(name); known != known_.end()) return &known->second;
  const fs::path relative = name;
  if (relative.is_absolute() || relative.lexically_normal() != relative || name.starts_with(".."))
    return nullptr;
  std::error_code error;
  if (!fs::is_regular_file(folder_ / relative, error)) return nullptr;
  Header header{name, read_file(folder_ / relative, kLargestHeader), {}, {}};
  header.digest = sha256(header.text);
  header.includes = included_names(header.text);
  return &known_.emplace(name, std::move(header)).first->second;
}

std::vector<const Header*> Headers::reached_by(const std::string& text) {
  const std::lock_guard lock(mutex_);
  std::map<std::string, const Header*> reached;
  std::vector<std::string> open = included_names(text);
  while (!open.empty()) {
    const std::string name = std::move(open.back());
    open.pop_back();
    if (reached.contains(name)) continue;
    const Header* header = find(name);
    if (header == nullptr) continue;
    reached.emplace(name, header);
    open.insert(open.end(), header->includes.begin(), header->includes.end());
  }
  std::vector<const Header*> headers;
  for (const auto& [name, header] : reached) headers.push_back(header);
  return headers;
}

}  // namespace ac
