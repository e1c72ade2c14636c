// How large the trial of a plan must be.
#pragma once

#include <cstdint>
#include <limits>

#include "plan/space.h"

namespace ac {

// Blocks that share the work in a trial: few, so that each has several turns, and more than one.
constexpr int kTrialProcessors = 2;
// Tokens where those of a block do not say how many, tokens behind the last whole block, and rows
// of a table.
constexpr std::int64_t kFewTokens = 32, kTailTokens = 5, kFewIds = 1000;
// Elements of a trial's caches at most: more keys than they hold are not judged.
constexpr std::int64_t kMostCached = 2'500'000;

// What of a plan says how large a trial must be for everything in it to happen. Every family says
// all of it.
struct Extent {
  // Outputs of one block, and blocks that run at once: a trial has more rows than these, with the
  // real tail.
  std::int64_t block = 64, at_once = 1;
  std::int64_t tokens = 0;  // of one block; 0: each by itself
  std::int64_t group = 1;   // blocks of tokens that go together through the rows
  // Cached keys that a warp or block takes at once, and those after which all places have been
  // used, splits, warps and the ring's slots: some are used again. 0: there are none.
  std::int64_t key_tile = 0, round = 0;
  std::int64_t kv_heads = std::numeric_limits<std::int64_t>::max();  // that are enough
};

Extent extent_of(const Choice& choice);

}  // namespace ac
