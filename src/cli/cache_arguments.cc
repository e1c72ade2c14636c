#include "cli/cache_arguments.h"

#include <unistd.h>

#include "base/error.h"
#include "cli/command_page.h"

namespace ac {
namespace {

constexpr std::size_t kMemory = std::size_t{4} << 30, kDisk = std::size_t{16} << 30;

std::size_t machine_bytes() {
  return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

void CacheArguments::add_to(CLI::App& command) {
  memory = std::min(kMemory, machine_bytes() / 4);
  disk = kDisk;
  const auto size = [&](const char* name, auto& value, const std::string& about) {
    return command.add_option(name, value, about)
        ->transform(CLI::AsSizeValue(false))
        ->type_name("BYTES");
  };
  size("--cache-memory", memory,
       "Memory for what was read of earlier prompts, as 8G; 0: only the last prompt is known "
       "(default: 4G, or a quarter of the machine's if that is less)");
  CLI::Option* const in_folder =
      command
          .add_option("--cache-dir", folder,
                      "A folder that keeps it as well, also for the next time. It holds what was "
                      "said, in a form that nobody reads at sight")
          ->type_name("FOLDER");
  size("--cache-disk", disk, "How much that folder may hold (default: 16G)")->needs(in_folder);
  size("--cache-device-memory", device,
       "Memory of the device for the same, where it comes back fastest (default: a quarter of what "
       "is free there, at most 8G)")
      ->group(kRare);
  command
      .add_option("--cache-step", step,
                  "The server reads prompts in steps of this many tokens, and keeps whole steps; "
                  "very short "
                  "steps take longer in all (default: 512, or the package's longest if that is "
                  "less)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20))
      ->type_name("TOKENS")
      ->group(kRare);
}

void CacheArguments::check() const {
  if (!folder.empty() && memory == 0)
    wrong_usage(
        "--cache-dir: what goes to the disk comes from memory: --cache-memory 0 leaves none");
}

std::vector<std::string> CacheArguments::command() const {
  std::vector<std::string> command = {"--cache-memory", std::to_string(memory)};
  if (device) command.insert(command.end(), {"--cache-device-memory", std::to_string(*device)});
  if (step > 0) command.insert(command.end(), {"--cache-step", std::to_string(step)});
  if (!folder.empty())
    command.insert(command.end(), {"--cache-dir", folder, "--cache-disk", std::to_string(disk)});
  return command;
}

PrefixOptions CacheArguments::options() const {
  return {.device_bytes = device,
          .memory_bytes = memory,
          .disk_bytes = disk,
          .folder = folder,
          .step = step};
}

}  // namespace ac
