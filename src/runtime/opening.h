// A package's engine on a device: how the commands that run packages, and the library, open one.
#pragma once

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

struct EngineOpening {
  std::string device, checkpoint;
  std::optional<std::uint64_t> random_weights;
  bool records = true, overlaps = true;  // see EngineOptions
  std::int64_t sequences = 1;            // likewise; the opened engine is the first of them

  virtual ~EngineOpening() = default;

  struct Opened {
    std::unique_ptr<Device> device;
    std::unique_ptr<RandomValues> random;  // if asked for
    std::shared_ptr<LoadedProgram> program;
    std::unique_ptr<Engine> engine;  // none if it is opened for several sequences
  };
  // On `known`, if the device was opened before.
  Opened open(const std::string& package, bool with_random = false,
              std::unique_ptr<Device> known = nullptr) const;
  // With room for so many sequences, and no engine.
  Opened open_for(std::int64_t sequences, const std::string& package,
                  std::unique_ptr<Device> known = nullptr) const;
  // Another package, on the same device; nothing of the one before it stays.
  void reopen(const std::string& package, Opened& opened) const;
  // Stands for the package and its weights: what they compute is the same where this is.
  std::string identity_of(const Engine& engine) const;

 private:
  Opened open_device_for(const std::string& package, bool with_random,
                         std::unique_ptr<Device> known) const;
  void load(const std::string& package, std::int64_t sequences, Opened& opened) const;
  // Who hears of progress. Warnings go to stderr.
  virtual void listen(EngineOptions&) const {}
};

}  // namespace ac
