// The list of kernel families, and what the compiler asks of whichever it is.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "analyze/region.h"
#include "families/attention.h"
#include "families/cublaslt.h"
#include "families/elementwise.h"
#include "families/embedding.h"
#include "families/gemm.h"
#include "families/gemv.h"
#include "families/layers.h"
#include "families/mma_gemm.h"
#include "families/mma_gemv.h"
#include "families/norm.h"
#include "families/prefill_attention.h"
#include "families/qkv_attention.h"
#include "families/reduction.h"
#include "families/sampling.h"
#include "families/softmax.h"
#include "families/tma_gemm.h"

namespace ac {

template <RegionFamily... Tasks>
struct Families {
  template <template <class> class Of>
  using Any = std::variant<Of<Tasks>..., Of<SamplingTask>>;

  // Calls visit.operator()<Task>() for each.
  template <class Visit>
  static void each(const Visit& visit) {
    (visit.template operator()<Tasks>(), ...);
  }
};

// Those that compute regions, in the order in which they are asked. Sampling comes after regions.
using RegionFamilies =
    Families<GemvTask, MmaGemvTask, GemmTask, MmaGemmTask, TmaGemmTask, LibraryTask, AttentionTask,
             PrefillAttentionTask, QkvAttentionTask, LayersTask, NormTask, SoftmaxTask,
             ReductionTask, ElementwiseTask, EmbeddingTask>;
static_assert(KernelFamily<SamplingTask>);

using Choice = RegionFamilies::Any<Implementation>;
using AnyMatched = RegionFamilies::Any<Matched>;

// What a kernel is wanted for.
struct Wanted {
  Region region;
  bool argmax = false;  // also the index of the largest result, for greedy sampling
};

struct FamilyMatch {
  std::string_view family;
  std::variant<AnyMatched, std::string> match;  // or why not
};

// Names of all families that compute regions.
std::vector<std::string_view> family_names();
// An error (wrong_usage) if one of these is the name of no family.
void check_families(const std::vector<std::string>& families);
// Why the host plans this family for no model that does not name it, or null.
const char* why_left_out_on_host(std::string_view family);
// Whether it computes a few tokens in about the time of one.
bool computes_few_as_one(std::string_view family);

// Of all families that compute regions. Sizes are taken at one T and P.
std::vector<FamilyMatch> match_families(const StepGraph& step, const Wanted& wanted,
                                        const Bindings& at);
// Of the choice's family alone; nothing if it does not match.
std::optional<AnyMatched> match_again(const Choice& choice, const StepGraph& step,
                                      const Wanted& wanted, const Bindings& at);
// The choice's plan for what its family has matched elsewhere.
Choice with_plan_of(const Choice& choice, const AnyMatched& matched);

std::string_view family_of(const Choice& choice);
std::string id_of(const Choice& choice);    // "gemv/R256x1x8/512": stable
std::string kind_of(const Choice& choice);  // "gemv registers"
// The op and the plan as C++ initialisers, for generated source: "{.threads = 256, ...}".
std::string op_text(const Choice& choice);
std::string plan_text(const Choice& choice);
// The plan's fields in that order, as far as that text says them.
std::vector<PlanField> plan_fields(const Choice& choice);
// The fields that ids of its family leave out as long as they have these values, by name.
std::vector<PlanField> unsaid_fields(const Choice& choice);

// What computes one token with the bits that the choice gives to each of several. Nothing where its
// family does not promise that, or where the choice is for one token.
std::optional<Choice> alone_of(const Choice& choice);
// What decides the bits of a token, with what is computed: two choices of one text give equal bits,
// be they for one token or for several. "" where the family does not promise that.
std::string order_of(const Choice& choice);

// The first reason why the kernel cannot be, on this device, or null.
const char* why_illegal(const Choice& choice, const DeviceInfo& device);
Footprint footprint(const Choice& choice, const DeviceInfo& device);
Cost predict(const Choice& choice, const DeviceInfo& device);
Extent extent_of(const Choice& choice);

// `matched`: in the very region that the launches are to compute; the choice may have been made for
// an equal one.
Generated generate(const StepGraph& step, const Choice& choice, const AnyMatched& matched,
                   const Setting& setting);
// The same, with the operands that the choice's family matches there. Without a region, the choice
// is how the token is chosen from the step's logits.
Generated generate_for(const StepGraph& step, const std::optional<Wanted>& wanted,
                       const Choice& choice, const Bindings& at, const Setting& setting);

}  // namespace ac
