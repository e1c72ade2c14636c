#include "tests/mutants/trials.h"

#include <algorithm>
#include <iterator>

#include "device/device_info.h"
#include "ir/builder.h"
#include "tests/device/whole_step.h"
#include "tests/faults/cases.h"

namespace ac::mutants {
namespace {

constexpr std::int64_t kTokens = 70;

StepGraph scaled_embedding() {
  StepGraph step;
  Builder b(step.graph);
  const NodeId ids = b.input("ids", {DType::i64, {Dim(Symbol::T)}});
  const NodeId rows = b.embedding(b.weight("table", {DType::bf16, {77, 136}}), ids);
  step.graph.outputs = {{"y", b.binary(Op::mul, rows, b.scalar(DType::bf16, 1.5))}};
  return step;
}

// Of the least of some, or of the sum of what is 1 where there is nothing.
StepGraph reduced(bool maximum) {
  StepGraph step;
  Builder b(step.graph);
  const NodeId x = b.input("x", {DType::f16, {Dim(Symbol::T), 331}});
  step.graph.outputs = {{"y", maximum ? b.reduce(Op::amax, b.unary(Op::neg, x), {1}, true)
                                      : b.reduce(Op::sum, b.unary(Op::cos, x), {1}, true)}};
  return step;
}

// Rows whose length no vector divides.
StepGraph odd_softmax(DType dtype) {
  StepGraph step;
  Builder b(step.graph);
  step.graph.outputs = {{"y", b.softmax(b.input("x", {dtype, {Dim(Symbol::T), 333}}), 1)}};
  return step;
}
StepGraph odd_norm(DType dtype, bool layer) {
  StepGraph step;
  Builder b(step.graph);
  const NodeId x = b.input("x", {dtype, {Dim(Symbol::T), 333}});
  const NodeId w = b.weight("w", {dtype, {333}});
  step.graph.outputs = {{"y", layer ? b.layer_norm({x, w, b.weight("b", {dtype, {333}})}, 1e-5)
                                    : b.rms_norm(x, w, 1e-6, 1.0)}};
  return step;
}
StepGraph chain(DType dtype) {
  StepGraph step;
  Builder b(step.graph);
  const NodeId x = b.input("x", {dtype, {Dim(Symbol::T), 331}});
  step.graph.outputs = {{"y", b.binary(Op::mul, b.unary(Op::silu, x), b.scalar(dtype, 0.75))}};
  return step;
}

StepGraph scaled_turns() {
  constexpr std::int64_t kHeads = 4, kKv = 2, kKey = 64;
  StepGraph step;
  Builder b(step.graph);
  const Dim tokens(Symbol::T);
  const NodeId q = b.input("q", {DType::bf16, {tokens, kHeads, kKey}});
  const NodeId k = b.input("k", {DType::bf16, {tokens, kKv, kKey}});
  const NodeId v = b.input("v", {DType::bf16, {tokens, kKv, kKey}});
  const NodeId turns = b.constant(DType::f32, {4}, {1, 0.5, 0.25, 0.125});
  const NodeId positions = b.positions(tokens);
  const auto turned = [&](NodeId x) { return b.rope(x, positions, turns, 1.25, false); };
  step.states.push_back(kv_state(DType::bf16, kKv, kKey, kKey, 0, "layer"));
  const NodeId turned_q = turned(q), turned_k = turned(k);
  step.graph.outputs = {{"out", b.append_attend(turned_q, turned_k, v, 0, 0.125, 0, 0)}};
  return step;
}

template <class Task>
test::FamilyTrial extra(const char* name, const StepGraph& step,
                        const typename Task::Plan& plan = {}) {
  test::Admission all = test::admission_of_whole_step<Task>(name, step, false, plan, kTokens);
  return {std::string(Task::family), name, std::move(all.quick), std::move(all.confirmation)};
}

// By the header that the case is for.
std::string family_of_case(const Request& request) {
  return request.sources.at(0).text.find("attention.cuh") != std::string::npos ? "attention"
         : request.sources.at(0).text.find("advance.cuh") != std::string::npos ? "advance"
                                                                               : "gemv";
}

}  // namespace

std::vector<test::FamilyTrial> all_trials() {
  using test::Breadth;
  test::Chooser chooser(device_info("sm_90"), Breadth::kinds);
  for (const test::FamilyModel& model : test::family_models(kTokens)) chooser.add(model);
  std::vector<test::FamilyTrial> trials = chooser.trials();
  std::ranges::move(trials_without_plans(Breadth::kinds), std::back_inserter(trials));
  for (const std::string& name : kernels::own_case_names()) {
    test::Admission all = kernels::admission_of_own_case(name);
    trials.push_back({family_of_case(all.quick), "case " + name, std::move(all.quick),
                      std::move(all.confirmation)});
  }
  const auto first_special = std::ssize(trials);
  trials.push_back(extra<EmbeddingTask>("scaled embedding", scaled_embedding()));
  trials.push_back(extra<ReductionTask>("maximum of any sign", reduced(true)));
  trials.push_back(extra<ReductionTask>("sum of cosines", reduced(false)));
  trials.push_back(extra<PrefillAttentionTask>("scaled turns", scaled_turns()));
  // Plans and sizes that compilations have, and the models above do not.
  std::ranges::move(trials_of_products(), std::back_inserter(trials));
  for (const kernels::SoftmaxPasses passes :
       {kernels::SoftmaxPasses::online, kernels::SoftmaxPasses::two})
    for (const kernels::Keep keep : {kernels::Keep::reread, kernels::Keep::registers})
      trials.push_back(extra<SoftmaxTask>("odd softmax", odd_softmax(DType::bf16),
                                          {.passes = passes, .keep = keep, .vector = 4}));
  for (const kernels::Variance variance : {kernels::Variance::two_pass, kernels::Variance::welford})
    trials.push_back(extra<NormTask>("odd layer norm", odd_norm(DType::f16, true),
                                     {.variance = variance, .vector = 4}));
  trials.push_back(extra<NormTask>("odd rms norm", odd_norm(DType::bf16, false), {.vector = 4}));
  trials.push_back(extra<ElementwiseTask>("elements in flight", chain(DType::bf16), {.unroll = 2}));
  std::ranges::move(trials_of_attention(), std::back_inserter(trials));
  std::ranges::move(trials_of_rows(), std::back_inserter(trials));
  std::for_each(trials.begin() + first_special, trials.end(),
                [](test::FamilyTrial& trial) { trial.is_special = true; });
  return trials;
}

}  // namespace ac::mutants
