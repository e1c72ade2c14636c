// Runs a package: the prompt in chunks, then token after token, with keys and values kept on the
// device. Knows launches and buffers, and no kernel family, graph or compiler.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "device/device.h"
#include "program/program.h"

namespace ac {

class Engine {
 public:
  // Reads program.json, loads kernels and weights. What the device has no room for is an error with
  // the numbers before any of it is loaded. `on_weights` hears how many bytes of how many are
  // there.
  Engine(Device& device, const std::filesystem::path& package,
         const std::function<void(std::int64_t done, std::int64_t total)>& on_weights = {});
  ~Engine();

  const Program& program() const { return program_; }
  std::int64_t position() const { return position_; }  // tokens that are cached
  void reset() { position_ = 0; }

  // Runs these tokens; what follows them is in logits() and chosen() after it.
  void prefill(const std::vector<std::int64_t>& ids, std::int64_t chunk = 0);
  void decode(std::int64_t id);

  std::vector<double> logits();  // after the last token that was run
  std::int64_t chosen();         // the largest of them

 private:
  void check_room() const;
  void make_buffers(const std::function<void(std::int64_t, std::int64_t)>& on_weights);
  void load_weight(const Buffer& buffer, void* to);
  const Checkpoint& store(const std::string& name);
  void step(const Phase& phase, const std::vector<std::int64_t>& ids);

  Device& device_;
  const std::filesystem::path package_;
  Program program_;
  std::map<std::string, Checkpoint> stores_;
  std::map<std::string, std::unique_ptr<Device::Kernel>> kernels_;
  std::vector<std::unique_ptr<Device::Memory>> memory_;
  std::unique_ptr<Device::Memory> arena_, constants_;
  std::vector<void*> addresses_;  // of each buffer
  std::int64_t position_ = 0;
  const Phase* last_ = nullptr;  // that left logits
};

}  // namespace ac
