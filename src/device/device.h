// A device that kernels run on: memory, kernels, launches, graphs and time. Two kinds: the GPU
// through CUDA's driver, and the host, which runs the same kernels on the CPU. Work is done in the
// order in which it is asked for; launches and fills may return before they are done, uploads and
// downloads do not. For one thread at a time.
//
// A failure that leaves the device usable throws Fault::job_failed. Fault::device_lost, which any
// call may throw after a kernel that went wrong, does not: every later call throws it too, and the
// process must end.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/files.h"
#include "base/product.h"
#include "device/device_info.h"
#include "kernels/tensor_map.h"

namespace ac {

struct LaunchShape {
  std::array<unsigned, 3> grid = {1, 1, 1};
  unsigned threads = 1;
  unsigned shared_bytes = 0;
  // The kernel may start while the one before it still runs; it waits for that itself.
  bool overlaps = false;
  // Its blocks wait for each other: all of them run at once, or none does.
  bool at_once = false;
};

class Device {
 public:
  // Each frees what it stands for. A device outlives what it made; memory outlives the launches and
  // recordings that use it; a kernel may go when it has been launched or recorded.
  class Memory {
   public:
    virtual ~Memory() = default;
    virtual void* address() const = 0;
    virtual std::size_t bytes() const = 0;
  };
  class Kernel {
   public:
    virtual ~Kernel() = default;
  };
  class Recording {
   public:
    virtual ~Recording() = default;
    virtual void replay() = 0;
  };

  // A point in the order of the device's work: the latest at which it was set. One that was never
  // set is reached.
  class Mark {
   public:
    virtual ~Mark() = default;
    virtual void set() = 0;
    virtual void wait() = 0;
    // Between two marks that are set, of which this is the later: waits for it.
    virtual double seconds_since(const Mark& earlier) = 0;
  };

  static constexpr std::size_t kLargestKernel = std::size_t{1} << 30;

  virtual ~Device() = default;
  virtual std::string name() const = 0;        // "NVIDIA H100 80GB HBM3"
  virtual const DeviceInfo& info() const = 0;  // measured or known limits
  virtual std::size_t free_bytes() const = 0;

  // At a multiple of 256 bytes; what is in it is not defined (on the host, NaN). Too much is an
  // error (job_failed) with the numbers.
  virtual std::unique_ptr<Memory> allocate(std::size_t bytes) = 0;
  virtual void upload(void* to, std::span<const std::byte> from) = 0;
  virtual void download(std::span<std::byte> to, const void* from) = 0;
  // Memory of the host that the device reads and writes by itself, for these: they return before
  // they are done, and in order with launches, as a mark set after them tells.
  virtual std::unique_ptr<Memory> allocate_staging(std::size_t bytes) = 0;
  virtual void upload_later(void* to, const void* staging, std::size_t bytes) = 0;
  virtual void download_later(void* staging, const void* from, std::size_t bytes) = 0;
  virtual std::unique_ptr<Mark> make_mark() = 0;
  // Within the device, in order with launches.
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  // Rows of a matrix. A pitch is the distance in bytes from one row's first byte to the next one's.
  struct RowCopy {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    std::size_t row_bytes = 0, rows = 0, to_pitch = 0, from_pitch = 0;
  };
  virtual void copy_rows(const RowCopy& copy) = 0;
  virtual void fill(void* at, std::size_t bytes, unsigned char value) = 0;

  // From the content of a file that build/compile.h made for this device. What happens to the file
  // meanwhile does not matter: it only gives errors its name.
  virtual std::unique_ptr<Kernel> load(std::string_view content, const std::filesystem::path& file,
                                       const std::string& entry) = 0;
  std::unique_ptr<Kernel> load(const std::filesystem::path& file, const std::string& entry) {
    return load(read_file(file, kLargestKernel), file, entry);
  }
  // A product by the device's library, which is launched with ProductParams, whatever the shape. No
  // such library, or none that can compute it, is an error (job_failed) that says so.
  virtual std::unique_ptr<Kernel> load_product(const Product& product) = 0;
  // Memory that loading the first product takes, for all of them to work in; 0 once it is taken.
  virtual std::size_t product_bytes() const = 0;
  // What kernels take to have the copy engine bring boxes of a matrix in this device's memory. A
  // matrix that it does not take, and a device without the engine, is an error (job_failed).
  virtual void encode_map(const kernels::MatrixView& matrix, kernels::TensorMap& map) const = 0;
  std::function<void(const kernels::MatrixView&, kernels::TensorMap&)> map_encoder() const {
    return [this](const auto& matrix, auto& map) { encode_map(matrix, map); };
  }
  virtual void launch(const Kernel& kernel, const LaunchShape& shape,
                      std::span<const std::byte> params) = 0;
  virtual void synchronize() = 0;

  // What `enqueue` launches and fills, as something that can be launched again at once. It does not
  // run meanwhile; `enqueue` must ask for nothing else but that of this device.
  virtual std::unique_ptr<Recording> record(const std::function<void()>& enqueue) = 0;
  // Seconds that the device takes for what `enqueue` asks of it. Where the CPU may be slower than
  // the device, record first and time replays.
  double time(const std::function<void()>& enqueue);
  // What is waited for, and held, while something is timed: others leave the device alone then.
  using Turn = std::function<std::shared_ptr<void>()>;
  void time_in_turns(Turn turn) { turn_ = std::move(turn); }
  // For such turns, so far.
  std::chrono::steady_clock::duration waited() const { return waited_; }

 private:
  virtual double time_now(const std::function<void()>& enqueue) = 0;

  Turn turn_;
  std::chrono::steady_clock::duration waited_{0};
};

std::unique_ptr<Device> open_host_device();
// The GPU with this number. No driver, or no such GPU, is an error (job_failed) that says so.
std::unique_ptr<Device> open_cuda_device(int index = 0);

}  // namespace ac
