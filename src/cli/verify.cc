#include "emit/verification.h"

#include <fmt/format.h>

#include <memory>
#include <thread>

#include "base/error.h"
#include "cli/commands.h"

namespace ac {
namespace {

struct Verify {
  std::string package;
  unsigned jobs = std::max(1u, std::thread::hardware_concurrency());
  bool json = false, quiet = false;

  void run() const {
    BuilderOptions building = builder_options(read_environment());
    building.jobs = jobs;
    Progress progress(quiet);
    const Verification verification = verify_package(package, building, progress);
    if (json)
      fmt::print("{}\n", to_json(verification).dump(1));
    else
      fmt::print("{}", print(verification));
    if (!verification.ok())
      job_failed("{}: {} of {} trials were not admitted, and {} faults", package,
                 verification.rejected(), verification.trials.size(), verification.faults.size());
    if (!json) fmt::print("{}: all {} trials are admitted\n", package, verification.trials.size());
  }
};

}  // namespace

void add_verify_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "verify", "Admit a package again: its kernels are built from their sources and judged here");
  const auto verify = std::make_shared<Verify>();
  command->add_option("PACKAGE", verify->package, "A folder that compile has made")->required();
  command->add_option("--jobs,-j", verify->jobs, "Kernels that are built and judged at once")
      ->check(CLI::Range(1, 1024));
  command->add_flag("--quiet,-q", verify->quiet, "No progress on stderr");
  command->add_flag("--json", verify->json, "Print JSON");
  command->callback([verify] { verify->run(); });
}

}  // namespace ac
