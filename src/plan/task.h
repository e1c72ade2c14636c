// What a kernel family is asked to compute: its Op, and the sizes of the one problem. The schedule
// sub-planner makes tasks of regions; with a plan, a task is an implementation. Which values of the
// region are the operands is no part of a task, so that equal regions share their tasks.
#pragma once

#include <string_view>
#include <variant>

#include "kernels/attention_plan.h"
#include "kernels/elementwise_plan.h"
#include "kernels/embedding_plan.h"
#include "kernels/gemm_plan.h"
#include "kernels/gemv_plan.h"
#include "kernels/mma_gemm_plan.h"
#include "kernels/norm_plan.h"
#include "kernels/prefill_attention_plan.h"
#include "kernels/qkv_rope_plan.h"
#include "kernels/reduction_plan.h"
#include "kernels/rope_append_plan.h"
#include "kernels/sampling_plan.h"
#include "kernels/softmax_plan.h"

namespace ac {

struct GemvTask {
  using Plan = kernels::GemvPlan;
  static constexpr std::string_view family = "gemv";
  kernels::GemvOp op;
  int n = 0, k = 0;  // outputs of all matrices together (of a pair: of one); length of x
};

struct GemmTask {
  using Plan = kernels::GemmPlan;
  static constexpr std::string_view family = "gemm";
  kernels::GemmOp op;
  kernels::GemmShape shape;
};

struct MmaGemmTask {
  using Plan = kernels::MmaGemmPlan;
  static constexpr std::string_view family = "mma_gemm";
  kernels::GemmOp op;
  kernels::GemmShape shape;
};

struct TmaGemmTask {
  using Plan = kernels::TmaGemmPlan;
  static constexpr std::string_view family = "tma_gemm";
  kernels::GemmOp op;
  kernels::GemmShape shape;
};

// By cuBLASLt, each matrix by itself.
struct LibraryPlan {
  int algorithm = 0;              // of those that the library proposes,
  kernels::GemmShape chosen_for;  // for this
};
struct LibraryTask {
  using Plan = LibraryPlan;
  static constexpr std::string_view family = "cublaslt";
  kernels::GemmOp op;
  kernels::GemmShape shape;
};

struct AttentionTask {
  using Plan = kernels::AttentionPlan;
  static constexpr std::string_view family = "attention";
  kernels::AttentionOp op;
  int kv_heads = 1;
  int tokens = 0;  // cached ones that costs are estimated for
};

// Two kernels: what comes before attention and the append, then attention.
struct PrefillAttentionTask {
  using Plan = kernels::PrefillAttentionPlan;
  static constexpr std::string_view family = "prefill_attention";
  static constexpr kernels::RopeAppendPlan append_plan = {};
  kernels::PrefillAttentionOp op;
  kernels::RopeAppendOp append;
  int kv_heads = 1;
  int new_tokens = 1;
  int tokens = 0;  // cached ones that costs are estimated for
  int window = 0;
};

// The fields of a TmaGemmPlan, then those of a PrefillAttentionPlan.
struct QkvAttentionPlan {
  int tile_m = 128, tile_n = 256, stages = 4, cluster_m = 2, cluster_n = 1, group_m = 8;
  kernels::Tile tile = kernels::Tile::wgmma;
  int query_tile = 64, key_tile = 64, warps = 4, key_stages = 2;
  bool keep_queries = false;
  int resident = 2, splits = 1;

  constexpr kernels::TmaGemmPlan product() const {
    return {.tile_m = tile_m,
            .tile_n = tile_n,
            .stages = stages,
            .cluster_m = cluster_m,
            .cluster_n = cluster_n,
            .group_m = group_m};
  }
  constexpr kernels::PrefillAttentionPlan attention() const {
    return {.tile = tile,
            .query_tile = query_tile,
            .key_tile = key_tile,
            .warps = warps,
            .stages = key_stages,
            .keep_queries = keep_queries,
            .resident = resident,
            .splits = splits};
  }
};

// Two kernels: the products of q, k and v with all that comes before attention, the append
// included; then attention.
struct QkvAttentionTask {
  using Plan = QkvAttentionPlan;
  static constexpr std::string_view family = "qkv_attention";
  kernels::QkvRopeOp op;
  kernels::GemmShape shape;
  PrefillAttentionTask attention;  // its append is the op's
};

struct NormTask {
  using Plan = kernels::NormPlan;
  static constexpr std::string_view family = "norm";
  kernels::NormOp op;
  int rows = 1, columns = 1;
};

struct SoftmaxTask {
  using Plan = kernels::SoftmaxPlan;
  static constexpr std::string_view family = "softmax";
  kernels::SoftmaxOp op;
  int rows = 1, columns = 1;
};

struct ReductionTask {
  using Plan = kernels::ReductionPlan;
  static constexpr std::string_view family = "reduction";
  kernels::ReductionOp op;
  int rows = 1, columns = 1;
};

struct ElementwiseTask {
  using Plan = kernels::ElementwisePlan;
  static constexpr std::string_view family = "elementwise";
  kernels::ElementwiseOp op;
  int rows = 1, columns = 1;
  int full_inputs = 1;  // inputs that do not broadcast
  int ops = 1;          // of the chain
};

struct EmbeddingTask {
  using Plan = kernels::EmbeddingPlan;
  static constexpr std::string_view family = "embedding";
  kernels::EmbeddingOp op;
  int count = 1, width = 1;
};

struct SamplingTask {
  using Plan = kernels::SamplingPlan;
  static constexpr std::string_view family = "sampling";
  kernels::SamplingOp op;
  int vocab = 1;
};

using Task = std::variant<GemvTask, GemmTask, MmaGemmTask, TmaGemmTask, LibraryTask, AttentionTask,
                          PrefillAttentionTask, QkvAttentionTask, NormTask, SoftmaxTask,
                          ReductionTask, ElementwiseTask, EmbeddingTask, SamplingTask>;

template <class T>
struct Implementation {
  T task;
  typename T::Plan plan;
};

template <class>
struct ChoiceOf;
template <class... Tasks>
struct ChoiceOf<std::variant<Tasks...>> {
  using type = std::variant<Implementation<Tasks>...>;
};
using Choice = ChoiceOf<Task>::type;

}  // namespace ac
