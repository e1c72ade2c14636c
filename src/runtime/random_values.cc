#include "runtime/random_values.h"

#include "base/error.h"
#include "kernels/random_plan.h"

namespace ac {

KernelSource random_source() {
  return {"random",
          "#include \"kernels/random.cuh\"\nnamespace ac::kernels {\nAC_RANDOM_KERNELS\n}\n"};
}

RandomValues::RandomValues(Device& device, const std::filesystem::path& kernels) : device_(device) {
  for (const auto& [dtype, entry] :
       {std::pair{DType::f32, "random_f32_kernel"}, std::pair{DType::f16, "random_f16_kernel"},
        std::pair{DType::bf16, "random_bf16_kernel"},
        std::pair{DType::f8e4m3, "random_e4m3_kernel"},
        std::pair{DType::f8e8m0, "random_e8m0_kernel"}, std::pair{DType::u8, "random_u8_kernel"},
        std::pair{DType::i8, "random_i8_kernel"}, std::pair{DType::i32, "random_i32_kernel"}})
    kernels_[dtype] = device.load(kernels, entry);
}

void RandomValues::fill(void* to, DType dtype, std::int64_t count, std::uint64_t seed,
                        double offset, double scale) const {
  const auto found = kernels_.find(dtype);
  if (found == kernels_.end())
    job_failed("there are no random values of the type {}", short_name(dtype));
  kernels::RandomParams params{};
  params.to = to, params.count = static_cast<unsigned long long>(count), params.seed = seed;
  params.offset = static_cast<float>(offset), params.scale = static_cast<float>(scale);
  const auto blocks =
      static_cast<unsigned>((count + kernels::random_threads - 1) / kernels::random_threads);
  const unsigned most = 4 * static_cast<unsigned>(device_.info().multiprocessors);
  if (count > 0)
    device_.launch(*found->second,
                   {.grid = {std::min(blocks, most), 1, 1}, .threads = kernels::random_threads},
                   std::as_bytes(std::span(&params, 1)));
}

}  // namespace ac
