// The MODEL of `generate` and `chat`: a package, or what `compile` takes. That is compiled when it
// is first used, to a package in the cache folder, which is taken from there from then on: quickly
// at first, and by measurement as soon as somebody has the time.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/weights_argument.h"
#include "device/device.h"

namespace ac {

// A package, or a folder with one for each of several targets.
bool is_package_or_packages(const std::filesystem::path& path);

// There is no tokenizer in that folder, which is an error (bad_input).
[[noreturn]] void no_tokenizer(const std::filesystem::path& folder);

class ModelArgument {
 public:
  // Its own option, so that a command may do without.
  CLI::Option* add_to(CLI::App& command);
  struct Wanted {
    std::string device;      // the command's --device
    bool tokenizer = true;   // of the model's own, which must be there before it is compiled
    bool full = false;       // it is not compiled quickly, but by measurement
    bool quiet = false;      // no progress on stderr
    std::int64_t slots = 1;  // sequences that it has steps of, if it is compiled
  };
  struct Found {
    std::filesystem::path package;
    // Of a quick package: the command that puts one in its place that is selected by measurement.
    std::vector<std::string> to_full = {};
    // The first GPU, if it was opened on the way: opening it once more takes as long again.
    std::unique_ptr<Device> device = {};
  };
  Found package(const Wanted& wanted) const;
  const std::string& name() const { return model_; }
  void set_name(std::string name) { model_ = std::move(name); }
  std::string described() const;  // the name, and the weights and cache that it is to have
  // Another model, by the same options, with the weights that it has.
  ModelArgument other(std::string name) const;

 private:
  Found compiled(const Wanted& wanted) const;

  std::string model_;
  WeightsArgument weights_;
  bool download_ = false, again_ = false;
  // Options that `compile` gets as they are.
  struct Passed {
    std::string name;
    std::string value;
    const CLI::Option* option = nullptr;
  };
  std::vector<std::shared_ptr<Passed>> passed_;
};

}  // namespace ac
