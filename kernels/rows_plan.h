// What the plans of the row-wise families (reduction, softmax, norm, ...) have in common.
#pragma once

#include "kernels/plan.h"

namespace ac::kernels {

// Who takes a row.
enum class Team : unsigned char { warp, block };
constexpr const char* names_of(Team) { return "Team, warp, block"; }

// Where a row stays between the passes over it.
enum class Keep : unsigned char {
  reread,     // nowhere: each pass loads it again (from L2, mostly)
  registers,  // rows of limited length
  shared,     // as float32
};
constexpr const char* names_of(Keep) { return "Keep, reread, registers, shared"; }

constexpr int team_threads(Team team, int threads) { return team == Team::warp ? 32 : threads; }

// Blocks for `units` pieces of work of which a block does `at_once`; at least one, as an empty grid
// is an error. A persistent grid is no larger than what is resident.
constexpr int work_grid(long long units, int at_once, bool persistent, int sms, int blocks_per_sm) {
  const long long full = units < 1 ? 1 : (units + at_once - 1) / at_once;
  const long long fits = static_cast<long long>(sms) * blocks_per_sm;
  return static_cast<int>(persistent && fits < full ? fits : full);
}

// The first reason why no kernel can have these, or null.
constexpr const char* why_threads_illegal(int threads, int vector, int resident) {
  if (threads < 32 || threads > 1024 || threads % 32 != 0)
    return "threads must be a multiple of 32, at most 1024";
  if (vector != 1 && vector != 2 && vector != 4 && vector != 8)
    return "vector must be 1, 2, 4 or 8";
  if (resident < 32 || resident > 2048) return "resident must be 32 to 2048";
  return nullptr;
}

// As above for what a row is kept in: `kept` vectors a thread in registers.
constexpr const char* why_keep_illegal(Keep keep, int vector, int kept) {
  if (kept < 1 || kept * vector > 64) return "kept vectors must be 1 to 64 elements a thread";
  if (keep != Keep::registers && kept != 1) return "only a row in registers has kept vectors";
  return nullptr;
}

// As above for one length of row.
constexpr const char* why_row_illegal(Keep keep, int threads_per_row, int vector, int kept,
                                      int columns) {
  if (columns < 1) return "columns must be positive";
  if (keep == Keep::registers && divide_up(columns, vector) > threads_per_row * kept)
    return "the row does not fit in registers";
  return nullptr;
}

// Shared memory of the rows that a block has at once.
constexpr int kept_row_bytes(Keep keep, int threads, int threads_per_row, int vector, int columns) {
  if (keep != Keep::shared) return 0;
  return threads / threads_per_row * round_up(divide_up(columns, vector) * vector * 4, 16);
}

}  // namespace ac::kernels
