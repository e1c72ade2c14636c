// Constants of the cost model that were fitted to measurements of kernels on one GPU. The values
// here are the H100's (SXM), and the guess for a GPU without its own. Unless another file is named,
// they are fitted to bench/results as test_plan_cost.cc reads them, which holds the model to them.
// Times are in seconds.
#pragma once

namespace ac {

struct Calibration {
  // Products with one token, and what warps of other families do as well.
  struct Gemv {
    double block_start = 0.95e-6;   // of a block where another has ended
    double alone = 0.7;             // how much of the last round is by itself: blocks drift apart
    double stage_element = 14e-12;  // to bring an element of x on chip and convert it
    double next_group = 13e-9;      // sum, epilogue and store of a warp's rows
    double next_shared_group = 24e-9;  // the same with a ring in shared memory
    double further_row = 23e-9, late_signal = 0.25e-6;
    double async_copies = 1.045, bulk_copies = 1.013, cache_hint = 0.98;  // factors of all loads
    double padding = 0.026;  // cost of steps beyond the end of a row
    // Factor of all loads of products by tensor cores where no other warp shares a tile, in
    // 2026-11-27-h100-columns.jsonl.
    double whole_tile = 1.1;
    // How much sooner a product of plain weights ends by tensor cores, if it is no pair: measured
    // there are 0.1 us for q, k and v of Qwen3-4B, 0.9 for o and 0.4 for down. Its pair loses 0.8.
    double plain_by_mma = 0.4e-6;
  } gemv;

  struct Attention {
    double scalar_step = 0.4e-6, combine = 1e-6;  // not fitted
  } attention;

  // Products of many tokens: shares of the peak, and reuse at which half of them is reached. Not
  // fitted, but for the efficiency of wgmma, to a product of 8192 tokens.
  struct Gemm {
    double plain_efficiency = 0.4, plain_half = 2;
    double mma_efficiency = 0.45, mma_half = 12;
    double wgmma_efficiency = 0.95, wgmma_half = 16;
    double next_tile = 0.3e-6;
    // What few tokens are bound by: a block works through slots of its ring one by one, however
    // small they are; an SM copies only so fast, however few others do; and what blocks copy comes
    // through L2 again and again. Fitted to wgmma plans at 128 tokens in
    // 2026-11-21-h100-short-prompt.jsonl, but for the time of a slot's 16 elements of K.
    double slot = 0.12e-6, slot_fragment = 0.03e-6, l2_over_memory = 2.1;
    double copy_latency = 1.1e-6, copied_by_one = 65e9;  // the latter in bytes a second
    double meet_in_memory = 1.1e-6, next_part = 1.5e-6;
  } gemm;

  // Fitted to the study kernel's lines in 2026-11-21-h100-tma-kernels.jsonl; test_plan_tma.cc holds
  // the model to them.
  struct TmaGemm {
    double efficiency = 0.87, copied_by_one = 110e9, l2_over_memory = 2.2;
    double next_tile = 2e-6, start = 1.5e-6;
    // Of parts of K, and of bytes that a block is sent: 2026-11-22-h100-short-prompt-chain.jsonl.
    double meet = 0.2e-6, sent = 35e9;
    double few_slots = 0.1;  // not fitted: of equal plans, that with more slots
    // For weights in a format of codes, counted and not fitted: how many elements a block decodes
    // in a second at 4.2 instructions each (4 bits take fewer since), and how many bytes pass
    // through its shared memory.
    double elements_of_codes = 50e9, through_shared = 225e9;
  } tma_gemm;

  struct PrefillAttention {
    // What keys bring along is used by all queries of a warp; each tile of them costs a softmax's
    // beginning and end.
    double scalar_queries_half = 4, mma_queries_half = 4, mma_keys_half = 8;
    // By hand, to 2026-11-22-h100-prompt-attention.jsonl: groups of four warps hide each other's
    // softmax, which short heads have more of; what a block of many queries brings comes through L2
    // less often.
    double wgmma_peak = 2.22, wgmma_groups_half = 0.9, wgmma_keys_half = 16;
    double wgmma_queries_half = 36, wgmma_dim_half = 82;
    // Of a multiprocessor's peak, what a warp reaches that waits for each of its products: what
    // prompts of 128 tokens reach, which have 128 warps on a whole H100
    // (2026-11-21-h100-short-prompt-attention.jsonl); of wgmma, what blocks of four warps reach
    // that are alone (2026-11-22-h100-prompt-attention.jsonl).
    double mma_alone = 0.043, wgmma_alone = 0.1;
  } prefill_attention;

  struct QkvAttention {
    double turn_tile = 1.5e-6;  // of norm, RoPE and append on a tile's sums; not fitted
  } qkv_attention;

  // All layers in one launch: what a layer takes besides its bytes, and the share of the memory's
  // speed that these reach. By hand, to 2026-11-28-h100-layers_maps.jsonl. Of codes, what a layer
  // takes besides what its blocks multiply, and what the 16 rows of a warp's columns take. By hand,
  // to 2026-11-29-h200-layers_bytes.jsonl.
  struct Layers {
    double layer = 3e-6, efficiency = 0.97;
    double codes = 9.0e-6, nibbles = 0.49e-6, bytes = 0.27e-6;
  } layers;

  // Rows one after the other, of norms: a team's next row waits for its last, and takes longer by
  // each vector of a thread. The first one's instructions are not there yet.
  struct Rows {
    double row = 0.9e-6, row_vector = 0.147e-6, first_row_vector = 0.26e-6;
    double by_turns = 1.04;  // instead of by whoever is done first
  } rows;

  // The shapes of tiles that the library has, and the share of the peak that each reaches in its
  // inner loop: 700 to 765 of 989 TFLOP/s were measured of large products on an H100, less of small
  // ones.
  struct Library {
    struct Tile {
      double m, n, share;
    } tiles[5] = {
        {256, 128, 0.74}, {128, 256, 0.74}, {128, 128, 0.66}, {64, 128, 0.5}, {64, 64, 0.35}};
    double bandwidth = 0.8, start = 2.7e-6;  // the former a share of the memory's
  } library;
};

}  // namespace ac
