#include "cli/engine.h"

#include <fmt/format.h>

#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "base/error.h"
#include "cli/page.h"
#include "runtime/fingerprint.h"
#include "runtime/packages.h"

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
      fmt::print(stderr, "weights: {}\n", figures);
      return;
    }
    const int filled = static_cast<int>(part * kBarWidth);
    fmt::print(stderr, "\r\x1b[Kweights [{:#<{}}{:.<{}}] {}{}", "", filled, "", kBarWidth - filled,
               figures, is_end ? "\n" : "");
    std::fflush(stderr);
  };
}

}  // namespace

std::unique_ptr<Device> open_device(const std::string& name, const std::string& target) {
  const std::string which = name.empty() ? (target == "host" ? "host" : "cuda") : name;
  if (which == "host") return open_host_device();
  if (which == "cuda") return open_cuda_device();
  if (int index = 0;
      which.starts_with("cuda:") && CLI::detail::lexical_cast(which.substr(5), index))
    return open_cuda_device(index);
  wrong_usage("--device: \"{}\" is none of host, cuda and cuda:NUMBER", which);
}

std::filesystem::path build_for(const Device& device, const KernelSource& source) {
  const int sm = device.info().sm;
  const Target target =
      sm > 0 ? Target{Target::cuda, fmt::format("sm_{}", sm)} : Target{Target::host, {}};
  const BuildResult built =
      KernelBuilder(builder_options(read_environment())).build(source, target);
  if (const auto* failure = std::get_if<CompileFailure>(&built))
    job_failed("the kernels \"{}\" do not compile for {}:\n{}", source.entry, device.name(),
               failure->log);
  return std::get<Artifact>(built).file;
}

void add_weights_option(CLI::App& command, std::string& weights) {
  command
      .add_option("--weights", weights,
                  "Where the package's checkpoint is now: a folder, or one safetensors file. "
                  "Its tensors must have the names, types and shapes of the one that was "
                  "compiled, and may have other values")
      ->type_name("PATH");
}

void warn_on_stderr(const std::string& warning) { fmt::print(stderr, "warning: {}\n", warning); }

void EngineArguments::add_to(CLI::App& command) {
  command
      .add_option("--device", device,
                  "host, cuda or cuda:NUMBER (default: what the package is compiled for)")
      ->type_name("DEVICE");
  add_weights_option(command, weights);
  command
      .add_option("--random-weights", random_weights,
                  "Random weights made of this seed, instead of a checkpoint")
      ->excludes("--weights")
      ->group(kRare);
}

std::string choose_package(const std::string& package, const std::string& device) {
  const Packages packages = packages_in(package);
  if (packages.empty()) return package;
  const int sm = device == "host" ? 0 : open_device(device, "sm_")->info().sm;
  const std::string target = target_for(sm, packages);
  if (target.empty()) {
    std::string known;
    for (const auto& [name, path] : packages) known += (known.empty() ? "" : ", ") + name;
    wrong_usage("{} has packages for {}, and none for {}", package, known,
                sm == 0 ? "the host" : fmt::format("sm_{}", sm));
  }
  return packages.at(target).string();
}

EngineArguments::Opened EngineArguments::open(const std::string& given, bool with_random,
                                              std::unique_ptr<Device> known) const {
  const std::string package = choose_package(given, device);
  Opened opened;
  opened.device =
      known ? std::move(known) : open_device(device, read_program(PackageFiles(package)).target);
  if (with_random || random_weights)
    opened.random =
        std::make_unique<RandomValues>(*opened.device, build_for(*opened.device, random_source()));
  reopen(package, opened);
  return opened;
}

std::string EngineArguments::identity_of(const Engine& engine) const {
  const std::string weights_of = random_weights
                                     ? fmt::format("random weights of {}", *random_weights)
                                     : identity_of_weights(engine.program(), weights);
  return fmt::format("{} with {}", engine.files().digest(), weights_of);
}

void EngineArguments::reopen(const std::string& package, Opened& opened) const {
  opened.engine.reset();  // there may be no room for two
  EngineOptions options;
  if (!quiet) options.on_weights = report_weights();
  options.checkpoint = weights;
  options.on_warning = warn_on_stderr;
  options.records = records, options.overlaps = overlaps;
  if (random_weights) options.weights = ac::random_weights(*opened.random, *random_weights);
  opened.engine = std::make_unique<Engine>(*opened.device, package, std::move(options));
}

}  // namespace ac
