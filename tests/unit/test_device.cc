// The device interface on the host, and what of the GPU's side needs no GPU.
#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "base/files.h"
#include "base/process.h"
#include "base/temporary_folder.h"
#include "device/best_rates.h"
#include "device/cuda/cubin.h"
#include "device/cuda/driver.h"
#include "device/cuda/probe.h"
#include "device/devices.h"
#include "tests/device/device_cases.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/kernel_folder.h"

namespace ac::test {
namespace {

// Built once; a folder of its own as a cache.
struct HostKernels {
  TemporaryFolder folder;
  std::filesystem::path tests, measures;

  HostKernels() {
    BuilderOptions options = builder_options(read_environment());
    options.cache = folder.path();
#ifdef __SANITIZE_ADDRESS__
    options.checks = HostChecks::addresses;
#endif
    KernelBuilder builder(options);
    tests = built(builder.build(device_test_source(), {})).file;
    measures = built(builder.build(measure_source(), {})).file;
  }
};

TEST_CASE("device: the host does what every device must") {
  static const HostKernels kernels;
  const auto device = open_host_device();
  const DeviceUnderTest d{*device, kernels.tests, kernels.measures};
  CHECK(device->info() == device_info("host"));
  CHECK(device->name() == "host device");
  SUBCASE("memory") { check_memory(d); }
  SUBCASE("staging") { check_staging(d); }
  SUBCASE("large parameters") { check_large_parameters(d); }
  SUBCASE("a chain") { check_chain(d); }
  SUBCASE("replays") { check_replays(d); }
  SUBCASE("recordings outlive kernels") { check_recording_outlives_kernels(d); }
  SUBCASE("dynamic shared memory") { check_dynamic_shared_memory(d); }
  SUBCASE("time") { check_time(d); }
  SUBCASE("refused launches") { check_refused_launches(d); }
  SUBCASE("refused files") { check_refused_files(d); }
  SUBCASE("too much memory") { check_too_much_memory(d); }
  SUBCASE("maps of matrices") { check_maps(*device); }
  SUBCASE("measuring") { check_measure(d); }
  SUBCASE("time is that of its own work") {
    const auto wait = [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };
    CHECK(device->time(wait) < 0.02);
  }
  SUBCASE("fresh memory is NaN") {
    const auto memory = device->allocate(40);
    float values[10] = {};
    device->download(std::as_writable_bytes(std::span(values)), memory->address());
    for (const float value : values) CHECK(std::isnan(value));
  }
}

TEST_CASE("device: without a driver, a GPU cannot be opened and none is listed") {
  const Devices devices = find_devices();
  CHECK(devices.cuda.empty() != devices.why_no_cuda.empty());
  if (!devices.cuda.empty()) return;
  CHECK(error_of(Fault::job_failed, [] { open_cuda_device(); }) == devices.why_no_cuda);
}

TEST_CASE("device: errors that end the process are told from those that do not") {
  CHECK(cuda::ends_process(700));
  CHECK(cuda::ends_process(719));
  CHECK_FALSE(cuda::ends_process(cuda::success));
  CHECK_FALSE(cuda::ends_process(cuda::out_of_memory));
  CHECK_FALSE(cuda::ends_process(cuda::no_binary_for_gpu));
  CHECK(cuda::version_text(12040) == "12.4");
}

TEST_CASE("device: a GPU's limits replace those of the nearest known card") {
  cuda::GpuLimits gpu{.name = "H100",
                      .sm = 90,
                      .multiprocessors = 132,
                      .registers = 65536,
                      .threads = 2048,
                      .blocks = 32,
                      .shared_bytes = 228 << 10,
                      .max_shared_bytes = 227 << 10,
                      .l2_bytes = 50 << 20};
  const DeviceInfo& h100 = device_info("sm_90");
  DeviceInfo info = cuda::device_info_with(gpu);
  CHECK(info.name == "H100");
  info.name = h100.name;
  CHECK(info == h100);  // also where the driver tells no clocks

  gpu.clock = 1.98e9, gpu.memory_bytes_per_second = 3.352e12;
  info = cuda::device_info_with(gpu);
  CHECK(info.bandwidth == doctest::Approx(h100.bandwidth).epsilon(0.01));
  CHECK(info.flops == doctest::Approx(h100.flops).epsilon(0.01));
  CHECK(info.tensor_flops == doctest::Approx(h100.tensor_flops).epsilon(0.01));

  // Half an A100 of another minor version.
  gpu = {.name = "half", .sm = 86, .multiprocessors = 54, .threads = 1536, .l2_bytes = 6 << 20};
  gpu.clock = 1.41e9;
  info = cuda::device_info_with(gpu);
  CHECK(info.target == "sm_86");
  CHECK(info.multiprocessors == 54);
  CHECK(info.threads == 1536);
  CHECK(info.l2_bytes == 6 << 20);
  CHECK(info.flops == doctest::Approx(54 * 1.41e9 * 256));
  CHECK(info.tensor_flops == doctest::Approx(312e12).epsilon(0.01));
  CHECK_FALSE(info.bulk_copies);
  CHECK_FALSE(info.warpgroups);

  gpu.sm = 75;
  CHECK(contains(error_of(Fault::job_failed, [&] { cuda::device_info_with(gpu); }), "sm_75"));
  gpu.sm = 120;
  CHECK(cuda::device_info_with(gpu).target == "sm_120");
  CHECK_FALSE(cuda::device_info_with(gpu).warpgroups);
}

TEST_CASE("device: only the H100 has constants of its own, and other GPUs say so") {
  for (const DeviceInfo& known : known_devices()) {
    CAPTURE(known.target);
    CHECK(known.is_uncalibrated() == (known.sm > 0 && known.sm != 90));
    CHECK(uncalibrated_note(known).empty() != known.is_uncalibrated());
    CHECK(device_info_from_json(to_json(known)) == known);
  }
  CHECK(contains(uncalibrated_note(device_info("sm_80")), "uncalibrated: predictions for sm_80"));
  // Its own are taken where it has some.
  DeviceInfo fitted = device_info("sm_80");
  CHECK(fitted.constants().gemv.next_group == device_info("sm_90").constants().gemv.next_group);
  Calibration own;
  own.gemv.next_group = 1;
  fitted.calibration = &own;
  CHECK(fitted.constants().gemv.next_group == 1);
  // A newer GPU than any that is known is not the one that the constants were fitted to.
  CHECK(
      cuda::device_info_with({.name = "next", .sm = 95, .multiprocessors = 132}).is_uncalibrated());
  CHECK_FALSE(
      cuda::device_info_with({.name = "H200", .sm = 90, .multiprocessors = 132}).is_uncalibrated());
}

TEST_CASE("device: a cubin says what it was built for, and what is none says nothing") {
  std::string cubin(100, '\0');
  cubin.replace(0, 4,
                "\x7f"
                "ELF");
  cubin[18] = static_cast<char>(190);
  cubin[58] = 64;  // a section's header, of none
  cubin[8] = 7, cubin[48] = 80, cubin[49] = 5;
  CHECK(cuda::cubin_facts(cubin)->sm == 80);
  CHECK(cuda::cubin_facts(cubin)->toolkit.empty());
  cubin[8] = 8;
  CHECK(cuda::cubin_facts(cubin)->sm == 5);
  CHECK(cuda::cubin_facts(cubin + "Cuda compilation tools, release 12.9, V1")->toolkit == "12.9");
  CHECK(cuda::cubin_facts(cubin + "Cuda compilation tools, release 12.9")->toolkit == "12.9");
  CHECK(cuda::cubin_facts(cubin + "Cuda compilation tools, release ")->toolkit.empty());
  CHECK_FALSE(cuda::cubin_facts(cubin.substr(0, 63)));

  // With a section, which has to be inside.
  std::string sections = cubin;
  sections.resize(64 + 64);
  sections[40] = 64, sections[60] = 1;
  sections[64 + 24] = 100, sections[64 + 32] = 28;
  CHECK(cuda::cubin_facts(sections));
  sections[64 + 32] = 29;
  CHECK_FALSE(cuda::cubin_facts(sections));
  sections[64 + 4] = 8;  // or take no space
  CHECK(cuda::cubin_facts(sections));
  sections[64 + 4] = 0, sections[64 + 32] = 0, sections[64 + 31] = static_cast<char>(0x80);
  CHECK_FALSE(cuda::cubin_facts(sections));
  sections[64 + 31] = 0, sections[60] = 2;
  CHECK_FALSE(cuda::cubin_facts(sections));
  CHECK_FALSE(cuda::cubin_facts(""));
  cubin[18] = 62;  // of a processor
  CHECK_FALSE(cuda::cubin_facts(cubin));
}

TEST_CASE("device: a cubin that is built here says so") {
  const TemporaryFolder folder;
  BuilderOptions options = builder_options(read_environment());
  options.cache = folder.path();
  KernelBuilder builder(options);
  try {
    builder.compiler({Target::cuda, "sm_90"});
  } catch (const Error&) {
    MESSAGE("no compiler for GPUs here");
    return;
  }
  for (const auto& [arch, sm] : {std::pair("sm_90a", 90), {"sm_80", 80}})
    for (const KernelSource& source : {device_test_source(), measure_source()}) {
      const Artifact artifact = built(builder.build(source, {Target::cuda, arch}));
      CHECK(artifact.spill_bytes == 0);
      const std::string whole = read_file(artifact.file, 1 << 24);
      const auto facts = cuda::cubin_facts(whole);
      REQUIRE(facts);
      for (std::size_t bytes = 0; bytes < whole.size(); bytes += whole.size() / 97)
        CHECK_FALSE(cuda::cubin_facts(whole.substr(0, bytes)));
      CHECK(facts->sm == sm);
      CHECK(facts->toolkit.size() >= 4);
    }
}

}  // namespace
}  // namespace ac::test
