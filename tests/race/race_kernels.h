// Kernels compiled with -fsanitize=thread, so that the host device sees each of their accesses.
#pragma once

#include "kernels/attention.cuh"
#include "kernels/gemv.cuh"

namespace ac::kernels {

enum class Fault { none, missing_barrier, missing_warp_barrier, write_after_read, early_write };

void sum_neighbours(const float* in, float* out, Fault fault);  // out[i] = in[i] + in[i ^ 33]
void swap_in_warp(const float* in, float* out, Fault fault);    // out[i] = in[i ^ 1]
void bulk_ring(const float* in, float* out, Fault fault);       // out[i] = in[i] + in[32 + i] + ...

constexpr GemvOp race_op{
    .x = Type::f32, .y = Type::f32, .norm = true, .pair = Pair::swiglu, .matrices = 2};
constexpr GemvOp race_head{.y = Type::f32, .norm = true, .argmax = true};
constexpr GemvPlan race_registers{
    .threads = 128, .rows = 2, .depth = 2, .split = 2, .resident = 128};
constexpr GemvPlan race_async{
    .threads = 128, .rows = 2, .depth = 3, .ring = Ring::async_copy, .resident = 128};
constexpr GemvPlan race_bulk{.threads = 128,
                             .rows = 2,
                             .depth = 2,
                             .chunks = 2,
                             .ring = Ring::bulk_copy,
                             .split = 4,
                             .resident = 128};
constexpr GemvPlan race_slow{
    .threads = 64, .rows = 2, .depth = 1, .ring = Ring::none, .resident = 64};

constexpr AttentionOp race_attention_op{.head_dim = 64, .group = 3, .qk_norm = true, .rotary = 64};
constexpr AttentionPlan race_mma{.threads = 64, .splits = 3};
constexpr AttentionPlan race_scalar{.tile = Tile::scalar, .threads = 128, .splits = 2};

}  // namespace ac::kernels

extern "C" {
void race_gemv_registers(ac::kernels::GemvParams);
void race_gemv_async(ac::kernels::GemvParams);
void race_gemv_bulk(ac::kernels::GemvParams);
void race_gemv_slow(ac::kernels::GemvParams);
void race_gemv_head(ac::kernels::GemvParams);
void race_attention_mma(ac::kernels::AttentionParams);
void race_attention_scalar(ac::kernels::AttentionParams);
}
