// Where an engine's weights come from: checkpoints, or random numbers of a sensible size.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "checkpoint/checkpoint.h"
#include "device/device.h"
#include "program/program.h"
#include "runtime/package_files.h"
#include "runtime/random_values.h"

namespace ac {

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // May return before it is done; what the device is asked for after it comes after it.
  virtual void load(const Buffer& buffer, void* to) = 0;
};

// The checkpoints of a package, opened and compared with what it was compiled from.
class PackageStores {
 public:
  // One that lies outside of the package is looked for where it was when that was compiled, and
  // must be the same; or in `named`, if that is not empty: then its values may be others, which
  // `warn` hears. Anything else is an error (bad_input) that says what differs.
  PackageStores(const Program& program, const PackageFiles& files,
                const std::filesystem::path& named = {},
                const std::function<void(const std::string&)>& warn = {});
  const Checkpoint& at(const std::string& store) const;

 private:
  std::map<std::string, Checkpoint> stores_;
};

// Through two pinned buffers, so that one is read into while the other is on its way.
std::unique_ptr<WeightSource> checkpoint_weights(Device& device, PackageStores stores);

// Matrices such that a product neither grows nor shrinks what it is given, norms about 1, biases
// near 0.
std::unique_ptr<WeightSource> random_weights(const RandomValues& values, std::uint64_t seed);

}  // namespace ac
