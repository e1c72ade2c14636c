#include "plan/match.h"

#include "plan/body.h"

namespace ac {

std::vector<FamilyMatch> match_families(const StepGraph& step, const Wanted& wanted,
                                        const Bindings& at) {
  const Body body(step, wanted.region, at);
  const auto plain = [&](Match (*match)(const Body&)) -> Match {
    if (wanted.argmax) return "it has no argmax";
    return match(body);
  };
  std::array<Match, 2> gemm = {"it has no argmax", "it has no argmax"};
  if (!wanted.argmax) gemm = match_gemm(body);
  return {{GemvTask::family, match_gemv(body, wanted.argmax)},
          {GemmTask::family, std::move(gemm[0])},
          {MmaGemmTask::family, std::move(gemm[1])},
          {AttentionTask::family, plain(match_attention)},
          {PrefillAttentionTask::family, plain(match_prefill_attention)},
          {NormTask::family, plain(match_norm)},
          {SoftmaxTask::family, plain(match_softmax)},
          {ReductionTask::family, plain(match_reduction)},
          {ElementwiseTask::family, plain(match_elementwise)},
          {EmbeddingTask::family, plain(match_embedding)}};
}

}  // namespace ac
