// A GPU behind the device interface.
#include <sys/mman.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "device/cuda/cubin.h"
#include "device/cuda/cuda_product.h"
#include "device/cuda/probe.h"
#include "device/cuda/session.h"
#include "device/device.h"

namespace ac {
namespace {

namespace fs = std::filesystem;
using namespace cuda;

constexpr int kOldestWithOverlap = 90, kOldestWithMaps = 90;
constexpr unsigned kBoxColumns = 64;

Address address_of(const void* p) { return reinterpret_cast<Address>(p); }
double gib(std::size_t bytes) { return static_cast<double>(bytes) / (1u << 30); }

class CudaMemory : public Device::Memory {
 public:
  CudaMemory(const Session& session, std::size_t bytes) : session_(session), bytes_(bytes) {
    const Driver& driver = session.enter();
    // Nothing at all still has an address.
    const Result result = driver.allocate(&address_, std::max<std::size_t>(bytes, 1));
    if (result.status == out_of_memory) {
      std::size_t free = 0, total = 0;
      session.check(driver.memory_info(&free, &total), "asking for the free memory");
      job_failed("GPU {}: cannot allocate {:.3f} GiB ({} bytes): {:.3f} of {:.3f} GiB are free",
                 session.index(), gib(bytes), bytes, gib(free), gib(total));
    }
    session.check(result, "allocating {} bytes", bytes);
  }
  ~CudaMemory() override { session_.enter_quietly().free(address_); }
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  void* address() const override { return reinterpret_cast<void*>(address_); }
  std::size_t bytes() const override { return bytes_; }

 private:
  const Session& session_;
  Address address_ = 0;
  std::size_t bytes_;
};

// Of the host, and never paged out.
// Pages of the host's own, large ones where it has them: to pin so many small ones takes several
// times as long.
class LargePages {
 public:
  explicit LargePages(std::size_t bytes) : mapped_bytes_(bytes + kPage) {
    mapped_ = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped_ == MAP_FAILED) job_failed("there is no memory for {} bytes to be pinned", bytes);
    void* first = mapped_;
    std::size_t space = mapped_bytes_;
    first_ = std::align(kPage, bytes, first, space);
    madvise(first_, bytes, MADV_HUGEPAGE);
  }
  ~LargePages() { munmap(mapped_, mapped_bytes_); }
  LargePages(const LargePages&) = delete;
  LargePages& operator=(const LargePages&) = delete;
  void* first() const { return first_; }

  static constexpr std::size_t kPage = std::size_t{2} << 20;

 private:
  std::size_t mapped_bytes_;
  void *mapped_, *first_;
};

class CudaPinnedPages : public Device::Memory {
 public:
  CudaPinnedPages(const Session& session, std::size_t bytes)
      : session_(session), bytes_(bytes), pages_(bytes) {
    session.check(session.enter().pin(pages_.first(), bytes, 0), "pinning {} bytes of memory",
                  bytes);
  }
  ~CudaPinnedPages() override {
    const Driver& driver = session_.enter_quietly();
    driver.synchronize(session_.stream());  // copies may still use it
    driver.unpin(pages_.first());
  }
  CudaPinnedPages(const CudaPinnedPages&) = delete;
  CudaPinnedPages& operator=(const CudaPinnedPages&) = delete;

  void* address() const override { return pages_.first(); }
  std::size_t bytes() const override { return bytes_; }

 private:
  const Session& session_;
  std::size_t bytes_;
  LargePages pages_;
};

class CudaStaging : public Device::Memory {
 public:
  CudaStaging(const Session& session, std::size_t bytes) : session_(session), bytes_(bytes) {
    session.check(session.enter().allocate_host(&address_, std::max<std::size_t>(bytes, 1), 0),
                  "allocating {} bytes of pinned memory", bytes);
  }
  ~CudaStaging() override {
    const Driver& driver = session_.enter_quietly();
    driver.synchronize(session_.stream());  // copies may still use it
    driver.free_host(address_);
  }
  CudaStaging(const CudaStaging&) = delete;
  CudaStaging& operator=(const CudaStaging&) = delete;

  void* address() const override { return address_; }
  std::size_t bytes() const override { return bytes_; }

 private:
  const Session& session_;
  void* address_ = nullptr;
  std::size_t bytes_;
};

class CudaMark : public Device::Mark {
 public:
  explicit CudaMark(const Session& session) : session_(session) {
    session.check(session.enter().create_event(&event_, 0), "creating an event");
  }
  ~CudaMark() override { session_.enter_quietly().destroy_event(event_); }
  CudaMark(const CudaMark&) = delete;
  CudaMark& operator=(const CudaMark&) = delete;

  void set() override {
    session_.check(session_.enter().record_event(event_, session_.stream()), "recording an event");
  }
  void wait() override {
    session_.check(session_.enter().wait_for_event(event_), "waiting for GPU {}", session_.index());
  }
  double seconds_since(const Mark& earlier) override {
    const auto* const other = dynamic_cast<const CudaMark*>(&earlier);
    AC_ASSERT(other != nullptr);
    wait();
    float milliseconds = 0;
    session_.check(session_.enter().elapsed(&milliseconds, other->event_, event_),
                   "reading the time");
    return milliseconds * 1e-3;
  }

 private:
  const Session& session_;
  Event event_ = nullptr;
};

// A loaded cubin. Recordings keep those whose kernels they launch.
class LoadedModule {
 public:
  LoadedModule(const Session& session, std::string_view content, const fs::path& file, int gpu)
      : session_(session) {
    const std::string cubin(content);
    const auto facts = cubin_facts(cubin);
    if (!facts)
      job_failed("{}: is no compiled kernel for GPUs (a cubin), or cut short", file.string());
    const Driver& driver = session.enter();
    const Result result = driver.load_module(&module_, cubin.c_str());
    if (result.status == invalid_image || result.status == no_binary_for_gpu ||
        result.status == unsupported_ptx)
      refuse(file, *facts, gpu, result);
    session.check(result, "loading {}", file.string());
  }
  ~LoadedModule() {
    const Driver& driver = session_.enter_quietly();
    driver.synchronize(session_.stream());  // its kernels may still run
    driver.unload_module(module_);
  }
  LoadedModule(const LoadedModule&) = delete;
  LoadedModule& operator=(const LoadedModule&) = delete;

  Module get() const { return module_; }

 private:
  [[noreturn]] void refuse(const fs::path& file, const CubinFacts& facts, int gpu,
                           Result result) const {
    const Driver& driver = session_.enter();
    // Of one generation, and not for a later member of it.
    if (facts.sm / 10 != gpu / 10 || facts.sm > gpu)
      job_failed("{}: it was built for sm_{}, and this GPU is an sm_{}: {}", file.string(),
                 facts.sm, gpu, driver.describe(result));
    int version = 0;
    session_.check(driver.version(&version), "asking for the driver's version");
    job_failed(
        "{}: it was built by CUDA {}, and the NVIDIA driver is for CUDA {}; one for the former or "
        "later is needed: {}",
        file.string(), facts.toolkit.empty() ? "of an unknown version" : facts.toolkit,
        version_text(version), driver.describe(result));
  }

  const Session& session_;
  Module module_ = nullptr;
};

struct CudaKernel : Device::Kernel {
  std::string name;
  std::shared_ptr<LoadedModule> module;
  Function function = nullptr;
  int threads = 0;       // at most, in a block
  int shared_bytes = 0;  // at most, besides what the kernel declares
  std::size_t params_bytes = 0;
};

class CudaRecording : public Device::Recording {
 public:
  CudaRecording(Session& session, GraphExec graph,
                std::vector<std::shared_ptr<LoadedModule>> modules, std::string name)
      : session_(session), graph_(graph), modules_(std::move(modules)), name_(std::move(name)) {}
  ~CudaRecording() override {
    // The driver lets go of a graph that still runs when it is done; its modules are ours to keep.
    const Driver& driver = session_.enter_quietly();
    driver.synchronize(session_.stream());
    driver.destroy_exec(graph_);
  }
  CudaRecording(const CudaRecording&) = delete;
  CudaRecording& operator=(const CudaRecording&) = delete;

  void replay() override {
    session_.check(session_.enter().launch_graph(graph_, session_.stream()), "launching {}", name_);
    session_.note_launch("", name_);
  }

 private:
  Session& session_;
  GraphExec graph_;
  std::vector<std::shared_ptr<LoadedModule>> modules_;
  std::string name_;
};

class CudaGpu : public Device {
 public:
  explicit CudaGpu(int index) : session_(index), info_(limits_of_gpu(driver(), index)) {}

  std::string name() const override { return info_.name; }
  const DeviceInfo& info() const override { return info_; }

  std::size_t free_bytes() const override {
    std::size_t free = 0, total = 0;
    session_.check(session_.enter().memory_info(&free, &total), "asking for the free memory");
    return free;
  }

  std::unique_ptr<Memory> allocate(std::size_t bytes) override {
    return std::make_unique<CudaMemory>(session_, bytes);
  }

  // The driver may read `from`, which is plain memory, after the call returns.
  void upload(void* to, std::span<const std::byte> from) override {
    AC_ASSERT(!recording_);
    if (from.empty()) return;
    session_.check(
        session_.enter().upload(address_of(to), from.data(), from.size(), session_.stream()),
        "copying {} bytes to the GPU", from.size());
    session_.synchronize();
  }
  void download(std::span<std::byte> to, const void* from) override {
    AC_ASSERT(!recording_);
    if (to.empty()) return;
    session_.check(
        session_.enter().download(to.data(), address_of(from), to.size(), session_.stream()),
        "copying {} bytes from the GPU", to.size());
    session_.synchronize();
  }
  std::unique_ptr<Memory> allocate_staging(std::size_t bytes) override {
    if (bytes >= 4 * LargePages::kPage) return std::make_unique<CudaPinnedPages>(session_, bytes);
    return std::make_unique<CudaStaging>(session_, bytes);
  }
  void upload_later(void* to, const void* staging, std::size_t bytes) override {
    AC_ASSERT(!recording_);
    if (bytes > 0)
      session_.check(session_.enter().upload(address_of(to), staging, bytes, session_.stream()),
                     "copying {} bytes to the GPU", bytes);
  }
  void download_later(void* staging, const void* from, std::size_t bytes) override {
    AC_ASSERT(!recording_);
    if (bytes > 0)
      session_.check(session_.enter().download(staging, address_of(from), bytes, session_.stream()),
                     "copying {} bytes from the GPU", bytes);
  }
  std::unique_ptr<Mark> make_mark() override { return std::make_unique<CudaMark>(session_); }
  void copy(void* to, const void* from, std::size_t bytes) override {
    AC_ASSERT(!recording_);
    if (bytes > 0)
      session_.check(
          session_.enter().copy(address_of(to), address_of(from), bytes, session_.stream()),
          "copying {} bytes on the GPU", bytes);
  }
  void copy_rows(const RowCopy& of) override {
    AC_ASSERT(!recording_);
    if (of.row_bytes == 0 || of.rows == 0) return;
    MatrixCopy copy;
    copy.from = {.type = kDeviceMemory, .address = address_of(of.from), .pitch = of.from_pitch};
    copy.to = {.type = kDeviceMemory, .address = address_of(of.to), .pitch = of.to_pitch};
    copy.row_bytes = of.row_bytes, copy.rows = of.rows;
    session_.check(session_.enter().copy_matrix(&copy, session_.stream()),
                   "copying {} rows of {} bytes on the GPU", of.rows, of.row_bytes);
  }
  void fill(void* at, std::size_t bytes, unsigned char value) override {
    if (bytes == 0) return;
    session_.check(session_.enter().fill(address_of(at), value, bytes, session_.stream()),
                   "filling {} bytes", bytes);
  }

  using Device::load;
  std::unique_ptr<Kernel> load(std::string_view content, const fs::path& artifact,
                               const std::string& entry) override;
  void encode_map(const kernels::MatrixView& matrix, kernels::TensorMap& map) const override;
  std::size_t product_bytes() const override {
    return library_ ? 0 : ProductLibrary::kWorkspaceBytes;
  }
  std::unique_ptr<Kernel> load_product(const Product& product) override {
    session_.enter();
    if (!library_) library_ = std::make_shared<ProductLibrary>(*this);
    return std::make_unique<CudaProduct>(library_, product);
  }
  void launch(const Kernel& kernel, const LaunchShape& shape,
              std::span<const std::byte> params) override;
  void synchronize() override {
    AC_ASSERT(!recording_);
    session_.synchronize();
  }
  std::unique_ptr<Recording> record(const std::function<void()>& enqueue) override;

  double time_now(const std::function<void()>& enqueue) override {
    AC_ASSERT(!recording_);
    CudaMark begin(session_), end(session_);
    begin.set();
    enqueue();
    end.set();
    const double seconds = end.seconds_since(begin);
    session_.note_done();
    return seconds;
  }

 private:
  // What a recording under way has seen so far.
  struct Open {
    std::vector<std::shared_ptr<LoadedModule>> modules;
    std::size_t launches = 0;
    std::string last;
  };

  void launch_product(const CudaProduct& product, std::span<const std::byte> params);
  void note_launch(const std::string& name);

  Session session_;
  DeviceInfo info_;
  std::shared_ptr<ProductLibrary> library_;  // when a product was asked for
  Open* recording_ = nullptr;
};

std::unique_ptr<Device::Kernel> CudaGpu::load(std::string_view content, const fs::path& artifact,
                                              const std::string& entry) {
  auto kernel = std::make_unique<CudaKernel>();
  kernel->name = entry;
  kernel->module = std::make_shared<LoadedModule>(session_, content, artifact, info_.sm);
  const Driver& driver = session_.enter();
  const Result found = driver.function(&kernel->function, kernel->module->get(), entry.c_str());
  if (found.status == not_found) job_failed("{}: has no kernel {}", artifact.string(), entry);
  session_.check(found, "finding kernel {} in {}", entry, artifact.string());

  const auto attribute = [&](FunctionAttribute which) {
    int value = 0;
    session_.check(driver.function_attribute(&value, which, kernel->function),
                   "asking about kernel {}", entry);
    return value;
  };
  const auto set = [&](FunctionAttribute which, int value) {
    session_.check(driver.set_function_attribute(kernel->function, which, value),
                   "preparing kernel {} for shared memory", entry);
  };
  kernel->threads = attribute(max_threads);
  kernel->shared_bytes = info_.max_shared_bytes - attribute(static_shared);
  set(max_dynamic_shared, kernel->shared_bytes);
  // One carve-out for all, so that neighbours in the stream can share a multiprocessor.
  set(shared_carveout, 100);

  // Kernels have one parameter, a struct (AC_KERNEL_ENTRY), or none.
  std::size_t offset = 0, bytes = 0;
  if (driver.parameter_info(kernel->function, 0, &offset, &bytes).ok()) {
    kernel->params_bytes = bytes;
    if (driver.parameter_info(kernel->function, 1, &offset, &bytes).ok())
      job_failed("{}: kernel {} has more than one parameter", artifact.string(), entry);
  }
  return kernel;
}

void CudaGpu::encode_map(const kernels::MatrixView& matrix, kernels::TensorMap& map) const {
  if (info_.sm < kOldestWithMaps)
    job_failed("GPU {}: an sm_{} has no tensor maps; they need sm_90", session_.index(), info_.sm);
  const bool has_panels = matrix.box_panels > 1;
  if (has_panels && matrix.columns % kBoxColumns != 0)
    job_failed("a tensor map of {} columns: boxes of several panels need whole panels of {}",
               matrix.columns, kBoxColumns);
  const auto columns = static_cast<unsigned long long>(matrix.columns);
  const unsigned long long sizes[] = {has_panels ? kBoxColumns : columns,
                                      static_cast<unsigned long long>(matrix.rows),
                                      columns / kBoxColumns};
  const unsigned long long strides[] = {static_cast<unsigned long long>(matrix.pitch) * 2,
                                        kBoxColumns * 2};
  const unsigned box[] = {kBoxColumns, static_cast<unsigned>(matrix.box_rows),
                          static_cast<unsigned>(matrix.box_panels)};
  const unsigned next[] = {1, 1, 1};
  alignas(64) kernels::TensorMap aligned{};
  session_.check(session_.enter().encode_tiled(
                     &aligned, matrix.bf16 ? tensor_bf16 : tensor_f16, has_panels ? 3 : 2,
                     const_cast<void*>(matrix.base), sizes, strides, box, next, kTensorNoInterleave,
                     kTensorSwizzle128, kTensorL2Promotion256, kTensorZerosOutside),
                 "making a tensor map of {} x {} elements, {} from row to row, at {}", matrix.rows,
                 matrix.columns, matrix.pitch, matrix.base);
  map = aligned;
}

void CudaGpu::launch(const Kernel& kernel, const LaunchShape& shape,
                     std::span<const std::byte> params) {
  if (const auto* const product = dynamic_cast<const CudaProduct*>(&kernel))
    return launch_product(*product, params);
  const auto* const k = dynamic_cast<const CudaKernel*>(&kernel);
  AC_ASSERT(k != nullptr);
  if (params.size() != k->params_bytes)
    job_failed("kernel {}: {} bytes of parameters instead of {}", k->name, params.size(),
               k->params_bytes);
  if (shape.threads > static_cast<unsigned>(k->threads))
    job_failed("kernel {}: {} threads in a block; at most {} are possible", k->name, shape.threads,
               k->threads);
  if (shape.shared_bytes > static_cast<unsigned>(std::max(k->shared_bytes, 0)))
    job_failed("kernel {}: {} bytes of shared memory in a block; at most {} are possible", k->name,
               shape.shared_bytes, k->shared_bytes);

  LaunchAttribute attributes[2] = {};
  unsigned attribute_count = 0;
  const auto ask_for = [&](LaunchAttribute::Id id) {
    attributes[attribute_count].id = id;
    attributes[attribute_count++].number = 1;
  };
  if (shape.overlaps && info_.sm >= kOldestWithOverlap)
    ask_for(LaunchAttribute::programmatic_stream_serialization);
  if (shape.at_once) ask_for(LaunchAttribute::cooperative);
  const LaunchConfig config{.grid = {shape.grid[0], shape.grid[1], shape.grid[2]},
                            .block = {shape.threads, 1, 1},
                            .shared_bytes = shape.shared_bytes,
                            .stream = session_.stream(),
                            .attributes = attributes,
                            .attribute_count = attribute_count};
  // The driver copies as many bytes as the kernel's parameter has.
  void* parameters[] = {const_cast<std::byte*>(params.data())};
  session_.check(session_.enter().launch(&config, k->function, parameters, nullptr),
                 "launching kernel {} with a grid of {}x{}x{}, {} threads, {} bytes of shared "
                 "memory and {} bytes of parameters",
                 k->name, shape.grid[0], shape.grid[1], shape.grid[2], shape.threads,
                 shape.shared_bytes, params.size());
  note_launch(k->name);
  if (recording_ != nullptr &&
      std::ranges::find(recording_->modules, k->module) == recording_->modules.end())
    recording_->modules.push_back(k->module);
}

void CudaGpu::launch_product(const CudaProduct& product, std::span<const std::byte> params) {
  session_.enter();
  try {
    product.launch(params, session_.stream());
  } catch (const Error&) {
    // Where the GPU is lost, that is what must be said.
    if (recording_ == nullptr) session_.synchronize();
    throw;
  }
  note_launch(product.name());
}

void CudaGpu::note_launch(const std::string& name) {
  if (recording_ == nullptr) return session_.note_launch("kernel ", name);
  ++recording_->launches;
  recording_->last = name;
}

std::unique_ptr<Device::Recording> CudaGpu::record(const std::function<void()>& enqueue) {
  AC_ASSERT(!recording_);
  const Driver& driver = session_.enter();
  const Stream stream = session_.stream();
  session_.check(driver.begin_capture(stream, kCaptureThreadLocal), "beginning a recording");
  Open open;
  recording_ = &open;
  ExecutableGraph graph = nullptr;
  try {
    enqueue();
  } catch (...) {
    recording_ = nullptr;
    if (driver.end_capture(stream, &graph).ok() && graph != nullptr) driver.destroy_graph(graph);
    throw;
  }
  recording_ = nullptr;
  session_.check(driver.end_capture(stream, &graph), "ending a recording of {} launches",
                 open.launches);
  GraphExec executable = nullptr;
  const Result result = driver.instantiate(&executable, graph, 0);
  driver.destroy_graph(graph);
  session_.check(result, "making a graph of {} launches", open.launches);
  std::string name = fmt::format("a recording of {} launches, the last of kernel {}", open.launches,
                                 open.launches > 0 ? open.last : "(none)");
  return std::make_unique<CudaRecording>(session_, executable, std::move(open.modules),
                                         std::move(name));
}

}  // namespace

std::unique_ptr<Device> open_cuda_device(int index) { return std::make_unique<CudaGpu>(index); }

}  // namespace ac
