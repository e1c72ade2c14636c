#include "device/host.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstring>
#include <vector>

#include "base/error.h"

namespace ac {
namespace {

// What went wrong last, in the loader's words.
std::string reason() {
  const char* text = dlerror();
  return text ? text : "unknown";
}

template <class Function>
Function find(void* library, const std::filesystem::path& file, const std::string& name) {
  void* const symbol = dlsym(library, name.c_str());
  if (symbol == nullptr)
    job_failed("{}: no kernel of the host device: {}", file.string(), reason());
  return reinterpret_cast<Function>(symbol);
}

}  // namespace

HostKernel::HostKernel(const std::filesystem::path& file, const std::string& entry) : name_(entry) {
  // The device's own functions are in a shared library that this program started with.
  const std::filesystem::path path =
      std::filesystem::absolute(file);  // a bare name is searched for
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) job_failed("{}: cannot load the kernel: {}", path.string(), reason());
  library_ = std::shared_ptr<void>(library, dlclose);
  thread_body_ = find<void (*)(void*)>(library, path, entry + "_on_host");
  params_bytes_ = find<unsigned long (*)()>(library, path, entry + "_params_bytes")();
  cluster_ = find<unsigned (*)()>(library, path, entry + "_cluster_blocks")();
}

kernels::LaunchReport HostKernel::launch(const kernels::HostLaunch& launch,
                                         std::span<const std::byte> params) const {
  if (params.size() != params_bytes_)
    return {fmt::format("kernel {}: {} bytes of parameters instead of {}", name_, params.size(),
                        params_bytes_)};
  std::vector<std::max_align_t> aligned(params_bytes_ / sizeof(std::max_align_t) + 1);
  std::memcpy(aligned.data(), params.data(), params_bytes_);
  kernels::HostLaunch named = launch;
  named.name = name_.c_str();
  named.cluster = cluster_;
  return kernels::run_on_host(named, thread_body_, aligned.data());
}

void encode_map_on_host(const kernels::MatrixView& matrix, kernels::TensorMap& map) {
  map = {};
  std::memcpy(map.bytes, &matrix, sizeof matrix);
}

}  // namespace ac
