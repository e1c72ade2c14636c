// C functions that launch the kernels of a package.
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/text.h"
#include "emit/standalone.h"

namespace ac {
namespace {

constexpr const char* kParameters =
    "const void* params, unsigned grid_x, unsigned grid_y, unsigned grid_z,\n"
    "    unsigned threads, unsigned shared_bytes, void* stream";

// "decode 3, 9: gemv/R256x1x8/768": where the launches of a kernel are in program.json.
std::string uses_of(const Phase& phase, const std::string& name, const std::string& kernel) {
  std::vector<std::size_t> places;
  std::string note;
  for (std::size_t i = 0; i < phase.launches.size(); ++i)
    if (phase.launches[i].kernel == kernel) {
      if (places.empty()) note = phase.notes[i];
      places.push_back(i);
    }
  for (const Launch& launch : phase.draw)
    if (launch.kernel == kernel) return fmt::format("//   {} draws a token\n", name);
  if (!phase.masked.empty() && phase.masked.front().kernel == kernel)
    return fmt::format("//   {} chooses under a mask\n", name);
  if (places.empty()) return {};
  // Behind " at " stands the place in the model, which the first launch alone has.
  note = note.substr(0, note.find(" at "));
  const bool many = places.size() > 12;
  const std::size_t count = places.size();
  if (many) places.resize(12);
  return fmt::format("//   {} launches {}{}: {}\n", name, fmt::join(places, ", "),
                     many ? fmt::format(" ... ({} in all)", count) : "", note);
}

const Launch& first_launch(const Program& program, const std::string& kernel) {
  for (const Phase& phase : program.phases)
    for (const Launch* launch : phase.all())
      if (launch->kernel == kernel) return *launch;
  AC_UNREACHABLE();  // a package holds what it launches
}

std::string comment_on(const Program& program, const std::string& kernel) {
  const Launch& launch = first_launch(program, kernel);
  std::string text = fmt::format("// {}: {} bytes of parameters", kernel, launch.params.size());
  std::vector<std::uint32_t> pointers, numbers, maps;
  for (const Launch::Pointer& pointer : launch.pointers) pointers.push_back(pointer.at);
  for (const Launch::Number& number : launch.numbers) numbers.push_back(number.at);
  for (const Launch::Map& map : launch.maps) maps.push_back(map.at);
  if (!pointers.empty()) text += fmt::format(", pointers at {}", fmt::join(pointers, ", "));
  if (!numbers.empty()) text += fmt::format(", numbers at {}", fmt::join(numbers, ", "));
  if (!maps.empty()) text += fmt::format(", maps at {}", fmt::join(maps, ", "));
  text += '\n';
  for (const Phase& phase : program.phases) text += uses_of(phase, phase.label(), kernel);
  return text;
}

}  // namespace

std::string wrapper_header(const Program& program) {
  const std::string name = library_name(program);
  std::string text = fmt::format(
      R"(// Launches of the kernels in kernels.cu, of the model {0}. `params` is the kernel's parameter struct
// as bytes: program.json has it for every launch of a step, with the places where addresses and
// numbers of tokens go (README.md). `stream` is a cudaStream_t. What is returned is a cudaError_t; in
// the library for the CPU, where a launch ends before it returns, 0 or 1.
#pragma once

#ifdef __cplusplus
extern "C" {{
#endif

// What a returned error means; on the CPU the last one of this thread.
const char* {1}_error(int error);
)",
      quote(program.model), name);
  for (const auto& [kernel, file] : program.kernels)
    text += fmt::format("\n{0}int {1}_launch(\n    {2});\nunsigned long {1}_params_bytes(void);\n",
                        comment_on(program, kernel), kernel, kParameters);
  return text + "\n#ifdef __cplusplus\n}\n#endif\n";
}

std::string wrapper_source(const Program& program) {
  std::string text = R"(#pragma GCC visibility push(default)
#include "wrappers.h"
#pragma GCC visibility pop

#ifdef AC_HOST_DEVICE

#include <cstdlib>
#include <cstring>
#include <string>

#include "kernels/shim/host_launch.h"

// Beside every kernel (kernels/types.cuh): the body of one thread, and the blocks of a cluster.
#define AC_DECLARE(kernel) extern "C" void kernel##_on_host(void* params); \
    extern "C" unsigned kernel##_cluster_blocks();
#define AC_CALL(kernel) (static_cast<void>(stream), \
    run(#kernel, kernel##_on_host, kernel##_params_bytes(), kernel##_cluster_blocks(), params, \
        {grid_x, grid_y, grid_z}, threads, shared_bytes))

namespace {

thread_local std::string last_error;

int run(const char* name, void (*body)(void*), unsigned long bytes, unsigned cluster,
        const void* params, ac::kernels::dim3 grid, unsigned threads, unsigned shared_bytes) {
  // Aligned, as the struct must be.
  void* const aligned = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  std::memcpy(aligned, params, bytes);
  ac::kernels::HostLaunch launch;
  launch.name = name;
  launch.grid = grid;
  launch.block = {threads};
  launch.shared_bytes = shared_bytes;
  launch.cluster = cluster;
  last_error = ac::kernels::run_on_host(launch, body, aligned).error;
  std::free(aligned);
  return last_error.empty() ? 0 : 1;
}

}  // namespace

)";
  text += fmt::format(
      "const char* {}_error(int error) {{ return error == 0 ? \"no error\" : last_error.c_str(); "
      "}}\n",
      library_name(program));
  text += R"(
#else

#include <cuda_runtime_api.h>

// The stub that nvcc makes of a kernel, by whose address the runtime knows it.
#define AC_DECLARE(kernel) extern "C" void kernel();
#define AC_CALL(kernel) run(reinterpret_cast<const void*>(kernel), params, \
    {grid_x, grid_y, grid_z}, threads, shared_bytes, stream)

namespace {

constexpr unsigned kSharedBytesForAll = 48 * 1024;  // above, a kernel must ask for them

int run(const void* kernel, const void* params, dim3 grid, unsigned threads, unsigned shared_bytes,
        void* stream) {
  if (shared_bytes > kSharedBytesForAll) {
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
    if (error != cudaSuccess) return error;
  }
  void* arguments[] = {const_cast<void*>(params)};
  return cudaLaunchKernel(kernel, grid, dim3(threads), arguments, shared_bytes,
                          static_cast<cudaStream_t>(stream));
}

}  // namespace

)";
  text += fmt::format(
      "const char* {}_error(int error) {{ return "
      "cudaGetErrorString(static_cast<cudaError_t>(error)); "
      "}}\n\n#endif\n",
      library_name(program));
  for (const auto& [kernel, file] : program.kernels)
    text +=
        fmt::format("\nAC_DECLARE({0})\nint {0}_launch(\n    {1}) {{\n  return AC_CALL({0});\n}}\n",
                    kernel, kParameters);
  return text;
}

}  // namespace ac
