// What needs a GPU. Where there is none, says so and passes.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <span>
#include <string_view>

#include "base/files.h"
#include "base/process.h"
#include "base/temporary_folder.h"
#include "device/best_rates.h"
#include "device/devices.h"
#include "tests/device/device_cases.h"
#include "tests/device/family_cases.h"
#include "tests/unit/expect_error.h"

namespace ac::test {
namespace {

// Arguments of our own: does that and ends; does little work, as for compute-sanitizer; of the test
// of kernel families, does that one alone (and may come again).
constexpr std::string_view kLoseGpu = "--lose-gpu", kSmall = "--small", kFamily = "--family=";
bool is_large = true;
std::set<std::string> families;

std::filesystem::path build(const KernelSource& source, const std::string& arch) {
  const BuildResult result =
      KernelBuilder(builder_options(read_environment())).build(source, {Target::cuda, arch});
  if (const auto* failure = std::get_if<CompileFailure>(&result)) FAIL(failure->log);
  return std::get<Artifact>(result).file;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Writes where nothing is. The process then ends as the program would.
int lose_gpu() {
  const auto device = open_cuda_device();
  const auto memory = device->allocate(4);
  const auto kernel = device->load(build(device_test_source(), device->info().target), "poke");
  const PokeParams params{reinterpret_cast<void*>(0x1000), 1};
  device->launch(*kernel, {}, std::as_bytes(std::span(&params, 1)));
  int exit_code = 0;
  for (int i = 0; i < 2; ++i) {  // and again
    try {
      device->allocate(4);
      device->synchronize();
      fmt::print(stderr, "nothing was noticed\n");
      return 0;
    } catch (const Error& error) {
      fmt::print(stderr, "error: {}\n", error.what());
      exit_code = error.exit_code();
      if (error.fault() != Fault::device_lost) return exit_code;
    }
  }
  return exit_code;
}

TEST_CASE("the GPU does what every device must") {
  const auto device = open_cuda_device();
  const std::string arch = device->info().target;
  const DeviceUnderTest d{*device, build(device_test_source(), arch), build(measure_source(), arch),
                          is_large};
  SUBCASE("memory") { check_memory(d); }
  SUBCASE("staging") { check_staging(d); }
  SUBCASE("large parameters") { check_large_parameters(d); }
  SUBCASE("a chain") { check_chain(d); }
  SUBCASE("replays") { check_replays(d); }
  SUBCASE("replays of blocks at once") { check_replays(d, true); }
  SUBCASE("recordings outlive kernels") { check_recording_outlives_kernels(d); }
  SUBCASE("dynamic shared memory") { check_dynamic_shared_memory(d); }
  SUBCASE("time") { check_time(d); }
  SUBCASE("time of overlap") { check_overlap(d); }
  SUBCASE("refused launches") { check_refused_launches(d); }
  SUBCASE("refused files") { check_refused_files(d); }
  SUBCASE("too much memory") { check_too_much_memory(d); }
}

TEST_CASE("the GPU makes maps of matrices") { check_maps(*open_cuda_device()); }

TEST_CASE("measuring gives what it measures, and figures that can be") {
  const auto device = open_cuda_device();
  const std::string arch = device->info().target;
  check_measure(
      {*device, build(device_test_source(), arch), build(measure_source(), arch), is_large});
}

// Where there is no cuBLASLt, candidates of it are not available, which is no fault.
TEST_CASE("the library's products are those of double precision") {
  const auto device = open_cuda_device();
  std::string version;
  try {
    version = cublaslt_version();
  } catch (const Error& error) {
    MESSAGE("skipped: " << error.what());
    return;
  }
  MESSAGE("cuBLASLt " << version);
  check_products(*device, true);
  // Further algorithms of one product, as far as there are some.
  Product product{
      .dtype = DType::f16, .n = 2048, .k = 2048, .x_pitch = 2048, .tuned_m = 512, .tuned_n = 2048};
  for (product.algorithm = 0; product.algorithm < 4; ++product.algorithm)
    CHECK_NOTHROW(device->load_product(product));
  product.algorithm = 1000;
  const std::string text = error_of(Fault::job_failed, [&] { device->load_product(product); });
  CHECK(contains(text, "1000"));
  CHECK(contains(text, "2048"));
  MESSAGE(text);
  // Which the library computes wrongly.
  product = {.n = 77, .k = 128, .x_pitch = 128, .bias = true, .tuned_m = 512, .tuned_n = 77};
  CHECK(contains(error_of(Fault::job_failed, [&] { device->load_product(product); }), "16 bytes"));
}

TEST_CASE("plans of every kernel family are admitted in this process") {
  const auto device = open_cuda_device();
  KernelBuilder builder(builder_options(read_environment()));
  check_kernel_families(*device, device->info(), builder,
                        is_large ? Breadth::fields : Breadth::kinds, families);
}

TEST_CASE("the GPU's limits are those of its known card") {
  const auto device = open_cuda_device();
  const DeviceInfo& info = device->info();
  MESSAGE(info.name << ": " << info.multiprocessors << " SMs, " << info.bandwidth / 1e9 << " GB/s, "
                    << info.flops / 1e12 << " and " << info.tensor_flops / 1e12 << " TFLOP/s");
  CHECK(info.sm >= 80);
  CHECK(info.multiprocessors > 0);
  CHECK(info.max_shared_bytes >= 99 << 10);
  CHECK(info.shared_bytes > info.max_shared_bytes);
  CHECK(info.l2_bytes > 1 << 20);
  CHECK(info.bandwidth > 1e11);
  CHECK(info.tensor_flops > info.flops);
  CHECK(info.warpgroups == (info.sm == 90));
  CHECK(contains(error_of(Fault::job_failed, [] { open_cuda_device(1000); }), "GPU 1000"));
  CHECK(contains(error_of(Fault::job_failed, [] { open_cuda_device(-1); }), "GPU -1"));
}

TEST_CASE("a cubin that was cut short is refused") {
  const auto device = open_cuda_device();
  const std::string whole = read_file(build(device_test_source(), device->info().target), 1 << 24);
  const TemporaryFolder folder;
  const auto file = folder.path() / "kernel.cubin";
  for (const std::size_t bytes : {std::size_t{700}, whole.size() / 2, whole.size() - 1}) {
    write_file(file, whole.substr(0, bytes));
    CHECK(
        contains(error_of(Fault::job_failed, [&] { device->load(file, "step"); }), file.string()));
  }
}

TEST_CASE("a cubin for another GPU is refused by what it is for") {
  const auto device = open_cuda_device();
  const std::string other = device->info().sm == 80 ? "sm_90" : "sm_80";
  const auto cubin = build(device_test_source(), other);
  const std::string text = error_of(Fault::job_failed, [&] { device->load(cubin, "step"); });
  CHECK(contains(text, cubin.string()));
  CHECK(contains(text, "built for " + other));
  CHECK(contains(text, device->info().target));
  MESSAGE(text);
}

TEST_CASE("an illegal access ends the process with its own exit code, naming the kernel") {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const ProcessResult result = run_process({self, std::string(kLoseGpu)}, ChildOutput::captured);
  CHECK(result.signal == 0);
  CHECK(result.exit_code == static_cast<int>(Fault::device_lost));
  CHECK(contains(result.output, "kernel poke"));
  CHECK(contains(result.output, "CUDA_ERROR_ILLEGAL_ADDRESS"));
  MESSAGE(result.output);
}

}  // namespace
}  // namespace ac::test

int main(int argc, char** argv) {
  try {
    if (argc == 2 && ac::test::kLoseGpu == argv[1]) return ac::test::lose_gpu();
    if (const ac::Devices devices = ac::find_devices(); devices.cuda.empty()) {
      fmt::print("skipped: no GPU ({})\n", devices.why_no_cuda);
      return 0;
    }
  } catch (const ac::Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return error.exit_code();
  }
  ac::test::is_large = std::find(argv, argv + argc, ac::test::kSmall) == argv + argc;
  for (const std::string_view argument : std::span(argv, argv + argc))
    if (argument.starts_with(ac::test::kFamily))
      ac::test::families.emplace(argument.substr(ac::test::kFamily.size()));
  // Who stops the tests sees how far they came.
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  doctest::Context context;
  context.setOption("duration", true);
  context.applyCommandLine(argc, argv);
  return context.run();
}
