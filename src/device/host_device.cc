// The CPU behind the device interface: a launch runs at once, block by block (kernels/shim).
#include <sys/sysinfo.h>

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <vector>

#include "base/error.h"
#include "device/device.h"
#include "device/host.h"
#include "device/host_product.h"

namespace ac {
namespace {

constexpr std::size_t kAlignment = 256;

std::size_t available_bytes() {
  std::ifstream info("/proc/meminfo");
  std::string key, unit;
  for (std::size_t kib = 0; info >> key >> kib; std::getline(info, unit))
    if (key == "MemAvailable:") return kib << 10;
  struct sysinfo system{};
  return ::sysinfo(&system) == 0 ? std::size_t{system.freeram} * system.mem_unit : 0;
}

class HostMemory : public Device::Memory {
 public:
  explicit HostMemory(std::size_t bytes) : bytes_(bytes) {
    const std::size_t free = available_bytes();
    const std::size_t whole = (std::max<std::size_t>(bytes, 1) + kAlignment - 1) / kAlignment;
    if (bytes <= free) address_ = std::aligned_alloc(kAlignment, whole * kAlignment);
    if (address_ == nullptr)
      job_failed("host device: cannot allocate {:.3f} GiB ({} bytes): {:.3f} GiB are free",
                 static_cast<double>(bytes) / (1u << 30), bytes,
                 static_cast<double>(free) / (1u << 30));
    // NaN in every floating-point type: what is read before it is written shows.
    std::memset(address_, 0xff, whole * kAlignment);
  }
  ~HostMemory() override { std::free(address_); }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  void* address() const override { return address_; }
  std::size_t bytes() const override { return bytes_; }

 private:
  void* address_ = nullptr;
  std::size_t bytes_;
};

struct LoadedHostKernel : Device::Kernel {
  explicit LoadedHostKernel(HostKernel k) : kernel(std::move(k)) {}
  HostKernel kernel;
};

struct HostProduct : Device::Kernel {
  explicit HostProduct(const Product& p) : product(p) {}
  Product product;
};

// Seconds of processor that this thread has had. All work is done in the thread that asks for it;
// what others compute meanwhile is not this device's time.
double worked() {
  timespec now{};
  AC_ASSERT(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Work is done when it is asked for, so that every mark is reached.
class HostMark : public Device::Mark {
 public:
  void set() override { at_ = worked(); }
  void wait() override {}
  double seconds_since(const Mark& earlier) override {
    const auto* const other = dynamic_cast<const HostMark*>(&earlier);
    AC_ASSERT(other != nullptr);
    return at_ - other->at_;
  }

 private:
  double at_ = worked();
};

using Work = std::function<void()>;

struct HostRecording : Device::Recording {
  std::vector<Work> work;
  void replay() override {
    for (const Work& step : work) step();
  }
};

class HostDevice : public Device {
 public:
  std::string name() const override { return info().name; }
  const DeviceInfo& info() const override { return device_info("host"); }
  std::size_t free_bytes() const override { return available_bytes(); }

  std::unique_ptr<Memory> allocate(std::size_t bytes) override {
    return std::make_unique<HostMemory>(bytes);
  }
  void upload(void* to, std::span<const std::byte> from) override {
    AC_ASSERT(!recording_);
    if (!from.empty()) std::memcpy(to, from.data(), from.size());
  }
  void download(std::span<std::byte> to, const void* from) override {
    AC_ASSERT(!recording_);
    if (!to.empty()) std::memcpy(to.data(), from, to.size());
  }
  std::unique_ptr<Memory> allocate_staging(std::size_t bytes) override { return allocate(bytes); }
  void upload_later(void* to, const void* staging, std::size_t bytes) override {
    upload(to, {static_cast<const std::byte*>(staging), bytes});
  }
  void download_later(void* staging, const void* from, std::size_t bytes) override {
    download({static_cast<std::byte*>(staging), bytes}, from);
  }
  std::unique_ptr<Mark> make_mark() override { return std::make_unique<HostMark>(); }
  void copy(void* to, const void* from, std::size_t bytes) override {
    AC_ASSERT(!recording_);
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void copy_rows(const RowCopy& of) override {
    for (std::size_t row = 0; row < of.rows; ++row)
      copy(of.to + row * of.to_pitch, of.from + row * of.from_pitch, of.row_bytes);
  }
  void fill(void* at, std::size_t bytes, unsigned char value) override {
    do_or_record([=] {
      if (bytes > 0) std::memset(at, value, bytes);
    });
  }

  using Device::load;
  std::unique_ptr<Kernel> load(std::string_view content, const std::filesystem::path& file,
                               const std::string& entry) override {
    return std::make_unique<LoadedHostKernel>(HostKernel(content, file, entry));
  }
  void encode_map(const kernels::MatrixView& matrix, kernels::TensorMap& map) const override {
    encode_map_on_host(matrix, map);
  }
  std::size_t product_bytes() const override { return 0; }
  std::unique_ptr<Kernel> load_product(const Product& product) override {
    if (const char* why = why_impossible(product)) job_failed("{}", why);
    return std::make_unique<HostProduct>(product);
  }
  void launch(const Kernel& kernel, const LaunchShape& shape,
              std::span<const std::byte> params) override {
    if (const auto* const made = dynamic_cast<const HostProduct*>(&kernel)) {
      check_params(made->product, params);
      return do_or_record(
          [product = made->product, own = std::vector<std::byte>(params.begin(), params.end())] {
            multiply_on_host(product, own);
          });
    }
    const auto* const loaded = dynamic_cast<const LoadedHostKernel*>(&kernel);
    AC_ASSERT(loaded != nullptr);
    if (const auto most = static_cast<unsigned>(info().max_shared_bytes); shape.shared_bytes > most)
      job_failed("kernel {}: {} bytes of shared memory in a block; at most {} are possible",
                 loaded->kernel.name(), shape.shared_bytes, most);
    do_or_record([kernel = loaded->kernel, shape,
                  params = std::vector<std::byte>(params.begin(), params.end())] {
      const kernels::LaunchReport report =
          kernel.launch({.grid = {shape.grid[0], shape.grid[1], shape.grid[2]},
                         .block = {shape.threads},
                         .shared_bytes = shape.shared_bytes},
                        params);
      if (!report.ok()) job_failed("{}", report.error);
    });
  }
  void synchronize() override { AC_ASSERT(!recording_); }

  std::unique_ptr<Recording> record(const Work& enqueue) override {
    AC_ASSERT(!recording_);
    auto recording = std::make_unique<HostRecording>();
    recording_ = &recording->work;
    try {
      enqueue();
    } catch (...) {
      recording_ = nullptr;
      throw;
    }
    recording_ = nullptr;
    return recording;
  }
  double time_now(const Work& enqueue) override {
    AC_ASSERT(!recording_);
    const double start = worked();
    enqueue();
    return worked() - start;
  }

 private:
  void do_or_record(Work work) {
    if (recording_ != nullptr)
      recording_->push_back(std::move(work));
    else
      work();
  }

  std::vector<Work>* recording_ = nullptr;
};

}  // namespace

std::unique_ptr<Device> open_host_device() { return std::make_unique<HostDevice>(); }

}  // namespace ac
