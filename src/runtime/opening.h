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
    std::unique_ptr<Engine> engine;
  };
  // On `known`, if the device was opened before.
  Opened open(const std::string& package, bool with_random = false,
              std::unique_ptr<Device> known = nullptr) const;
  // Another package, on the same device; nothing of the one before it stays.
  void reopen(const std::string& package, Opened& opened) const;
  // Stands for the package and its weights: what they compute is the same where this is.
  std::string identity_of(const Engine& engine) const;

 private:
  // Who hears of progress. Warnings go to stderr.
  virtual void listen(EngineOptions&) const {}
};

}  // namespace ac
