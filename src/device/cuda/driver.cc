#include "device/cuda/driver.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <memory>

#include "base/error.h"

namespace ac::cuda {

bool ends_process(int status) {
  static constexpr std::array kFatal = {
      46,   // device unavailable
      214,  // uncorrectable memory error
      220,  // uncorrectable NVLink error
      226,  // contained memory error
      700,  // illegal address
      702,  // launch timeout
      709,  // context destroyed
      710,  // assert in a kernel
      714,  // hardware stack error
      715,  // illegal instruction
      716,  // misaligned address
      717,  // invalid address space
      718,  // invalid program counter
      719,  // launch failure
      721,  // tensor memory leak
      999,  // unknown
  };
  return std::ranges::find(kFatal, status) != kFatal.end();
}

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

Library::Library() : handle_(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {
  // Never closed: its threads and exit handlers outlive whoever uses it.
  if (handle_ == nullptr) job_failed("no NVIDIA driver (libcuda.so.1 was not found)");
  const auto get_version = reinterpret_cast<int (*)(int*)>(dlsym(handle_, "cuDriverGetVersion"));
  int version = 0;
  if (get_version && get_version(&version) == success) version_ = version_text(version);
}

void* Library::find(const char* name) const {
  void* const function = dlsym(handle_, name);
  if (function == nullptr)
    job_failed(
        "the NVIDIA driver is too old: it is for CUDA {} and has no {}; one for CUDA 12.4 or later "
        "(version 550) is needed",
        version_.empty() ? "of an unknown version" : version_, name);
  return function;
}

std::string Driver::describe(Result result) const {
  const auto ask = [&](const auto& call, const char* otherwise) {
    const char* text = nullptr;
    return call(result.status, &text).ok() && text != nullptr ? text : otherwise;
  };
  return fmt::format("{} gave {} ({})", result.call,
                     ask(error_name, fmt::format("error {}", result.status).c_str()),
                     ask(error_text, "not known to this driver"));
}

const Driver& driver() {
  static const Driver* const driver = [] {
    auto loaded = std::make_unique<Driver>();
    if (const Result result = loaded->init(0); result.status == no_device)
      job_failed("the NVIDIA driver sees no GPU");
    else if (!result.ok())
      job_failed("the NVIDIA driver does not start: {}", loaded->describe(result));
    return loaded.release();
  }();
  return *driver;
}

}  // namespace ac::cuda
