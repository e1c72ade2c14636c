#include "runtime/packages.h"

#include <charconv>

namespace ac {
namespace {

namespace fs = std::filesystem;

bool is_package(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / "program.json", error);
}

// 80 of "sm_80"; 0 of any other text.
int generation_of(const std::string& target) {
  int sm = 0;
  if (target.starts_with("sm_"))
    std::from_chars(target.data() + 3, target.data() + target.size(), sm);
  return sm;
}

}  // namespace

bool runs_on(const std::string& target, int sm) {
  const int of = generation_of(target);
  return of >= 90 || of == 0 ? of == sm : of / 10 == sm / 10 && of <= sm;
}

Packages packages_in(const fs::path& folder) {
  Packages packages;
  std::error_code error;
  if (is_package(folder)) return packages;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if ((name == "host" || generation_of(name) > 0) && is_package(entry.path()))
      packages[name] = entry.path();
  }
  return packages;
}

std::string target_for(int sm, const Packages& packages) {
  std::string best;
  for (const auto& [target, path] : packages)
    if (runs_on(target, sm) && (best.empty() || generation_of(target) > generation_of(best)))
      best = target;
  return best;
}

}  // namespace ac
