// Trials of kernels that go by rows, and of what chooses a token: plans and sizes that compilations
// have, and the family models have not.
#include <iterator>

#include "analyze/use_def.h"
#include "device/device_info.h"
#include "ir/builder.h"
#include "tests/device/whole_step.h"
#include "tests/mutants/trials.h"

namespace ac::mutants {
namespace {

constexpr std::int64_t kRows = 70;

class Trials {
 public:
  template <class Task>
  void add(const char* name, const StepGraph& step, const typename Task::Plan& plan,
           std::int64_t tokens = kRows) {
    add(Task::family, name, test::admission_of_whole_step<Task>(name, step, false, plan, tokens));
  }
  void add(std::string_view family, const std::string& name, test::Admission all) {
    all_.push_back({std::string(family), name, std::move(all.quick), std::move(all.confirmation)});
  }
  std::vector<test::FamilyTrial> take() { return std::move(all_); }

 private:
  std::vector<test::FamilyTrial> all_;
};

StepGraph softmax(DType dtype, std::int64_t columns, double scale) {
  StepGraph step;
  Builder b(step.graph);
  const NodeId x = b.input("x", {dtype, {Dim(Symbol::T), columns}});
  step.graph.outputs = {{"y", b.softmax(b.binary(Op::mul, x, b.scalar(dtype, scale)), 1)}};
  return step;
}

StepGraph norm_of_sum(DType dtype, std::int64_t columns, bool layer) {
  StepGraph step;
  Builder b(step.graph);
  const auto in = [&](const char* name) {
    return b.input(name, {dtype, {Dim(Symbol::T), columns}});
  };
  const auto weight = [&](const char* key) { return b.weight(key, {dtype, {columns}}); };
  const NodeId sum = b.binary(Op::add, in("x"), in("residual"));
  const NodeId y = layer ? b.layer_norm({sum, weight("w"), weight("b")}, 1e-5)
                         : b.rms_norm(sum, weight("w"), 1e-6, 0.0);
  step.graph.outputs = {{"sum", sum}, {"y", y}};
  return step;
}

// Of cosines, which are 1 where there is nothing.
StepGraph reduction(Op fold, Op map, std::int64_t columns) {
  StepGraph step;
  Builder b(step.graph);
  const NodeId x = b.input("x", {DType::bf16, {Dim(Symbol::T), columns}});
  step.graph.outputs = {{"y", b.reduce(fold, b.unary(map, x), {1}, true)}};
  return step;
}

// Gates that lie between what they gate.
StepGraph interleaved_gate(DType dtype) {
  StepGraph step;
  Builder b(step.graph);
  const NodeId both = b.input("x", {dtype, {Dim(Symbol::T), 78, 2}});
  const auto half = [&](std::int64_t at) {
    return b.reshape(b.slice(both, 2, at, at + 1), {Dim(Symbol::T), 78});
  };
  step.graph.outputs = {{"y", b.binary(Op::mul, b.unary(Op::silu, half(0)), half(1))}};
  return step;
}

StepGraph embedding(DType dtype, DType ids, std::int64_t width) {
  StepGraph step;
  Builder b(step.graph);
  const NodeId at = b.input("ids", {ids, {Dim(Symbol::T)}});
  step.graph.outputs = {{"y", b.embedding(b.weight("table", {dtype, {77, width}}), at)}};
  return step;
}

StepGraph logits(DType dtype, std::int64_t vocab) {
  StepGraph step;
  step.graph.outputs = {{"logits", Builder(step.graph).input("logits", {dtype, {1, vocab}})}};
  return step;
}

void add_sampling(Trials& trials, const char* name, DType dtype, int vocab,
                  const SamplingTask::Plan& plan) {
  const kernels::Type type = dtype == DType::f32 ? kernels::Type::f32 : kernels::Type::bf16;
  const Choice choice = Implementation<SamplingTask>{{{type}, vocab}, plan};
  const Candidate candidate{id_of(choice), kind_of(choice), choice, {}};
  trials.add(SamplingTask::family, name,
             *test::admission_of(logits(dtype, vocab), std::nullopt, candidate, 1));
}

// Loops so long that partial sums are added up, over ends of vectors and warps.
StepGraph long_loops() {
  constexpr std::int64_t kColumns = 333;
  StepGraph step;
  Builder b(step.graph);
  int inputs = 0;
  const auto in = [&](Shape shape) {
    return b.input("x" + std::to_string(inputs++), {DType::f32, std::move(shape)});
  };
  const auto row = [&] { return in({Dim(Symbol::T), kColumns}); };
  const auto weight = [&](Shape shape) {
    return b.weight("w" + std::to_string(inputs++), {DType::f32, std::move(shape)});
  };
  const auto heads = [&](std::int64_t count) { return in({Dim(Symbol::T), count, 42}); };
  const auto out = [&](const char* name, NodeId node) {
    step.graph.outputs.push_back({name, node});
  };
  out("sum", b.reduce(Op::sum, row(), {1}, true));
  out("mean", b.reduce(Op::mean, row(), {1}, true));
  out("amax", b.reduce(Op::amax, row(), {1}, true));
  out("softmax", b.softmax(row(), 1));
  out("rms_norm", b.rms_norm(row(), weight({kColumns}), 1e-5, 1));
  out("layer_norm", b.layer_norm({row(), weight({kColumns}), weight({kColumns})}, 1e-5));
  out("linear", b.linear(row(), weight({9, kColumns}), weight({9})));
  for (const std::int64_t window : {0, 24}) {
    step.states.push_back(kv_state(DType::f32, 2, 42, 42, window, ""));
    out(window > 0 ? "window" : "attend",
        b.append_attend(heads(4), heads(2), heads(2), window > 0 ? 1 : 0, 0.25, window, 0));
  }
  return step;
}

// Values wider than keys, whose features lie between others.
StepGraph wide_values() {
  const auto tokens = Dim(Symbol::T);
  StepGraph step;
  Builder b(step.graph);
  const auto heads = [&](const char* name, std::int64_t count, std::int64_t size) {
    const NodeId both = b.input(name, {DType::f32, {tokens, count, size, 2}});
    return b.reshape(b.slice(both, 3, 0, 1), {tokens, count, size});
  };
  const NodeId q = heads("q", 4, 24), k = heads("k", 2, 24), v = heads("v", 2, 42);
  step.states.push_back(kv_state(DType::f32, 2, 24, 42, 0, ""));
  step.graph.outputs = {{"wide values", b.append_attend(q, k, v, 0, 0.25, 0, 0)}};
  return step;
}

// So long that sums lose digits, unless they are taken by parts.
StepGraph long_sum() {
  StepGraph step;
  Builder b(step.graph);
  const NodeId x = b.input("x", {DType::f32, {Dim(Symbol::T), 60'001}});
  step.graph.outputs = {{"row", b.reduce(Op::sum, x, {1}, true)}};
  return step;
}

// By warps, as a GPU has them, and by threads, as the host has.
void add_fallbacks(Trials& trials, const StepGraph& step) {
  const UseDef uses(step);
  for (const Output& output : step.graph.outputs) {
    const Region region = std::get<Region>(make_region(uses, {output.node}));
    TrialSetting at = test::as_used_at(step, 40);
    trials.add("fallback", "long " + output.name,
               {trial_of_fallback(step, region, at), confirmation_of_fallback(step, region, at)});
    at.setting.multiprocessors = 1;
    trials.add("fallback", "long " + output.name + " by threads",
               {trial_of_fallback(step, region, at), confirmation_of_fallback(step, region, at)});
  }
}

}  // namespace

std::vector<test::FamilyTrial> trials_of_rows() {
  using kernels::Keep, kernels::SoftmaxPasses, kernels::Team, kernels::Variance;
  Trials trials;
  for (const SoftmaxPasses passes : {SoftmaxPasses::online, SoftmaxPasses::two})
    for (const Keep keep : {Keep::reread, Keep::registers, Keep::shared})
      trials.add<SoftmaxTask>("softmax of odd rows", softmax(DType::f32, 331, 0.25),
                              {.team = keep == Keep::shared ? Team::block : Team::warp,
                               .passes = passes,
                               .keep = keep,
                               .kept = keep == Keep::registers ? 3 : 1,
                               .vector = 4});
  for (const Keep keep : {Keep::reread, Keep::registers, Keep::shared})
    for (const bool layer : {false, true})
      trials.add<NormTask>(
          "norm of a sum of odd rows", norm_of_sum(DType::bf16, 331, layer),
          {.team = layer ? Team::block : Team::warp,
           .keep = keep,
           .kept = keep == Keep::registers ? 3 : 1,
           .variance = layer && keep != Keep::shared ? Variance::welford : Variance::two_pass,
           .vector = 4});
  // So long that a thread's elements are too many to be counted in 16 bits.
  trials.add<NormTask>("norm of long rows", norm_of_sum(DType::f16, 70'001, true),
                       {.team = Team::warp,
                        .keep = Keep::reread,
                        .kept = 1,
                        .variance = Variance::welford,
                        .threads = 64},
                       3);
  trials.add<ReductionTask>("maxima of odd rows", reduction(Op::amax, Op::neg, 331), {.vector = 4});
  trials.add<ReductionTask>("sums of odd rows", reduction(Op::sum, Op::cos, 331),
                            {.team = Team::warp, .vector = 4});
  trials.add<ReductionTask>("means of odd rows", reduction(Op::mean, Op::cos, 333), {.vector = 8});
  for (const DType dtype : {DType::f32, DType::f16})
    trials.add<ElementwiseTask>("interleaved gates", interleaved_gate(dtype),
                                {.threads = 64, .vector = 4, .unroll = 2});
  trials.add<EmbeddingTask>("narrow embedding", embedding(DType::f16, DType::i32, 75),
                            {.threads = 64, .vector = 4, .resident = 64, .persistent = true});
  trials.add<EmbeddingTask>("wide embedding", embedding(DType::f32, DType::i64, 1030),
                            {.threads = 32, .vector = 2});
  // More blocks than a warp has lanes, and than a block has threads.
  add_sampling(trials, "sampling by many blocks", DType::bf16, 70'003,
               {.threads = 128, .vector = 4, .persistent = false});
  add_sampling(trials, "sampling of float32", DType::f32, 20'003, {.threads = 64, .vector = 8});
  add_sampling(trials, "sampling one by one", DType::f32, 5'001, {.threads = 32, .vector = 1});
  add_fallbacks(trials, long_loops());
  add_fallbacks(trials, wide_values());
  add_fallbacks(trials, long_sum());
  return trials.take();
}

}  // namespace ac::mutants
