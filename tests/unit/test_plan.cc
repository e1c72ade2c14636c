// The planner over whole models: what it offers, and that all of it is legal.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "capture/config.h"
#include "capture/native.h"
#include "expect_error.h"
#include "ir/incrementalise.h"
#include "ir/normalise.h"
#include "plan/planner.h"
#include "regions_models.h"

using namespace ac;
using namespace ac::test;

namespace {

const Space& space_of(const Plans& plans, int index) {
  return plans.spaces[static_cast<std::size_t>(index)];
}

// What every space must be, whatever the model and device.
void check(const Plans& plans, const Regions& regions) {
  REQUIRE(plans.space_of_region.size() == regions.regions.size());
  for (const Space& space : plans.spaces) {
    CAPTURE(space.signature);
    CHECK(space.candidates.size() <= plans.options.max_candidates);
    CHECK(space.candidates.size() == std::min(space.legal, plans.options.max_candidates));
    CHECK(space.no_family().empty() == !space.candidates.empty());
    std::size_t illegal = 0;
    for (const auto& [reason, count] : space.illegal) illegal += count;
    CHECK(space.enumerated == space.legal + illegal);
    std::set<std::string> ids;
    double last = 0;
    for (const Candidate& candidate : space.candidates) {
      CHECK(ids.insert(candidate.id).second);
      CHECK(why_illegal(candidate.choice, plans.device) == nullptr);
      const Footprint need = footprint(candidate.choice, plans.device);
      CHECK(need.threads <= 1024);
      CHECK(need.shared_bytes <= plans.device.max_shared_bytes);
      CHECK(need.threads * need.blocks_per_sm * need.registers <= plans.device.registers);
      CHECK(need.grid >= 1);
      CHECK(candidate.cost.microseconds > 0);
      CHECK(candidate.cost.microseconds >= last);
      CHECK(candidate.cost.occupancy > 0);
      CHECK(candidate.cost.occupancy <= 1);
      last = candidate.cost.microseconds;
    }
  }
  for (const Neighbourhood& around : plans.neighbourhoods)
    for (const FusionOption& option : around.options) {
      CHECK((option.parts.empty() && option.text != "apart") == option.refused.has_value());
      for (const Part& part : option.parts) CHECK(part.space >= 0);
    }
}

Plans planned(const Regions& regions, const std::string& target = "sm_90", std::size_t limit = 64) {
  Plans plans = plan(regions, device_info(target), {.max_candidates = limit});
  check(plans, regions);
  return plans;
}

// The candidates of a fusion option with this text, best first; no text: an option that is not
// there, or that some part of has no candidates.
std::vector<std::string> families(const Plans& plans, const std::string& text) {
  for (const Neighbourhood& around : plans.neighbourhoods)
    for (const FusionOption& option : around.options) {
      if (option.text != text || !option.microseconds) continue;
      std::vector<std::string> found;
      for (const Part& part : option.parts)
        found.emplace_back(family_of(space_of(plans, part.space).candidates[0].choice));
      return found;
    }
  return {};
}

template <class T>
const T& task_of(const Plans& plans, const std::string& text) {
  for (const Neighbourhood& around : plans.neighbourhoods)
    for (const FusionOption& option : around.options)
      if (option.text == text && option.parts.size() == 1) {
        const Space& space = space_of(plans, option.parts[0].space);
        CAPTURE(space.no_family());
        REQUIRE(!space.candidates.empty());
        return std::get<Implementation<T>>(space.candidates[0].choice).task;
      }
  FAIL("no option " << text);
  std::abort();
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("decode of published models: every region has candidates or says why not") {
  for (const char* model : {"llama-3.2-1b", "qwen3-1.7b", "qwen3-4b"}) {
    CAPTURE(model);
    const Regions regions = analyse(published(model, true));
    const Plans plans = planned(regions);
    // Alone, RoPE and what it is fused with have no family; nor have activations behind a product.
    for (std::size_t i = 0; i < regions.regions.size(); ++i) {
      const Space& space = space_of(plans, plans.space_of_region[i]);
      if (!space.candidates.empty()) continue;
      const std::vector<Op>& ops = regions.regions[i].ops;
      const bool expected = std::count(ops.begin(), ops.end(), Op::rope) +
                                std::count(ops.begin(), ops.end(), Op::silu) +
                                std::count(ops.begin(), ops.end(), Op::mul) >
                            0;
      CHECK_MESSAGE(expected, space.signature << ": " << space.no_family());
      CHECK(space.no_family().find("no family fits") == 0);
    }
  }
}

TEST_CASE("fusions of a Qwen3 decode step") {
  const Plans plans = planned(analyse(published("qwen3-1.7b", true)));
  CHECK(families(plans, "rms_norm+linear+linear+linear") == Names{"gemv"});
  CHECK(families(plans, "rms_norm | linear+linear+linear") == Names{"norm", "gemv"});
  CHECK(families(plans, "rms_norm | linear | linear | linear") ==
        Names{"norm", "gemv", "gemv", "gemv"});
  CHECK(families(plans, "rms_norm+rms_norm+rope+rope+append_attend") == Names{"attention"});
  CHECK(families(plans, "rms_norm | rms_norm | rope+rope+append_attend") ==
        Names{"norm", "norm", "attention"});
  CHECK(families(plans, "rms_norm+linear+linear+silu+mul") == Names{"gemv"});
  CHECK(families(plans, "rms_norm+linear+linear | silu+mul") == Names{"gemv", "elementwise"});
  CHECK(families(plans, "linear+add") == Names{"gemv"});
  CHECK(families(plans, "linear | add") == Names{"gemv", "elementwise"});
  CHECK(families(plans, "rms_norm+linear+argmax") == Names{"gemv"});
  CHECK(families(plans, "rms_norm+linear | argmax") == Names{"gemv", "sampling"});
  CHECK(families(plans, "add+rms_norm") == Names{"norm"});

  const auto& qkv = task_of<GemvTask>(plans, "rms_norm+linear+linear+linear");
  CHECK(qkv.op.norm);
  CHECK(qkv.op.matrices == 3);
  CHECK(qkv.n == 4096);
  CHECK(qkv.k == 2048);
  const auto& pair = task_of<GemvTask>(plans, "rms_norm+linear+linear+silu+mul");
  CHECK(pair.op.pair == kernels::Pair::swiglu);
  CHECK(pair.n == 6144);
  const auto& o = task_of<GemvTask>(plans, "linear+add");
  CHECK(o.op.residual);
  CHECK(!o.op.norm);
  const auto& head = task_of<GemvTask>(plans, "rms_norm+linear+argmax");
  CHECK(head.op.argmax);
  CHECK(head.n == 151936);
  const auto& attention =
      task_of<AttentionTask>(plans, "rms_norm+rms_norm+rope+rope+append_attend");
  CHECK(attention.op.qk_norm);
  CHECK(attention.op.rotary == 128);
  CHECK(attention.op.group == 2);
  CHECK(attention.kv_heads == 8);
  CHECK(attention.tokens == 1024);
  // Fused is predicted to be faster than apart.
  for (const Neighbourhood& around : plans.neighbourhoods)
    if (around.options.front().microseconds && around.options.back().microseconds)
      CHECK(*around.options.front().microseconds < *around.options.back().microseconds);
}

TEST_CASE("the same plans every time, however nodes are numbered") {
  const StepGraph step = published("qwen3-1.7b", true);
  const Regions regions = analyse(step), other = analyse(shuffled(step, 3));
  const DeviceInfo& device = device_info("sm_90");
  CHECK(print(plan(regions, device), regions, 64) == print(plan(regions, device), regions, 64));
  const Plans a = plan(regions, device), b = plan(other, device);
  REQUIRE(a.spaces.size() == b.spaces.size());
  for (std::size_t i = 0; i < a.spaces.size(); ++i) {
    CHECK(a.spaces[i].signature == b.spaces[i].signature);
    REQUIRE(a.spaces[i].candidates.size() == b.spaces[i].candidates.size());
    for (std::size_t c = 0; c < a.spaces[i].candidates.size(); ++c)
      CHECK(a.spaces[i].candidates[c].id == b.spaces[i].candidates[c].id);
  }
}

TEST_CASE("the bound keeps the best, and one of each kind") {
  const Regions regions = analyse(one_layer_qwen3());
  const Plans wide = planned(regions, "sm_90", 100000), narrow = planned(regions, "sm_90", 16);
  for (std::size_t i = 0; i < wide.spaces.size(); ++i) {
    const Space &all = wide.spaces[i], &few = narrow.spaces[i];
    if (all.candidates.empty()) continue;
    CHECK(all.candidates[0].id == few.candidates[0].id);
    std::set<std::string> kinds, kept;
    for (const Candidate& candidate : all.candidates) kinds.insert(candidate.kind);
    for (const Candidate& candidate : few.candidates) kept.insert(candidate.kind);
    CHECK(kinds == kept);
  }
  const Plans one = planned(regions, "sm_90", 1);
  for (std::size_t i = 0; i < one.spaces.size(); ++i)
    if (!one.spaces[i].candidates.empty())
      CHECK(one.spaces[i].candidates[0].id == wide.spaces[i].candidates[0].id);
  const std::string none = error_of(
      Fault::wrong_usage, [&] { plan(regions, device_info("sm_90"), {.max_candidates = 0}); });
  CHECK(none.find("at least one candidate") != std::string::npos);
}

TEST_CASE("what a device does not have is illegal there") {
  const Regions regions = analyse(published("llama-3.2-1b", true));
  const auto count = [](const Plans& plans, const std::string& kind) {
    std::size_t found = 0;
    for (const Space& space : plans.spaces)
      for (const Candidate& candidate : space.candidates) found += candidate.kind == kind;
    return found;
  };
  const Plans a100 = planned(regions, "sm_80");
  CHECK(count(a100, "gemv bulk_copy") == 0);
  CHECK(count(a100, "gemv async_copy") > 0);
  bool counted = false;
  for (const Space& space : a100.spaces)
    counted = counted || space.illegal.count("gemv: bulk copies need sm_90") > 0;
  CHECK(counted);
  for (const char* target : {"sm_89", "sm_90", "sm_100", "host"}) planned(regions, target);
  CHECK(count(planned(regions, "sm_90"), "gemv bulk_copy") > 0);
  const std::string unknown = error_of(Fault::wrong_usage, [] { device_info("sm_12"); });
  CHECK(unknown.find("sm_80, sm_89, sm_90, sm_100, host") != std::string::npos);
}

TEST_CASE("predictions by another GPU's constants are called so") {
  const Regions regions = analyse(published("llama-3.2-1b", true));
  for (const char* target : {"sm_80", "sm_90", "host"}) {
    const Plans plans = planned(regions, target);
    const bool is_guess = plans.device.is_uncalibrated();
    CHECK(is_guess == (std::string(target) == "sm_80"));
    CHECK((print(plans, regions, 1).find("\nuncalibrated: ") != std::string::npos) == is_guess);
    CHECK(to_json(plans, regions).contains("uncalibrated") == is_guess);
  }
  // A GPU's own constants order its candidates.
  DeviceInfo slow = device_info("sm_80");
  Calibration own;
  own.gemv.next_group = own.gemv.next_shared_group = 1;
  slow.calibration = &own;
  const Plans plans = plan(regions, slow);
  CHECK(plans.spaces.back().candidates.at(0).cost.microseconds > 1e6);
}

TEST_CASE("odd sizes still get legal kernels") {
  const Json config{{"architectures", {"Qwen3ForCausalLM"}},
                    {"model_type", "qwen3"},
                    {"hidden_size", 100},
                    {"intermediate_size", 77},
                    {"num_hidden_layers", 1},
                    {"num_attention_heads", 9},
                    {"num_key_value_heads", 3},
                    {"head_dim", 24},
                    {"vocab_size", 101},
                    {"rope_theta", 1000000},
                    {"torch_dtype", "float32"}};
  const Regions regions = analyse(decode_instance(
      incrementalise(normalise(build_decoder(parse_config(config, "config.json"), "odd")))));
  for (const char* target : {"sm_80", "sm_90", "host"}) {
    const Plans plans = planned(regions, target);
    CHECK(families(plans, "rms_norm+linear+linear+linear") == Names{"gemv"});
    CHECK(families(plans, "rms_norm+linear+linear+silu+mul") == Names{"gemv"});
    CHECK(families(plans, "rms_norm+rms_norm+rope+rope+append_attend") == Names{"attention"});
    CHECK(families(plans, "rms_norm+linear+argmax") == Names{"gemv"});
    // Rows of 77 floats are not whole vectors, so the down projection takes what needs none.
    std::set<std::string> kinds;
    for (const Space& space : plans.spaces)
      for (const Candidate& candidate : space.candidates) {
        const auto* gemv = std::get_if<Implementation<GemvTask>>(&candidate.choice);
        if (gemv && gemv->task.k == 77) kinds.insert(candidate.kind);
        if (std::holds_alternative<Implementation<AttentionTask>>(candidate.choice))
          CHECK(candidate.kind == "attention scalar");
      }
    CHECK(kinds == std::set<std::string>{"gemv none"});
  }
}

TEST_CASE("windows, softcaps, GeGLU and scaled embeddings") {
  const Regions regions = analyse(gemma_like(2, 1));
  const Plans plans = planned(regions);
  std::set<int> tokens;
  bool embedding = false, head = false;
  for (const Space& space : plans.spaces)
    for (const Candidate& candidate : space.candidates) {
      if (const auto* made = std::get_if<Implementation<AttentionTask>>(&candidate.choice))
        tokens.insert(made->task.tokens);
      if (const auto* made = std::get_if<Implementation<GemvTask>>(&candidate.choice))
        head = head || (made->task.n == 50 && made->task.op.argmax);
    }
  CHECK(tokens == std::set<int>{15, 1024});
  for (std::size_t i = 0; i < regions.regions.size(); ++i)
    if (regions.regions[i].category == Category::embedding)
      embedding = embedding || !space_of(plans, plans.space_of_region[i]).candidates.empty();
  CHECK(embedding);
  CHECK(head);
  CHECK(families(plans, "rms_norm+linear+div+tanh+mul+argmax") == Names{"gemv"});
  CHECK(task_of<MmaGemvTask>(plans, "rms_norm+linear+linear+gelu+mul").op.pair ==
        kernels::Pair::geglu_tanh);
}

TEST_CASE("what no family can express is refused with the reason") {
  const Regions regions = analyse(gpt2_like(1, 1));
  const Plans plans = planned(regions);
  const auto refusal = [&](const std::string& signature_part) {
    for (const Space& space : plans.spaces)
      if (space.signature.find(signature_part) != std::string::npos && space.candidates.empty())
        return space.no_family();
    return std::string();
  };
  CHECK(refusal("gelu(v0)").find("gemv: no place in the epilogue for gelu") != std::string::npos);
  CHECK(families(plans, "layer_norm | linear | gelu") == Names{"norm", "mma_gemv", "elementwise"});
  CHECK(families(plans, "linear+add") == Names{"mma_gemv"});
  // More than one token is no affair of the decode kernels.
  const Regions prefill = analyse(published("llama-3.2-1b", false));
  const Plans many = plan(prefill, device_info("sm_90"), {.at = {.S = -1, .T = 64, .P = 0}});
  check(many, prefill);
  int products = 0;
  for (std::size_t i = 0; i < prefill.regions.size(); ++i)
    for (const Candidate& candidate : space_of(many, many.space_of_region[i]).candidates)
      if (const auto* made = std::get_if<Implementation<GemvTask>>(&candidate.choice)) {
        // The last layer's end and the head see the last token only.
        CHECK(product(prefill.regions[i].outputs[0].type.shape) == Dim(made->task.n));
        ++products;
      }
  CHECK(products > 0);
}

namespace {

constexpr const char* kFewTokens = "qwen3-1.7b";

Plans planned_at(const Regions& regions, std::int64_t tokens, std::set<std::string> orders = {}) {
  Plans plans = plan(regions, device_info("sm_90"),
                     {.at = {.S = -1, .T = tokens, .P = 64}, .orders = std::move(orders)});
  check(plans, regions);
  return plans;
}

// The best candidates of gemv, of all spaces with products.
std::vector<Implementation<GemvTask>> best_of_gemv(const Plans& plans) {
  std::vector<Implementation<GemvTask>> best;
  for (const Space& space : plans.spaces) {
    const auto found = std::ranges::find_if(space.candidates, [](const Candidate& candidate) {
      return std::holds_alternative<Implementation<GemvTask>>(candidate.choice);
    });
    if (found != space.candidates.end())
      best.push_back(std::get<Implementation<GemvTask>>(found->choice));
  }
  return best;
}

}  // namespace

TEST_CASE("a few tokens: a plan computes them at once, one token has plans of its own") {
  const Regions any = analyse(published(kFewTokens, false));
  for (const auto& made : best_of_gemv(planned_at(analyse(published(kFewTokens, true)), 1)))
    CHECK(made.plan.tokens == 1);
  for (const std::int64_t tokens : {2, 4, 5, 8}) {
    bool any_few = false;
    for (const auto& made : best_of_gemv(planned_at(any, tokens))) {
      // The last row alone goes through the head.
      CHECK((made.plan.tokens == 1) == made.task.is_one);
      if (made.task.is_one) continue;
      any_few = true;
      CHECK(made.task.tokens == tokens);
      CHECK((made.plan.tokens == tokens || made.plan.tokens == (tokens + 1) / 2));
      CHECK(made.task.bytes() < 1.1 * kernels::gemv_bytes(made.task.op, made.task.n, made.task.k));
    }
    CHECK(any_few);
  }
  // More would read weights time and again.
  for (const auto& made : best_of_gemv(planned_at(any, 9))) CHECK(made.task.is_one);
}

TEST_CASE("an outline of rows says how a row gets to its threads") {
  CHECK(outline_of("norm/block128/registers2/v8/full256") == "norm/block128/registers2/v8");
  CHECK(outline_of("embedding/64/v8/128") == "embedding/64/v8");
  CHECK(outline_of("gemv/R256x1x8/512/evict") == "gemv/R256x1x8");
  CHECK(outline_of("gemm/8") == "gemm/8");
}

TEST_CASE("one token: what computes a few as one follows where sequences share products") {
  const Regions regions = analyse(published(kFewTokens, true));
  const Plans alone = plan(regions, device_info("sm_90"), {.max_candidates = 24});
  const Plans shared = plan(regions, device_info("sm_90"), {.max_candidates = 24, .shared = true});
  verify(shared, "shared");
  REQUIRE(alone.spaces.size() == shared.spaces.size());
  int with_further = 0;
  for (std::size_t i = 0; i < alone.spaces.size(); ++i) {
    const Space &one = alone.spaces[i], &of = shared.spaces[i];
    REQUIRE(of.candidates.size() >= one.candidates.size());
    with_further += of.candidates.size() > one.candidates.size();
    const std::vector<std::size_t> before = diverse_order(one), after = diverse_order(of);
    CHECK(std::equal(before.begin(), before.end(), after.begin()));
    for (std::size_t c = 0; c < of.candidates.size(); ++c) {
      const Candidate& candidate = of.candidates[c];
      CHECK(candidate.for_several == (c >= one.candidates.size()));
      if (candidate.for_several)
        CHECK(computes_few_as_one(family_of(candidate.choice)));
      else
        CHECK(candidate.id == one.candidates[c].id);
    }
  }
  CHECK(with_further > 3);
}

TEST_CASE("a few tokens: candidates in the order of sums that one token has") {
  const Plans one = planned_at(analyse(published(kFewTokens, true)), 1);
  std::set<std::string> orders;
  std::size_t products = 0;
  for (const auto& made : best_of_gemv(one)) orders.insert(order_of(made)), ++products;
  CHECK(!orders.contains(""));
  const Regions any = analyse(published(kFewTokens, false));
  const Plans few = planned_at(any, 4, orders);
  std::size_t kept = 0;
  for (const Space& space : few.spaces) {
    CAPTURE(space.signature);
    if (space.signature.find("linear") == std::string::npos) continue;
    for (const Candidate& candidate : space.candidates)
      CHECK(orders.contains(order_of(candidate.choice)));
    if (!space.candidates.empty()) ++kept;
  }
  CHECK(kept > 3);
  CHECK(products > 3);
  // Of an order that nothing has, there is none.
  for (const Space& space : planned_at(any, 4, {"another"}).spaces)
    if (space.signature.find("linear") != std::string::npos) CHECK(space.candidates.empty());
}

TEST_CASE("a few tokens: what computes one of them by itself") {
  for (const auto& made : best_of_gemv(planned_at(analyse(published(kFewTokens, false)), 4))) {
    const auto alone = alone_of(made);
    CHECK(alone.has_value() == !made.task.is_one);
    if (!alone) continue;
    CHECK(std::get<Implementation<GemvTask>>(*alone).plan.tokens == 1);
    CHECK(order_of(*alone) == order_of(made));
    CHECK(op_text(*alone) == op_text(made));
    CHECK(plan_text(*alone).find("tokens") == std::string::npos);
    CHECK(plan_text(made).find(".tokens = ") != std::string::npos);
    CHECK(id_of(made).starts_with(id_of(*alone) + "/x"));
  }
}
