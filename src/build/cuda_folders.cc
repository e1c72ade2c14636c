#include "build/cuda_folders.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <system_error>

namespace ac {
namespace {

namespace fs = std::filesystem;

// What is in `folder` with a name that starts so, the last in alphabetical order first.
std::vector<fs::path> entries(const fs::path& folder, std::string_view prefix) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().filename().string().starts_with(prefix)) found.push_back(entry.path());
  std::ranges::sort(found, std::greater<>());
  return found;
}

std::vector<fs::path> toolkits() {
  std::vector<fs::path> found = {"/usr/local/cuda"};
  for (fs::path& folder : entries("/usr/local", "cuda-")) found.push_back(std::move(folder));
  return found;
}

void add_libraries(std::vector<fs::path>& to, const fs::path& folder) {
  for (fs::path& file : entries(folder, "libnvrtc.so")) to.push_back(std::move(file));
}

void add_toolkit(std::vector<fs::path>& to, const fs::path& home) {
  for (const char* folder : {"lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"})
    add_libraries(to, home / folder);
}

// Packages put it into nvidia/cu13/lib or nvidia/cuda_nvrtc/lib.
void add_environment(std::vector<fs::path>& to, const fs::path& environment) {
  for (const fs::path& python : entries(environment / "lib", "python"))
    for (const fs::path& package : entries(python / "site-packages/nvidia", ""))
      add_libraries(to, package / "lib");
}

}  // namespace

std::vector<fs::path> nvrtc_candidates(const fs::path& cuda_home) {
  std::vector<fs::path> found;
  if (!cuda_home.empty()) add_toolkit(found, cuda_home);
  std::vector<fs::path> parents = {"."};
  std::error_code error;
  if (const fs::path program = fs::read_symlink("/proc/self/exe", error); !error) {
    const fs::path folder = program.parent_path();  // bin, or build/release in the repository
    add_libraries(found, (folder / "../lib").lexically_normal());  // of a bundle
    for (const char* up : {".", "..", "../.."}) parents.push_back((folder / up).lexically_normal());
  }
  for (const fs::path& parent : parents)
    for (const char* name : {".venv", "venv"}) add_environment(found, parent / name);
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12"}) found.push_back(name);
  for (const fs::path& home : toolkits()) add_toolkit(found, home);
  return found;
}

std::vector<fs::path> nvcc_candidates(const fs::path& cuda_home) {
  std::vector<fs::path> found;
  if (!cuda_home.empty()) found.push_back(cuda_home / "bin/nvcc");
  found.push_back("nvcc");
  for (const fs::path& home : toolkits()) found.push_back(home / "bin/nvcc");
  return found;
}

}  // namespace ac
