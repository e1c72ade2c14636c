// What commands share that run or measure packages.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "runtime/engine.h"

namespace ac {

// "host", "cuda" or "cuda:1"; empty: what the package is for.
std::unique_ptr<Device> open_device(const std::string& name, const std::string& target);

// The package, or of a folder with one for each of several targets the one for that device: "host",
// "cuda", "cuda:1"; empty: the first GPU.
std::string choose_package(const std::string& package, const std::string& device);

// Kernels that no package has, built for this device.
std::filesystem::path build_for(const Device& device, const KernelSource& source);

// --weights, of commands that read a package's checkpoint.
void add_weights_option(CLI::App& command, std::string& weights);

void warn_on_stderr(const std::string& warning);

// The PACKAGE argument's engine and the options that shape it.
struct EngineArguments {
  std::string device, weights;
  std::optional<std::uint64_t> random_weights;
  bool records = true, overlaps = true;  // see EngineOptions
  bool quiet = false;                    // no progress on stderr

  void add_to(CLI::App& command);

  struct Opened {
    std::unique_ptr<Device> device;
    std::unique_ptr<RandomValues> random;  // if asked for
    std::unique_ptr<Engine> engine;
  };
  // With the loading's progress on stderr, unless it is short.
  // On `device`, if that was opened before.
  Opened open(const std::string& package, bool with_random = false,
              std::unique_ptr<Device> device = nullptr) const;
  // Stands for the package and its weights: what they compute is the same where this is.
  std::string identity_of(const Engine& engine) const;
  // Another package, on the same device; nothing of the one before it stays.
  void reopen(const std::string& package, Opened& opened) const;
};

}  // namespace ac
