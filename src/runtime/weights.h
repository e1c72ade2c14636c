// Where an engine's weights come from: checkpoints, or random numbers of a sensible size.
#pragma once

#include <filesystem>
#include <memory>

#include "device/device.h"
#include "program/program.h"
#include "runtime/random.h"

namespace ac {

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // May return before it is done; what the device is asked for after it comes after it.
  virtual void load(const Buffer& buffer, void* to) = 0;
};

// The checkpoints of a package, through two pinned buffers, so that one is read into while the
// other is on its way.
std::unique_ptr<WeightSource> checkpoint_weights(Device& device, const Program& program,
                                                 const std::filesystem::path& package);

// Matrices such that a product neither grows nor shrinks what it is given, norms about 1, biases
// near 0.
std::unique_ptr<WeightSource> random_weights(const RandomValues& values, std::uint64_t seed);

}  // namespace ac
