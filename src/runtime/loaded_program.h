// A package on a device: its kernels, its weights and its work space. They are there once, however
// many sequences run; what is of one sequence alone, its engine has (engine.h).
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "device/device.h"
#include "device/launcher.h"
#include "program/program.h"
#include "runtime/package_files.h"
#include "runtime/weight_source.h"

namespace ac {

struct EngineOptions {
  // Instead of the package's checkpoints.
  std::unique_ptr<WeightSource> weights = nullptr;
  // Where the checkpoint is, instead of where it was compiled from; its values may be others.
  std::filesystem::path checkpoint = {};
  // Hears what is odd but no error, for people.
  std::function<void(const std::string& warning)> on_warning = {};
  // Hears how many bytes of how many weights are there.
  std::function<void(std::int64_t done, std::int64_t total)> on_weights = {};
  // Else, to see what they are worth: each kernel is launched by itself every time, or begins when
  // the one before it has ended.
  bool records = true, overlaps = true;
  // That there is room for. Each has an engine of its own.
  std::int64_t sequences = 1;
};

// Of a package, verified.
Program read_program(const PackageFiles& files);

// How many tokens a package of it holds, and whether another could hold more, for messages.
std::string room_of(const Program& program);

class Engine;

class LoadedProgram {
 public:
  // Reads program.json, loads kernels and weights, each after its digest has been checked. What the
  // device has no room for is an error with the numbers before any of it is loaded.
  LoadedProgram(Device& device, const std::filesystem::path& package, EngineOptions options = {});
  ~LoadedProgram();

  Device& device() const { return device_; }
  const Program& program() const { return program_; }
  const PackageFiles& files() const { return files_; }
  Launcher& launcher() { return launcher_; }
  bool records() const { return records_; }
  // What loading the weights took, until they all were on the device.
  struct Loaded {
    std::int64_t bytes = 0;
    double seconds = 0;
  };
  const Loaded& loaded() const { return loaded_; }

  // The addresses of each buffer for one more sequence, whose own are in `memory`. An error
  // (wrong_usage) if all that there is room for are taken.
  std::vector<void*> add_sequence(std::vector<std::unique_ptr<Device::Memory>>& memory);
  void remove_sequence(const Engine& engine);

  // A step of these engines comes: their logits take the place of those that lie in the work space.
  // Whose these are keeps them elsewhere.
  void step_of(std::span<Engine* const> engines);

 private:
  void check_room(std::int64_t sequences) const;
  void load_kernels();
  void make_buffers(const EngineOptions& options);
  std::int64_t bytes_of(const Buffer& buffer) const;
  void load_weights(const EngineOptions& options);
  void make_rope_table(const Buffer& buffer, void* to, const std::string& constants);

  Device& device_;
  const PackageFiles files_;
  const Program program_;
  const bool records_;
  std::int64_t free_sequences_;
  Launcher launcher_;
  std::vector<std::unique_ptr<Device::Memory>> memory_;
  std::unique_ptr<Device::Memory> arena_, constants_;
  std::vector<void*> addresses_;  // null: of sequences
  std::vector<Engine*> holders_;  // whose logits lie in the work space
  Loaded loaded_;
};

}  // namespace ac
