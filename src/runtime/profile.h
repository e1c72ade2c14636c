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
  // Of a launch that says when its blocks come to points of its rounds: what a round takes from the
  // point before to this one, as blocks have it on average, and the block that is there soonest.
  struct Part {
    std::string point;
    double seconds = 0, least = 0;
  };
  std::vector<Part> parts = {};
};

// The launches of a decode step with so many tokens before it, in their order: medians of several
// steps. No launch begins before the one before it has ended, so that each time is one launch's
// own.
std::vector<LaunchTime> launch_by_launch(Engine& engine, const Phase& phase, std::int64_t cached);

}  // namespace ac
