#include "emit/verification.h"

#include <fmt/format.h>

#include <memory>
#include <thread>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/engine.h"
#include "cli/gpu.h"
#include "runtime/engine.h"

namespace ac {
namespace {

struct Verify {
  std::string package, device, checkpoint;
  unsigned jobs = std::max(1u, std::thread::hardware_concurrency());
  bool json = false, quiet = false, reference = false;

  void run() const {
    BuilderOptions building = builder_options(read_environment());
    building.jobs = jobs;
    Progress progress(quiet);
    const PackageFiles files(package);
    const Verification verification = verify_package(files, building, judge(files), progress,
                                                     checkpoint, warn_on_stderr, reference);
    if (json)
      fmt::print("{}\n", to_json(verification).dump(1));
    else
      fmt::print("{}", print(verification));
    if (!verification.ok())
      job_failed("{}: {} of {} trials were not admitted, and {} faults{}", package,
                 verification.rejected(), verification.trials.size(), verification.faults.size(),
                 verification.whole.ok() ? "" : "; the whole program is wrong");
    if (!json)
      fmt::print("{}: all {} trials are admitted, on {}\n{}\n", package, verification.trials.size(),
                 verification.judged_on, summary_of(to_json(verification.whole)));
  }

  // The GPU that the package is for, if it is here; otherwise the host device runs the same source.
  DeviceInfo judge(const PackageFiles& files) const {
    const std::string target = read_program(files).target;
    if (device == "host" || (device.empty() && target == "host")) return device_info("host");
    const std::optional<Gpu> gpu = device.empty() ? find_gpu() : the_gpu();
    if (gpu && gpu->info.target == target) return gpu->info;
    if (!device.empty())
      wrong_usage("--device cuda: {} is for {}, and the GPU here is {}", package, target,
                  gpu->info.target);
    return device_info("host");
  }
};

}  // namespace

void add_verify_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "verify", "Admit a package again: build its kernels from source, and judge them here");
  const auto verify = std::make_shared<Verify>();
  command->add_option("PACKAGE", verify->package, "A folder that compile has made")->required();
  command
      ->add_option("--device", verify->device,
                   "Where kernels are judged: host or cuda (default: the GPU that the package is "
                   "for, if it is here, and else the host)")
      ->check(CLI::IsMember({"host", "cuda"}));
  command->add_flag("--reference", verify->reference,
                    "Compare the whole program with double precision too, where the model is small "
                    "enough");
  add_checkpoint_option(*command, verify->checkpoint);
  command->add_option("--jobs,-j", verify->jobs, "Kernels that are built and judged at once")
      ->check(CLI::Range(1, 1024));
  command->add_flag("--quiet,-q", verify->quiet, "No progress on stderr");
  command->add_flag("--json", verify->json, "Print JSON");
  command->footer(
      "Examples:\n"
      "  agentcompile verify PKG\n"
      "  agentcompile verify PKG --checkpoint DIR    # against a checkpoint that has moved");
  command->callback([verify] { verify->run(); });
}

}  // namespace ac
