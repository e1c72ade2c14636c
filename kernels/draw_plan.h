// Draws a token from the logits of a step, instead of their largest. In this order, which is that
// of transformers:
//   temperature  logits are divided by it;
//   top-k        keeps the k largest logits;
//   top-p        of those, with their probabilities made to sum to 1: a token stays if those that
//                are likelier than it have together less than p;
//   min-p        drops what is less likely than min_p times the likeliest.
// What ties with the last token that is kept is kept. Ties are meant on a grid of 2^-17 in (largest
// - logit) / temperature, and what is 32 or more below the largest (a part in 10^14) is never
// drawn.
//
// A token's random number is a hash of seed, position and token, and the token with the largest
// (logit / temperature - log of an exponential variate) is the draw (Gumbel's way): each follows
// its probability, and no order of blocks or threads can change the result. Sums of probabilities
// are integers for the same reason.
//
// Four launches, one after another, each a pass over the logits by many blocks whose last one
// concludes: `coarse` counts tokens and their weights by coarse distance below the largest, which
// tells in which bin the last of top-k is; `top_k` refines that bin, and then knows the bin of the
// last of top-p; `top_p` refines that; `choose` draws among what is left. The largest logit is the
// one that the greedy choice, which comes before, has left in `token`.
#pragma once

#include "kernels/rows_plan.h"

namespace ac::kernels {

// What a request asks for; in device memory, so that one recording serves all.
struct DrawSettings {
  float temperature;        // above 0
  int top_k;                // 0: all
  float top_p;              // 1: all
  float min_p;              // 0: all
  unsigned long long seed;  // of the random numbers
};

enum class DrawPass : unsigned char { coarse, top_k, top_p, choose };
constexpr int draw_passes = 4;

struct DrawOp {
  Type logits = Type::f32;
  DrawPass pass = DrawPass::coarse;
};

constexpr int draw_bins = 2048;                   // of each histogram
constexpr int draw_keys = draw_bins * draw_bins;  // distances that are told apart
constexpr float draw_range = 32;                  // the distance that is too far
constexpr int draw_mass_bits = 42;                // behind the point of a weight; the largest is 1
// Tokens of one block: so many halves of weights fit into 32 bits.
constexpr int draw_block = 1024;

struct DrawPlan {
  int threads = 256;

  constexpr int vector() const { return draw_block / threads; }
  constexpr int warps() const { return threads / 32; }
  constexpr int bins_per_thread() const { return draw_bins / threads; }
  constexpr int blocks_per_sm() const { return 1024 / threads; }
  constexpr int shared_bytes() const { return 0; }
  constexpr int grid(int vocab) const { return divide_up(vocab, draw_block); }
  // The first reason why no size can run with this plan, or null.
  constexpr const char* why_illegal(const DrawOp&) const {
    if (threads != 128 && threads != 256 && threads != 512 && threads != 1024)
      return "threads must be 128, 256, 512 or 1024";
    return nullptr;
  }
};

// What one pass leaves to the next.
struct DrawState {
  unsigned k_bin, p_bin;              // to be refined; draw_bins: none
  unsigned limit;                     // the largest key that is kept
  unsigned k_count;                   // tokens in the bins before k_bin
  unsigned long long k_mass, p_mass;  // weights in the bins before k_bin and p_bin
  unsigned long long target;          // of top_p, in weights
};

struct DrawParams {
  const void* logits;  // [vocab]
  int vocab;
  int tokens;                    // of the step
  const int* position;           // [1]: tokens before the step
  const DrawSettings* settings;  // [1]
  // [2][2][draw_bins]: of the coarse and the fine histogram, counts and weights. 0 before the first
  // launch; the last one leaves 0 again.
  unsigned long long* bins;
  unsigned* finished_blocks;       // likewise
  DrawState* state;                // [1]
  unsigned long long* block_best;  // [grid]
  int* token;  // [1]: the greedy choice before, the drawn one after; one below 0 stays
};

constexpr int draw_bins_bytes = 2 * 2 * draw_bins * 8;

// Mixes 64 bits well (the end of SplitMix64).
constexpr unsigned long long draw_mix(unsigned long long z) {
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ z >> 27) * 0x94D049BB133111EBull;
  return z ^ z >> 31;
}
// Of the token that is drawn for `position`; draw_bits makes each token's number of it.
constexpr unsigned long long draw_stream(unsigned long long seed, int position) {
  constexpr unsigned long long golden = 0x9E3779B97F4A7C15ull;
  return draw_mix(draw_mix(seed + golden) + golden * (static_cast<unsigned>(position) + 1ull));
}
constexpr unsigned long long draw_bits(unsigned long long stream, int token) {
  return draw_mix(stream + 0x9E3779B97F4A7C15ull * (static_cast<unsigned>(token) + 1ull)) >> 11;
}
constexpr int draw_random_bits = 53;

}  // namespace ac::kernels
