#include "device/cuda/cuda_product.h"

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace ac::cuda {
namespace {

constexpr std::uint32_t kBestAlignment = 256;
constexpr int kProposals = 8;  // at least, so that the first ones do not depend on how many

BlasType type_of(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return real_f16;
    case DType::bf16:
      return real_bf16;
    default:
      return real_f32;
  }
}

// Of all that the product reads and writes; a pointer that is not used is 0.
std::uint32_t alignment_of(const ProductParams& p) {
  std::uint64_t bits = kBestAlignment;
  for (const void* at : {p.x, p.weight, p.residual, static_cast<const void*>(p.y)})
    bits |= reinterpret_cast<std::uint64_t>(at);
  return std::uint32_t{1} << std::countr_zero(bits);
}

// cuBLASLt 13.1 gave wrong sums on an H100 where there was a bias and rows did not begin at whole
// multiples of 16 bytes (77 x 131, to 76 roundings off).
bool is_aligned(const Product& product) {
  const auto elements = static_cast<std::int64_t>(16 / bytes_of(product.dtype));
  return product.n % elements == 0 && product.k % elements == 0 && product.x_pitch % elements == 0;
}

}  // namespace

ProductLibrary::ProductLibrary(Device& device)
    : calls_(cublaslt()), workspace_(device.allocate(kWorkspaceBytes)) {
  calls_.require(calls_.create(&handle_), "starting cuBLASLt");
}

ProductLibrary::~ProductLibrary() { calls_.destroy(handle_); }

CudaProduct::CudaProduct(std::shared_ptr<ProductLibrary> library, const Product& product)
    : library_(std::move(library)),
      product_(product),
      name_(name_of(product)),
      what_(nullptr, calls().destroy_product),
      weight_(nullptr, calls().destroy_layout) {
  if (const char* why = why_impossible(product)) job_failed("{}", why);
  if (product.bias && !is_aligned(product))
    job_failed("cuBLASLt is not asked for {}: rows of 16 bytes and a bias may be wrong there",
               described(product.tuned_m));
  const std::string doing = "preparing " + described(product.tuned_m);
  const auto set = [&](BlasProductAttribute attribute, const auto& value) {
    calls().require(calls().set_product(what_.get(), attribute, &value, sizeof value), doing);
  };
  BlasProduct what = nullptr;
  calls().require(calls().create_product(&what, kBlasComputeFloat32, real_f32), doing);
  what_.reset(what);
  set(BlasProductAttribute::transpose_a, kBlasTranspose);
  if (product.bias) {
    set(BlasProductAttribute::epilogue, kBlasEpilogueBias);
    set(BlasProductAttribute::bias, library_->workspace());  // any, until there is one
  }
  weight_ = layout(product.k, product.n, product.k);

  const Owned<BlasLayout> tuned_weight = layout(product.k, product.tuned_n, product.k);
  const Prepared tuned = layouts_for(product.tuned_m, product.tuned_n);
  const std::vector<BlasProposal> proposed =
      proposals(tuned, tuned_weight.get(), product.algorithm + 1, kBestAlignment);
  if (static_cast<std::size_t>(product.algorithm) >= proposed.size())
    job_failed("cuBLASLt {} proposes {} algorithms for {}, and none with the index {}",
               calls().version_text(), proposed.size(), described(product.tuned_m),
               product.algorithm);
  tuned_ = proposed[static_cast<std::size_t>(product.algorithm)].algorithm;
}

std::string CudaProduct::described(std::int64_t m) const {
  return fmt::format("the product {} of {} x {} x {}", name(), m, product_.n, product_.k);
}

CudaProduct::Owned<BlasLayout> CudaProduct::layout(std::int64_t rows, std::int64_t columns,
                                                   std::int64_t pitch) const {
  BlasLayout made = nullptr;
  calls().require(
      calls().create_layout(&made, type_of(product_.dtype), static_cast<std::uint64_t>(rows),
                            static_cast<std::uint64_t>(columns), pitch),
      "describing a matrix");
  return {made, calls().destroy_layout};
}

CudaProduct::Prepared CudaProduct::layouts_for(std::int64_t m, std::int64_t n) const {
  return {.x = layout(product_.k, m, product_.x_pitch), .y = layout(n, m, n)};
}

// Best first; nothing if the library cannot compute it.
std::vector<BlasProposal> CudaProduct::proposals(const Prepared& of, BlasLayout weight, int wanted,
                                                 std::uint32_t alignment) const {
  BlasPreference made = nullptr;
  calls().require(calls().create_preference(&made), "asking for algorithms");
  const Owned<BlasPreference> preference(made, calls().destroy_preference);
  const auto prefer = [&](BlasPreferenceAttribute attribute, const auto& value) {
    calls().require(calls().set_preference(made, attribute, &value, sizeof value),
                    "asking for algorithms");
  };
  prefer(BlasPreferenceAttribute::workspace_bytes, std::uint64_t{ProductLibrary::kWorkspaceBytes});
  prefer(BlasPreferenceAttribute::reduction, kBlasReduceInFloat32);
  using enum BlasPreferenceAttribute;
  for (const auto of_matrix : {alignment_a, alignment_b, alignment_c, alignment_d})
    prefer(of_matrix, alignment);
  std::vector<BlasProposal> found(static_cast<std::size_t>(std::max(wanted, kProposals)));
  int count = 0;
  const int status =
      calls().propose(library_->handle(), what_.get(), weight, of.x.get(), of.y.get(), of.y.get(),
                      made, static_cast<int>(found.size()), found.data(), &count);
  found.resize(status == 0 ? static_cast<std::size_t>(count) : 0);
  std::erase_if(found, [](const BlasProposal& proposal) { return proposal.status != 0; });
  return found;
}

const CudaProduct::Prepared& CudaProduct::prepared(std::int64_t m, std::uint32_t alignment) const {
  const auto known = prepared_.find({m, alignment});
  if (known != prepared_.end()) return known->second;
  Prepared made = layouts_for(m, product_.n);
  BlasProposal proposal{};
  const bool fits = 2 * m > product_.tuned_m && alignment == kBestAlignment &&
                    calls().check(library_->handle(), what_.get(), weight_.get(), made.x.get(),
                                  made.y.get(), made.y.get(), &tuned_, &proposal) == 0 &&
                    proposal.workspace_bytes <= ProductLibrary::kWorkspaceBytes;
  if (fits) {
    proposal.algorithm = tuned_;
  } else {
    const std::vector<BlasProposal> proposed = proposals(made, weight_.get(), 1, alignment);
    if (proposed.empty())
      job_failed("cuBLASLt {} cannot compute {}", calls().version_text(), described(m));
    proposal = proposed[0];
  }
  made.algorithm = proposal.algorithm;
  made.workspace_bytes = proposal.workspace_bytes;
  return prepared_.emplace(std::pair{m, alignment}, std::move(made)).first->second;
}

void CudaProduct::launch(std::span<const std::byte> params, Stream stream) const {
  const ProductParams p = check_params(product_, params);
  const Prepared& with = prepared(p.m, alignment_of(p));
  if (product_.bias)
    require(calls().set_product(what_.get(), BlasProductAttribute::bias, &p.bias, sizeof p.bias),
            p.m);
  const auto alpha = static_cast<float>(product_.scale);
  const float beta = product_.residual ? 1 : 0;
  const void* const c = product_.residual ? p.residual : p.y;
  require(calls().multiply(library_->handle(), what_.get(), &alpha, p.weight, weight_.get(), p.x,
                           with.x.get(), &beta, c, with.y.get(), p.y, with.y.get(), &with.algorithm,
                           library_->workspace(), with.workspace_bytes, stream),
          p.m);
}

}  // namespace ac::cuda
