// The host device: runs a kernel that was built for it (build/compile.h), knowing no more than its
// name and the bytes of its parameters. kernels/shim/host_launch.h says what a launch checks.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "kernels/shim/host_launch.h"
#include "kernels/tensor_map.h"

namespace ac {

class HostKernel {
 public:
  // Throws Fault::job_failed, naming the file, if it cannot be loaded or has no such kernel. The
  // content is loaded, and not what the file may be by now.
  HostKernel(std::string_view content, const std::filesystem::path& file, const std::string& entry);
  HostKernel(const std::filesystem::path& file, const std::string& entry);

  const std::string& name() const { return name_; }
  unsigned cluster() const { return cluster_; }  // blocks
  std::size_t params_bytes() const { return params_bytes_; }

  // `params` holds the kernel's parameter struct; `launch.name` and `launch.cluster` are not used.
  // May run on several threads at once, if what the parameters point to may.
  kernels::LaunchReport launch(const kernels::HostLaunch& launch,
                               std::span<const std::byte> params) const;

 private:
  std::string name_;
  std::shared_ptr<void> library_;
  void (*thread_body_)(void* params) = nullptr;
  std::size_t params_bytes_ = 0;
  unsigned cluster_ = 1;
};

// What kernels on the host take for a map: the view itself, and zeros.
void encode_map_on_host(const kernels::MatrixView& matrix, kernels::TensorMap& map);

}  // namespace ac
