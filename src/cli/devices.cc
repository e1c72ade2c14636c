#include "device/devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "cli/commands.h"
#include "device/best_rates.h"

namespace ac {
namespace {

struct DeviceReport {
  Devices devices;
  std::string compiler;                           // of kernels for GPUs
  std::string why_no_compiler;                    // when there is none
  std::string cublaslt, why_no_cublaslt;          // its version
  std::vector<std::optional<Measured>> measured;  // of each GPU
};

Target target_of(const CudaDevice& device) {
  return {Target::cuda, fmt::format("sm_{}{}", device.compute_major, device.compute_minor)};
}

// Whether constants of the cost model were fitted to GPUs of this architecture.
bool is_calibrated(const CudaDevice& device) {
  return std::ranges::any_of(known_devices(), [&](const DeviceInfo& known) {
    return known.target == target_of(device).arch && !known.is_uncalibrated();
  });
}

Measured measure_gpu(int index, const CudaDevice& device) {
  const BuildResult built =
      KernelBuilder(builder_options(read_environment())).build(measure_source(), target_of(device));
  if (const auto* failure = std::get_if<CompileFailure>(&built))
    job_failed("the kernels that measure do not compile for {}:\n{}", device.name, failure->log);
  return measure(*open_cuda_device(index), std::get<Artifact>(built).file);
}

DeviceReport make_report(bool with_measurement) {
  DeviceReport report;
  report.devices = find_devices();
  try {
    report.compiler = KernelBuilder(builder_options(read_environment()))
                          .compiler({Target::cuda, known_devices().front().target});
  } catch (const Error& error) {
    report.why_no_compiler = error.what();
  }
  try {
    report.cublaslt = cublaslt_version();
  } catch (const Error& error) {
    report.why_no_cublaslt = error.what();
  }
  report.measured.resize(report.devices.cuda.size());
  if (!with_measurement) return report;
  if (report.devices.cuda.empty())
    job_failed("there is no GPU to measure: {}", report.devices.why_no_cuda);
  for (std::size_t i = 0; i < report.measured.size(); ++i)
    report.measured[i] = measure_gpu(static_cast<int>(i), report.devices.cuda[i]);
  return report;
}

Json to_json(const DeviceReport& report) {
  const Devices& devices = report.devices;
  Json cuda = Json::array();
  for (std::size_t i = 0; i < devices.cuda.size(); ++i) {
    const CudaDevice& device = devices.cuda[i];
    cuda.push_back(
        {{"name", device.name},
         {"compute_capability", fmt::format("{}.{}", device.compute_major, device.compute_minor)},
         {"multiprocessors", device.multiprocessors},
         {"memory_bytes", device.memory_bytes},
         {"l2_bytes", device.l2_bytes},
         {"max_shared_bytes", device.max_shared_bytes},
         {"calibrated", is_calibrated(device)}});
    if (const auto& measured = report.measured[i])
      cuda.back()["measured"] = {{"read_bytes_per_second", measured->read},
                                 {"copy_bytes_per_second", measured->copy},
                                 {"mma_flops_per_second", measured->tensor_flops}};
  }
  return {{"host", {{"cpu", devices.cpu}, {"threads", devices.cpu_threads}}},
          {"cuda", std::move(cuda)},
          {"driver", devices.driver},
          {"compiler", report.compiler},
          {"why_no_compiler", report.why_no_compiler},
          {"cublaslt", report.cublaslt},
          {"why_no_cublaslt", report.why_no_cublaslt},
          {"why_no_cuda", devices.why_no_cuda}};
}

void print(const DeviceReport& report) {
  const Devices& devices = report.devices;
  fmt::print("host    {}, {} threads\n", devices.cpu, devices.cpu_threads);
  for (std::size_t i = 0; i < devices.cuda.size(); ++i) {
    const CudaDevice& device = devices.cuda[i];
    fmt::print("cuda:{}  {}, sm_{}{}, {} SMs, {:.1f} GiB, L2 {} MiB, driver for CUDA {}{}\n", i,
               device.name, device.compute_major, device.compute_minor, device.multiprocessors,
               static_cast<double>(device.memory_bytes) / (1 << 30), device.l2_bytes >> 20,
               devices.driver, is_calibrated(device) ? "" : ", uncalibrated");
    if (const auto& measured = report.measured[i])
      fmt::print(
          "        measured: streaming reads {:.1f} GB/s, copies {:.1f} GB/s (read and written), "
          "f16 mma.sync {:.1f} TFLOP/s\n",
          measured->read / 1e9, measured->copy / 1e9, measured->tensor_flops / 1e12);
  }
  if (devices.cuda.empty()) fmt::print("cuda    none: {}\n", devices.why_no_cuda);
  fmt::print("build   {}\n", report.compiler.empty() ? report.why_no_compiler
                                                     : "kernels for GPUs by " + report.compiler);
  fmt::print("library {}\n",
             report.cublaslt.empty() ? report.why_no_cublaslt : "cuBLASLt " + report.cublaslt);
}

}  // namespace

void add_devices_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("devices", "List what this machine can run on");
  const auto json = std::make_shared<bool>(false), measure = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print JSON");
  command->add_flag("--measure", *measure,
                    "Measure the GPUs' memory and tensor cores, at best, on an idle machine");
  command->footer("Example:\n  agentcompile devices --json");
  command->callback([json, measure] {
    const DeviceReport report = make_report(*measure);
    if (*json)
      fmt::print("{}\n", to_json(report).dump(2));
    else
      print(report);
  });
}

}  // namespace ac
