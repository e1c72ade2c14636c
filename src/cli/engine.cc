#include "cli/engine.h"

#include <fmt/format.h>

#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "base/print_stderr.h"
#include "cli/command_page.h"

namespace ac {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBarWidth = 30;

// A bar on a terminal; elsewhere a line now and then, unless it is short.
std::function<void(std::int64_t, std::int64_t)> report_weights() {
  const bool terminal = isatty(STDERR_FILENO) == 1;
  const std::chrono::milliseconds every(terminal ? 100 : 1000);
  const auto start = Clock::now();
  return [=, last = start](std::int64_t done, std::int64_t total) mutable {
    const auto now = Clock::now();
    const bool is_end = done == total;
    if (now - last < every && !(is_end && (terminal || now - start >= every))) return;
    last = now;
    const double part = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1;
    const std::string figures = fmt::format(
        "{:3.0f} %, {:.2f} of {:.2f} GB, {:.1f} GB/s", 100 * part, static_cast<double>(done) * 1e-9,
        static_cast<double>(total) * 1e-9,
        static_cast<double>(done) * 1e-9 / std::chrono::duration<double>(now - start).count());
    if (!terminal) {
      print_stderr("weights: {}\n", figures);
      return;
    }
    const int filled = static_cast<int>(part * kBarWidth);
    print_stderr("\r\x1b[Kweights [{:#<{}}{:.<{}}] {}{}", "", filled, "", kBarWidth - filled,
                 figures, is_end ? "\n" : "");
    std::fflush(stderr);
  };
}

}  // namespace

void add_checkpoint_option(CLI::App& command, std::string& checkpoint) {
  command
      .add_option(
          "--checkpoint", checkpoint,
          "Where the package's checkpoint is now: a folder, or one safetensors or GGUF file. "
          "Its tensors must have the names, types and shapes of the one that was "
          "compiled, and may have other values")
      ->type_name("PATH");
}

void warn_on_stderr(const std::string& warning) { print_stderr("warning: {}\n", warning); }

void EngineArguments::add_to(CLI::App& command) {
  command
      .add_option("--device", device,
                  "host, cuda or cuda:NUMBER (default: what the package is compiled for)")
      ->type_name("DEVICE");
  add_checkpoint_option(command, checkpoint);
  command
      .add_option("--random-weights", random_weights,
                  "Random weights made of this seed, instead of a checkpoint")
      ->excludes("--checkpoint")
      ->group(kRare);
}

std::vector<std::string> EngineArguments::command() const {
  std::vector<std::string> command;
  if (!device.empty()) command.insert(command.end(), {"--device", device});
  if (!checkpoint.empty()) command.insert(command.end(), {"--checkpoint", checkpoint});
  if (random_weights)
    command.insert(command.end(), {"--random-weights", std::to_string(*random_weights)});
  if (quiet) command.emplace_back("--quiet");
  return command;
}

void EngineArguments::listen(EngineOptions& options) const {
  if (!quiet) options.on_weights = report_weights();
  options.on_warning = warn_on_stderr;
}

}  // namespace ac
