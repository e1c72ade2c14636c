#include "device/host.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/cpu.h"
#include "base/error.h"
#include "base/files.h"
#include "device/device.h"

namespace ac {
namespace {

// What went wrong last, in the loader's words.
std::string reason() {
  const char* text = dlerror();
  return text ? text : "unknown";
}

// A file that only this process sees, until it is loaded: what the loader maps cannot be truncated
// under it.
class MemoryFile {
 public:
  MemoryFile(std::string_view content, const std::filesystem::path& name)
      : fd_(memfd_create(name.filename().c_str(), MFD_CLOEXEC)), path_(name_of(fd_)) {
    const auto fail = [&] {
      const std::string why = std::strerror(errno);
      if (fd_ >= 0) close(fd_);
      job_failed("{}: cannot load the kernel: no file in memory: {}", name.string(), why);
    };
    if (fd_ < 0) fail();
    while (!content.empty()) {
      const ssize_t wrote = write(fd_, content.data(), content.size());
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) fail();
      content.remove_prefix(static_cast<std::size_t>(wrote));
    }
  }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  // The loader takes what has the name of a library that it has loaded for that library, and
  // numbers of files come again. Slashes and dots, which mean nothing here, count the files.
  static std::string name_of(int fd) {
    static std::atomic<std::uint64_t> count = 0;
    std::string name = "/proc/self/fd";
    for (std::uint64_t left = ++count; left > 0; left /= 2) name += left % 2 == 1 ? "/." : "//";
    return fmt::format("{}/{}", name, fd);
  }

  int fd_;
  std::string path_;
};

// Kernels take the device's functions from its shared library. A library that was loaded late has
// brought that along for itself alone: from here on, all that is loaded finds it.
void show_functions_to_kernels() {
  static const bool shown = [] {
    Dl_info info{};
    return dladdr(reinterpret_cast<void*>(&kernels::run_on_host), &info) != 0 &&
           dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL) != nullptr;
  }();
  if (!shown) job_failed("the library of the host device cannot be found: {}", reason());
}

template <class Function>
Function find(void* library, const std::filesystem::path& file, const std::string& name) {
  void* const symbol = dlsym(library, name.c_str());
  if (symbol == nullptr)
    job_failed("{}: no kernel of the host device: it has no {}", file.string(), name);
  return reinterpret_cast<Function>(symbol);
}

}  // namespace

HostKernel::HostKernel(std::string_view content, const std::filesystem::path& file,
                       const std::string& entry)
    : name_(entry) {
  show_functions_to_kernels();
  const MemoryFile copy(content, file);
  void* const library = dlopen(copy.path().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::string why = reason();
    if (const std::size_t at = why.find(copy.path()); at != std::string::npos)
      why.replace(at, copy.path().size(), file.filename().string());
    job_failed("{}: cannot load the kernel: {}", file.string(), why);
  }
  library_ = std::shared_ptr<void>(library, dlclose);
  if (dlsym(library, "ac_uses_fma") != nullptr && !cpu_has_fma())
    job_failed("{}: it was compiled for a CPU with FMA, which this one lacks: compile it here",
               file.string());
  thread_body_ = find<void (*)(void*)>(library, file, entry + "_on_host");
  params_bytes_ = find<unsigned long (*)()>(library, file, entry + "_params_bytes")();
  cluster_ = find<unsigned (*)()>(library, file, entry + "_cluster_blocks")();
}

HostKernel::HostKernel(const std::filesystem::path& file, const std::string& entry)
    : HostKernel(read_file(file, Device::kLargestKernel), file, entry) {}

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
