// CUDA's driver as a library that is loaded at run time, with our own declarations of the few
// functions that we call: one program starts on machines with and without a GPU, and no CUDA header
// is needed to build it. Names, values and layouts are fixed by the driver's ABI.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

namespace ac::cuda {

// Handles are opaque pointers of a type each; a device is a number, and so is an address on it.
using Context = struct ContextHandle*;
using Stream = struct StreamHandle*;
using Event = struct EventHandle*;
using Module = struct ModuleHandle*;
using Function = struct FunctionHandle*;
using ExecutableGraph = struct GraphHandle*;
using GraphExec = struct GraphExecHandle*;
using Address = unsigned long long;

enum Status {
  success = 0,
  out_of_memory = 2,
  no_device = 100,
  invalid_image = 200,
  no_binary_for_gpu = 209,
  unsupported_ptx = 222,
  not_found = 500,
};
// After one of these nothing works in this process any more.
bool ends_process(int status);

enum DeviceAttribute {
  clock_khz = 13,
  multiprocessors = 16,
  memory_clock_khz = 36,
  memory_bus_bits = 37,
  l2_bytes = 38,
  threads_per_multiprocessor = 39,
  compute_major = 75,
  compute_minor = 76,
  shared_per_multiprocessor = 81,
  registers_per_multiprocessor = 82,
  shared_per_block = 97,
  blocks_per_multiprocessor = 106,
};

enum FunctionAttribute {
  max_threads = 0,
  static_shared = 1,
  max_dynamic_shared = 8,
  shared_carveout = 9,
};

struct LaunchAttribute {
  enum Id : int { cooperative = 2, programmatic_stream_serialization = 6 };
  Id id;
  int unused = 0;
  union {
    char bytes[64] = {};
    int number;
  };
};
static_assert(sizeof(LaunchAttribute) == 72);

struct LaunchConfig {
  unsigned grid[3], block[3];
  unsigned shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};
static_assert(sizeof(LaunchConfig) == 56);

// As CUDA_MEMCPY2D has it.
struct MatrixCopy {
  struct Side {
    std::size_t x_bytes = 0, y = 0;
    int type = 0;
    void* host = nullptr;
    Address address = 0;
    void* array = nullptr;
    std::size_t pitch = 0;
  };
  Side from, to;
  std::size_t row_bytes = 0, rows = 0;
};
static_assert(sizeof(MatrixCopy) == 128);
constexpr int kDeviceMemory = 2;

// The values of a tensor map's that are used.
enum TensorMapType { tensor_f16 = 6, tensor_bf16 = 9 };
constexpr int kTensorNoInterleave = 0, kTensorSwizzle128 = 3, kTensorL2Promotion256 = 3,
              kTensorZerosOutside = 0;

constexpr unsigned kStreamNonBlocking = 1;
constexpr int kCaptureThreadLocal = 1;

// What a call gave, and the call's name for messages.
struct Result {
  const char* call;
  int status;
  bool ok() const { return status == success; }
};

class Library {
 public:
  // Throws Fault::job_failed where there is no driver.
  Library();
  // Throws Fault::job_failed if the driver is too old to have it.
  void* find(const char* name) const;

 private:
  void* handle_;
  std::string version_;
};

template <class... Parameters>
class Call {
 public:
  Call(const Library& library, const char* name)
      : name_(name), function_(reinterpret_cast<int (*)(Parameters...)>(library.find(name))) {}
  Result operator()(Parameters... parameters) const { return {name_, function_(parameters...)}; }

 private:
  const char* name_;
  int (*function_)(Parameters...);
};

// "13.0" for 13000.
std::string version_text(int version);

struct Driver {
  Library library;
  Call<unsigned> init{library, "cuInit"};
  Call<int*> version{library, "cuDriverGetVersion"};
  Call<int, const char**> error_name{library, "cuGetErrorName"};
  Call<int, const char**> error_text{library, "cuGetErrorString"};

  Call<int*> device_count{library, "cuDeviceGetCount"};
  Call<int*, int> device{library, "cuDeviceGet"};
  Call<char*, int, int> device_name{library, "cuDeviceGetName"};
  Call<std::size_t*, int> device_memory{library, "cuDeviceTotalMem_v2"};
  Call<int*, int, int> device_attribute{library, "cuDeviceGetAttribute"};
  Call<Context*, int> retain_context{library, "cuDevicePrimaryCtxRetain"};
  Call<int> release_context{library, "cuDevicePrimaryCtxRelease_v2"};
  Call<Context> set_context{library, "cuCtxSetCurrent"};

  Call<Address*, std::size_t> allocate{library, "cuMemAlloc_v2"};
  Call<Address> free{library, "cuMemFree_v2"};
  Call<void**, std::size_t, unsigned> allocate_host{library, "cuMemHostAlloc"};
  Call<void*> free_host{library, "cuMemFreeHost"};
  Call<void*, std::size_t, unsigned> pin{library, "cuMemHostRegister_v2"};
  Call<void*> unpin{library, "cuMemHostUnregister"};
  Call<std::size_t*, std::size_t*> memory_info{library, "cuMemGetInfo_v2"};
  Call<Address, const void*, std::size_t, Stream> upload{library, "cuMemcpyHtoDAsync_v2"};
  Call<void*, Address, std::size_t, Stream> download{library, "cuMemcpyDtoHAsync_v2"};
  Call<Address, Address, std::size_t, Stream> copy{library, "cuMemcpyDtoDAsync_v2"};
  Call<const MatrixCopy*, Stream> copy_matrix{library, "cuMemcpy2DAsync_v2"};
  Call<Address, unsigned char, std::size_t, Stream> fill{library, "cuMemsetD8Async"};

  Call<Module*, const void*> load_module{library, "cuModuleLoadData"};
  Call<Module> unload_module{library, "cuModuleUnload"};
  Call<Function*, Module, const char*> function{library, "cuModuleGetFunction"};
  Call<int*, int, Function> function_attribute{library, "cuFuncGetAttribute"};
  Call<Function, int, int> set_function_attribute{library, "cuFuncSetAttribute"};
  Call<Function, std::size_t, std::size_t*, std::size_t*> parameter_info{library,
                                                                         "cuFuncGetParamInfo"};
  Call<const LaunchConfig*, Function, void**, void**> launch{library, "cuLaunchKernelEx"};

  // Map, type, dimensions, address, sizes, strides, box, element strides, and the four above.
  Call<void*, int, unsigned, void*, const unsigned long long*, const unsigned long long*,
       const unsigned*, const unsigned*, int, int, int, int>
      encode_tiled{library, "cuTensorMapEncodeTiled"};

  Call<Stream*, unsigned> create_stream{library, "cuStreamCreate"};
  Call<Stream> destroy_stream{library, "cuStreamDestroy_v2"};
  Call<Stream> synchronize{library, "cuStreamSynchronize"};
  Call<Stream, int> begin_capture{library, "cuStreamBeginCapture_v2"};
  Call<Stream, ExecutableGraph*> end_capture{library, "cuStreamEndCapture"};
  Call<GraphExec*, ExecutableGraph, unsigned long long> instantiate{library,
                                                                    "cuGraphInstantiateWithFlags"};
  Call<GraphExec, Stream> launch_graph{library, "cuGraphLaunch"};
  Call<GraphExec> destroy_exec{library, "cuGraphExecDestroy"};
  Call<ExecutableGraph> destroy_graph{library, "cuGraphDestroy"};

  Call<Event*, unsigned> create_event{library, "cuEventCreate"};
  Call<Event> destroy_event{library, "cuEventDestroy_v2"};
  Call<Event, Stream> record_event{library, "cuEventRecord"};
  Call<Event> wait_for_event{library, "cuEventSynchronize"};
  Call<float*, Event, Event> elapsed{library, "cuEventElapsedTime"};

  // Such as "cuMemFree_v2 gave CUDA_ERROR_INVALID_VALUE (invalid argument)".
  std::string describe(Result result) const;
};

// The driver, started. Throws Fault::job_failed, saying why, where there is none that works.
const Driver& driver();

}  // namespace ac::cuda
