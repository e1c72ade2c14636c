#include "runtime/random_values.h"

#include "base/error.h"

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
  codes_ = device.load(kernels, "random_codes_kernel");
}

void RandomValues::fill(void* to, DType dtype, std::int64_t count, std::uint64_t seed,
                        double offset, double scale, std::int64_t every) const {
  const auto found = kernels_.find(dtype);
  if (found == kernels_.end())
    job_failed("there are no random values of the type {}", short_name(dtype));
  launch(*found->second, {.to = to,
                          .count = static_cast<unsigned long long>(count),
                          .every = static_cast<unsigned long long>(every),
                          .seed = seed,
                          .offset = static_cast<float>(offset),
                          .scale = static_cast<float>(scale)});
}

void RandomValues::fill_codes(void* to, std::int64_t bytes, std::uint64_t seed) const {
  launch(*codes_, {.to = to,
                   .count = static_cast<unsigned long long>(bytes),
                   .every = 1,
                   .seed = seed,
                   .offset = 127.5f,
                   .scale = 127.5f});
}

void RandomValues::launch(const Device::Kernel& kernel, const kernels::RandomParams& params) const {
  if (params.count == 0) return;
  const unsigned long long threads = kernels::random_threads,
                           blocks = (params.count + threads - 1) / threads;
  const auto most = 4 * static_cast<unsigned long long>(device_.info().multiprocessors);
  device_.launch(kernel,
                 {.grid = {static_cast<unsigned>(std::min(blocks, most)), 1, 1},
                  .threads = kernels::random_threads},
                 std::as_bytes(std::span(&params, 1)));
}

}  // namespace ac
