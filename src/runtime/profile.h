// Where a step's time goes: each kind of its launches timed by itself, and by what the step takes
// without it; or all its launches in their order, and what they say of their parts.
#pragma once

#include <string>
#include <vector>

#include "program/traffic.h"
#include "runtime/engine.h"

namespace ac {

// Launches of a step that differ in their addresses alone.
struct LaunchTimes {
  std::string kernel, note;  // the note of the first
  std::int64_t launches = 0;
  Traffic traffic;     // of one
  double alone = 0;    // seconds of one, among others of its kind
  double in_step = 0;  // of one: what the step takes less without them
};

// A step of so many tokens, with `cached` ones before them.
std::vector<LaunchTimes> profile(Engine& engine, const Phase& phase, std::int64_t tokens,
                                 std::int64_t cached);

// One launch of a decode step.
struct LaunchTime {
  double seconds = 0;
  // Some launches say when their blocks come to each point of a round (Launch::Stamps). A part is
  // the time from the point before to this one, in each round: the average of all blocks, and the
  // shortest of any block.
  struct Part {
    std::string point;
    double seconds = 0, least = 0;
  };
  std::vector<Part> parts = {};
};

// Times each launch of a decode step by itself, in order, with `cached` tokens before the step. A
// launch begins when the one before it has ended. The times are medians of several steps.
std::vector<LaunchTime> launch_by_launch(Engine& engine, const Phase& phase, std::int64_t cached);

}  // namespace ac
