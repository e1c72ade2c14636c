#include "lab/trial_package.h"

#include "base/error.h"
#include "base/files.h"
#include "runtime/package_files.h"

namespace ac {

namespace fs = std::filesystem;

void write_runnable(const fs::path& folder, const Program& program,
                    const std::vector<std::byte>& constants, const Lab& lab) {
  Program made = program;
  for (auto& [entry, file] : made.kernels) {
    file = entry;
    std::error_code error;
    fs::create_symlink(fs::absolute(lab.kernels().at(entry).artifact), folder / entry, error);
    if (error) job_failed("cannot write {}: {}", (folder / entry).string(), error.message());
  }
  write_file(folder / "program.json", to_json(made).dump());
  write_file(folder / "constants.bin",
             {reinterpret_cast<const char*>(constants.data()), constants.size()});
  write_digests(folder);
}

TrialPackage::TrialPackage(const StepGraph& step, const Program& program, std::int64_t tokens,
                           const std::vector<Implemented>& parts, const Lab& lab) {
  std::size_t at = 0;
  for (const Implemented& part : parts) {
    const std::size_t begin = at;
    at += part.made.launches.size();
    spans_.push_back({begin, at});
  }
  Program trial = program;
  trial.buffers.clear(), trial.kernels.clear();
  Assembler assembler(trial);
  trial.phases = {assembler.phase(step, {.name = "trial", .max_tokens = tokens}, parts, {}, {})};
  plan_memory(trial);
  for (const Launch& launch : trial.phases[0].launches)
    if (!launch.product) trial.kernels[launch.kernel] = launch.kernel;
  write_runnable(folder_.path(), trial, assembler.constants(), lab);
}

}  // namespace ac
