// The launches that draw a token, on the host device.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "kernels/draw.cuh"
#include "tests/unit/tensors.h"

namespace ac::kernels {

struct DrawCase {
  const char* name = "";
  Type logits = Type::f32;
  DrawPlan plan = {};
  std::array<void (*)(DrawParams), draw_passes> kernels = {};
  std::size_t skip = 0;  // elements by which the logits miss 16-byte alignment
  Schedule schedule = Schedule::shuffled;
  unsigned seed = 1;
  bool check_races = false;
};

// Memory of the launches, which several draws may share, as an engine's requests do.
class DrawRun {
 public:
  // `greedy`: what the greedy choice left, if not the largest logit.
  DrawRun(const DrawCase& c, const std::vector<float>& values, std::optional<int> greedy = {});

  // The logits as they are stored.
  const std::vector<double>& logits() const { return stored_; }
  // The token for the position. What goes wrong is in error(), and stays there.
  int draw(const DrawSettings& settings, int position);
  const std::string& error() const { return error_; }
  // How far below the largest the last draw let tokens be, on the grid of the kernel.
  unsigned limit() const { return state_.limit; }

 private:
  DrawCase case_;
  Input input_;
  std::vector<double> stored_;
  int greedy_ = 0;
  std::vector<unsigned long long> bins_, block_best_;
  DrawState state_;
  std::string error_;
};

}  // namespace ac::kernels
