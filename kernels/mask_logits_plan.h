// Chooses among the tokens that a grammar allows: copies the logits with -infinity in place of
// those of all other tokens, and chooses the largest of what is left. Among equals the lowest token
// wins. A logit that is not finite is named as by the greedy choice (sampling_plan.h), whether its
// token is allowed or not. The block that comes last combines the blocks' best.
#pragma once

#include "kernels/rows_plan.h"

namespace ac::kernels {

struct MaskLogitsOp {
  Type logits = Type::f32;
};

// Tokens of one block, and those that a word has bits for.
constexpr int mask_block = 1024, mask_word = 32;
constexpr int mask_words(int vocab) { return divide_up(vocab, mask_word); }

struct MaskLogitsPlan {
  int threads = 256;

  constexpr int vector() const { return mask_block / threads; }
  constexpr int warps() const { return threads / 32; }
  constexpr int blocks_per_sm() const { return 1024 / threads; }
  constexpr int grid(int vocab) const { return divide_up(vocab, mask_block); }
  // The first reason why no size can run with this plan, or null.
  constexpr const char* why_illegal(const MaskLogitsOp&) const {
    if (threads != 128 && threads != 256 && threads != 512 && threads != 1024)
      return "threads must be 128, 256, 512 or 1024";
    return nullptr;
  }
};

struct MaskLogitsParams {
  const void* logits;  // [vocab]
  // [mask_words(vocab)]: the bit token % 32 of the word token / 32 says whether a token is allowed.
  // One is at least. Bits beyond the vocabulary say nothing.
  const unsigned* allowed;
  void* masked;                    // [vocab]
  unsigned long long* block_best;  // [grid]
  unsigned* finished_blocks;       // 0 before the first launch; every launch leaves 0 again
  int* token;                      // [1]: below 0 if a logit is not finite
  int vocab;
};

}  // namespace ac::kernels
