#include "device/best_rates.h"

#include <algorithm>

#include "kernels/measure_plan.h"

namespace ac {
namespace {

using namespace kernels;

constexpr int kLaunches = 4;         // timed together
constexpr unsigned kMmaBlocks = 4;   // a multiprocessor
constexpr unsigned kMostBlocks = 4;  // a multiprocessor, of what moves data
constexpr std::size_t kPiece = 16;

class Bench {
 public:
  Bench(Device& device, const std::filesystem::path& kernels, int repeats)
      : device_(device), kernels_(kernels), repeats_(repeats) {}

  unsigned multiprocessors() const { return static_cast<unsigned>(device_.info().multiprocessors); }

  template <class Params>
  void launch(const char* entry, unsigned blocks, int threads, const Params& params) {
    launch(*device_.load(kernels_, entry), blocks, threads, params);
    device_.synchronize();
  }

  // Seconds of one launch: the least that was seen.
  template <class Params>
  double time(const char* entry, unsigned blocks, int threads, const Params& params) {
    const auto kernel = device_.load(kernels_, entry);
    launch(*kernel, blocks, threads, params);  // the first is slower
    double best = 0;
    for (int repeat = 0; repeat < repeats_; ++repeat) {
      const double seconds = device_.time([&] {
        for (int i = 0; i < kLaunches; ++i) launch(*kernel, blocks, threads, params);
      });
      if (repeat == 0 || seconds < best) best = seconds;
    }
    return best / kLaunches;
  }

 private:
  template <class Params>
  void launch(const Device::Kernel& kernel, unsigned blocks, int threads, const Params& params) {
    device_.launch(kernel, {.grid = {blocks, 1, 1}, .threads = static_cast<unsigned>(threads)},
                   std::as_bytes(std::span(&params, 1)));
  }

  Device& device_;
  std::filesystem::path kernels_;
  int repeats_;
};

void* behind(const Device::Memory& memory, std::size_t bytes) {
  return static_cast<std::byte*>(memory.address()) + bytes;
}

// The best rate over the numbers of blocks that may be the right one.
double memory_rate(Bench& bench, const char* entry, const MeasureMemoryParams& params,
                   double bytes) {
  double rate = 0;
  for (unsigned blocks = 2; blocks <= kMostBlocks; ++blocks)
    rate = std::max(
        rate, bytes / bench.time(entry, blocks * bench.multiprocessors(), measure_threads, params));
  return rate;
}

}  // namespace

KernelSource measure_source() {
  return {"measure",
          "#include \"kernels/measure.cuh\"\nnamespace ac::kernels {\nAC_MEASURE_KERNELS\n}\n"};
}

Measured measure(Device& device, const std::filesystem::path& kernels, const MeasureSizes& sizes) {
  Bench bench(device, kernels, sizes.repeats);
  const unsigned sms = bench.multiprocessors();
  const std::size_t half = std::min(sizes.bytes, device.free_bytes() / 2) / 2 / kPiece * kPiece;
  const auto data = device.allocate(2 * half);
  const auto results = device.allocate(
      sizeof(unsigned) * sms *
      std::max<std::size_t>(kMostBlocks * measure_threads, kMmaBlocks * measure_mma_threads));
  // Bits as random as weights', since a GPU is faster on zeros.
  bench.launch(
      "measure_fill_kernel", sms, measure_threads,
      MeasureFillParams{.to = data->address(), .count = 2 * half / 4, .clear = 0, .set = 0});

  Measured measured;
  const auto bytes = static_cast<double>(2 * half);
  measured.read = memory_rate(bench, "measure_read_kernel",
                              {data->address(), results->address(), 2 * half / kPiece}, bytes);
  measured.copy = memory_rate(bench, "measure_copy_kernel",
                              {data->address(), behind(*data, half), half / kPiece}, bytes);

  // Finite values between 1/8 and 2 of either sign.
  bench.launch("measure_fill_kernel", 1, measure_threads,
               MeasureFillParams{.to = data->address(),
                                 .count = measure_mma_operand_words,
                                 .clear = 0x40004000,
                                 .set = 0x30003000});
  const unsigned blocks = kMmaBlocks * sms;
  const double seconds =
      bench.time("measure_mma_kernel", blocks, measure_mma_threads,
                 MeasureMmaParams{data->address(), results->address(), sizes.rounds});
  measured.tensor_flops =
      measure_mma_flops * sizes.rounds * blocks * (measure_mma_threads / 32) / seconds;
  return measured;
}

}  // namespace ac
