// Matrix products of cuBLASLt on one GPU. Row-major y = x W^T is, in its column-major terms, the
// product of W^T, transposed, and x^T.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "device/cuda/cublaslt.h"
#include "device/cuda/session.h"
#include "device/device.h"

namespace ac::cuda {

// A handle, and the scratch memory that all products share: they run one after the other.
class ProductLibrary {
 public:
  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;  // as NVIDIA advises

  // Throws Fault::job_failed where there is no cuBLASLt.
  explicit ProductLibrary(Device& device);
  ~ProductLibrary();
  ProductLibrary(const ProductLibrary&) = delete;
  ProductLibrary& operator=(const ProductLibrary&) = delete;

  const CublasLt& calls() const { return calls_; }
  BlasHandle handle() const { return handle_; }
  void* workspace() const { return workspace_->address(); }

 private:
  const CublasLt& calls_;
  std::unique_ptr<Device::Memory> workspace_;
  BlasHandle handle_ = nullptr;
};

class CudaProduct : public Device::Kernel {
 public:
  // Throws Fault::job_failed if the library does not propose the algorithm that is wanted.
  CudaProduct(std::shared_ptr<ProductLibrary> library, const Product& product);

  const std::string& name() const { return name_; }
  void launch(std::span<const std::byte> params, Stream stream) const;

 private:
  template <class Handle>
  using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, int (*)(Handle)>;
  // The product for one number of rows.
  struct Prepared {
    Owned<BlasLayout> x, y;
    BlasAlgorithm algorithm{};
    std::size_t workspace_bytes = 0;
  };

  Owned<BlasLayout> layout(std::int64_t rows, std::int64_t columns, std::int64_t pitch) const;
  Prepared layouts_for(std::int64_t m, std::int64_t n) const;
  std::vector<BlasProposal> proposals(const Prepared& of, BlasLayout weight, int wanted,
                                      std::uint32_t alignment) const;
  const Prepared& prepared(std::int64_t m, std::uint32_t alignment) const;
  std::string described(std::int64_t m) const;
  // Throws if a call of a launch failed.
  void require(int status, std::int64_t m) const {
    if (status != 0) calls().require(status, "launching " + described(m));
  }
  const CublasLt& calls() const { return library_->calls(); }

  std::shared_ptr<ProductLibrary> library_;
  Product product_;
  std::string name_;
  Owned<BlasProduct> what_;
  Owned<BlasLayout> weight_;
  BlasAlgorithm tuned_{};
  // By rows and by the alignment of what is multiplied. What the library proposes is asked once.
  mutable std::map<std::pair<std::int64_t, std::uint32_t>, Prepared> prepared_;
};

}  // namespace ac::cuda
