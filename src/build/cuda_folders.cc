#include "build/cuda_folders.h"

#include <algorithm>
#include <functional>
#include <sstream>
#include <string_view>
#include <system_error>

#include "base/own_file.h"

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

// Files of one library, wherever they may be.
class Candidates {
 public:
  explicit Candidates(std::string stem) : stem_(std::move(stem)) {}

  void add_folder(const fs::path& folder) {
    for (fs::path& file : entries(folder, stem_)) found_.push_back(std::move(file));
  }
  void add_toolkit(const fs::path& home) {
    for (const char* folder :
         {"lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"})
      add_folder(home / folder);
  }
  // Packages put it into nvidia/cu13/lib, nvidia/cuda_nvrtc/lib or nvidia/cublas/lib.
  void add_python(const fs::path& prefix) {
    for (const fs::path& python : entries(prefix / "lib", "python"))
      for (const char* packages : {"site-packages", "dist-packages"})
        for (const fs::path& package : entries(python / packages / "nvidia", ""))
          add_folder(package / "lib");
  }
  void add_name(std::string name) { found_.emplace_back(std::move(name)); }

  // What comes with a bundle or an environment, here or beside the program or library.
  void add_surroundings() {
    std::vector<fs::path> parents = {"."};
    if (const fs::path file = own_file(); !file.empty()) {
      const fs::path folder = file.parent_path();  // bin, lib, or build/release in the repository
      add_folder((folder / "../lib").lexically_normal());  // of a bundle
      for (const char* up : {".", "..", "../.."})
        parents.push_back((folder / up).lexically_normal());
    }
    for (const fs::path& parent : parents)
      for (const char* name : {".venv", "venv"}) add_python(parent / name);
  }

  std::vector<fs::path> take() { return std::move(found_); }

 private:
  std::string stem_;
  std::vector<fs::path> found_;
};

}  // namespace

std::vector<fs::path> nvrtc_candidates(const fs::path& cuda_home) {
  Candidates found("libnvrtc.so");
  if (!cuda_home.empty()) found.add_toolkit(cuda_home);
  found.add_surroundings();
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12"}) found.add_name(name);
  for (const fs::path& home : toolkits()) found.add_toolkit(home);
  return found.take();
}

std::vector<fs::path> cublaslt_candidates(const fs::path& cuda_home,
                                          const std::string& search_path) {
  Candidates found("libcublasLt.so");
  if (!cuda_home.empty()) found.add_toolkit(cuda_home);
  found.add_surroundings();
  std::istringstream folders(search_path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::error_code error;
    const fs::path python = fs::path(folder) / "python3";
    if (folder.empty() || !fs::exists(python, error)) continue;
    found.add_python((fs::path(folder) / "..").lexically_normal());
    // What an environment was made of may have packages as well.
    if (const fs::path real = fs::canonical(python, error); !error)
      found.add_python(real.parent_path().parent_path());
  }
  for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12"}) found.add_name(name);
  for (const fs::path& home : toolkits()) found.add_toolkit(home);
  return found.take();
}

std::vector<fs::path> nvcc_candidates(const fs::path& cuda_home) {
  std::vector<fs::path> found;
  if (!cuda_home.empty()) found.push_back(cuda_home / "bin/nvcc");
  found.push_back("nvcc");
  for (const fs::path& home : toolkits()) found.push_back(home / "bin/nvcc");
  return found;
}

}  // namespace ac
