// Where CUDA's compilers and libraries may be.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ac {

// Files that may be NVRTC, best first; those with no folder are for the loader to find. After the
// named toolkit: a bundle's own (../lib from the program), Python environments here and beside the
// program (pip install nvidia-cuda-nvrtc), the loader's path, toolkits in /usr/local.
std::vector<std::filesystem::path> nvrtc_candidates(const std::filesystem::path& cuda_home);

// The same for cuBLASLt, and in the packages of any Python in the folders of `search_path` (PATH).
std::vector<std::filesystem::path> cublaslt_candidates(const std::filesystem::path& cuda_home,
                                                       const std::string& search_path);

// The same for nvcc; a bare name is for PATH.
std::vector<std::filesystem::path> nvcc_candidates(const std::filesystem::path& cuda_home);

}  // namespace ac
