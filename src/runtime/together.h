// Steps of one token each of several sequences, which read the weights once. A sequence's tokens do
// not depend on whose steps they share: each row has the bits that it has alone.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "runtime/engine.h"

namespace ac {

class Together {
 public:
  explicit Together(std::shared_ptr<LoadedProgram> loaded);

  // Sequences that a step can have; 0: the package has no such steps.
  std::int64_t most() const { return loaded_->program().longest_step(Rows::each); }

  // Runs the token that each has chosen, or was told (Engine::tell), and chooses the next by its
  // sampling, under its mask (Engine::allow). Does not wait: two steps may be under way. They are
  // engines of one LoadedProgram, each once, and live as long as this.
  void step(std::span<Engine* const> engines);
  // What the oldest step under way has chosen, in the order of its engines: for checked_token().
  std::vector<std::int32_t> tokens();
  std::size_t under_way() const { return asked_ - given_; }

 private:
  struct Row {
    Engine* engine = nullptr;
    bool draws = false;
    bool operator==(const Row&) const = default;
  };
  struct Recorded {
    const Phase* phase = nullptr;
    std::vector<Row> rows;
    std::unique_ptr<Device::Recording> recording = {};
  };
  struct Chosen {
    std::unique_ptr<Device::Mark> copied;
    std::size_t rows = 0;
  };

  void step_of(const Phase& phase, const std::vector<Engine*>& engines);
  void enqueue(const Phase& phase, const std::vector<Row>& rows);

  const std::shared_ptr<LoadedProgram> loaded_;
  std::list<Recorded> recorded_;  // the last one first
  std::array<Chosen, 2> chosen_;
  std::unique_ptr<Device::Memory> copies_;  // staging: tokens of each of those
  std::size_t asked_ = 0, given_ = 0;
};

}  // namespace ac
