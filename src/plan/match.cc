#include "plan/match.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "plan/body.h"

namespace ac {

namespace {

template <class... Tasks>
std::vector<std::string_view> names_of(const std::variant<Tasks...>*) {
  std::vector<std::string_view> names{Tasks::family...};
  std::erase(names, SamplingTask::family);  // computes no region
  return names;
}

}  // namespace

std::vector<std::string_view> family_names() { return names_of(static_cast<Task*>(nullptr)); }

void check_families(const std::vector<std::string>& families) {
  const std::vector<std::string_view> known = family_names();
  for (const std::string& family : families)
    if (std::ranges::find(known, family) == known.end())
      wrong_usage("there is no kernel family {}: there are {}", quote(family),
                  fmt::join(known, ", "));
}

std::vector<FamilyMatch> match_families(const StepGraph& step, const Wanted& wanted,
                                        const Bindings& at) {
  const Body body(step, wanted.region, at);
  const auto plain = [&](Match (*match)(const Body&)) -> Match {
    if (wanted.argmax) return "it has no argmax";
    return match(body);
  };
  constexpr const char* kNoArgmax = "it has no argmax";
  std::array<Match, 4> gemm = {kNoArgmax, kNoArgmax, kNoArgmax, kNoArgmax};
  if (!wanted.argmax) gemm = match_gemm(body);
  return {{GemvTask::family, match_gemv(body, wanted.argmax)},
          {GemmTask::family, std::move(gemm[0])},
          {MmaGemmTask::family, std::move(gemm[1])},
          {TmaGemmTask::family, std::move(gemm[2])},
          {LibraryTask::family, std::move(gemm[3])},
          {AttentionTask::family, plain(match_attention)},
          {PrefillAttentionTask::family, plain(match_prefill_attention)},
          {QkvAttentionTask::family, plain(match_qkv_attention)},
          {NormTask::family, plain(match_norm)},
          {SoftmaxTask::family, plain(match_softmax)},
          {ReductionTask::family, plain(match_reduction)},
          {ElementwiseTask::family, plain(match_elementwise)},
          {EmbeddingTask::family, plain(match_embedding)}};
}

}  // namespace ac
