// Which values of a region a kernel family takes as what: found while matching, read by the
// generator. A value may be a view, unless its place says otherwise; -1 stands for none.
#pragma once

#include <array>
#include <variant>
#include <vector>

#include "ir/graph.h"

namespace ac {

// Of gemv, gemm, mma_gemm and tma_gemm. Of a pair, gate comes before up, and only y[0] is written.
struct ProductOperands {
  NodeId x = -1;     // of the norm, if there is one
  NodeId norm = -1;  // the rms_norm node
  std::array<NodeId, 3> weight = {-1, -1, -1}, bias = {-1, -1, -1}, y = {-1, -1, -1};
  NodeId residual = -1;
  double scale = 1, softcap = 0;
};

// Of attention and prefill_attention.
struct AttentionOperands {
  NodeId q = -1, k = -1, v = -1;
  NodeId q_norm = -1, k_norm = -1;  // rms_norm nodes
  NodeId rope = -1;                 // of the query: the key's is equal
  NodeId attend = -1;               // the append_attend node
};

// Of qkv_attention. The products' outputs are nowhere, nor q, k and v.
struct QkvAttentionOperands {
  ProductOperands product;
  AttentionOperands attention;
};

struct NormOperands {
  NodeId x = -1, residual = -1;
  NodeId sum = -1;   // the add node, if there is a residual
  NodeId norm = -1;  // the norm node
};

struct SoftmaxOperands {
  NodeId x = -1, y = -1;
  double scale = 1;
};

struct ReductionOperands {
  NodeId x = -1, y = -1;
};

struct ElementwiseOperands {
  std::vector<NodeId> inputs;  // in the order of the op's types
  NodeId y = -1;
};

struct EmbeddingOperands {
  NodeId gather = -1;  // the embedding node
  NodeId y = -1;
  double scale = 1;
};

using Operands =
    std::variant<ProductOperands, AttentionOperands, QkvAttentionOperands, NormOperands,
                 SoftmaxOperands, ReductionOperands, ElementwiseOperands, EmbeddingOperands>;

}  // namespace ac
