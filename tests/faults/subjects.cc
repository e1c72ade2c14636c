#include "tests/faults/subjects.h"

#include <fmt/format.h>

#include <map>
#include <memory>

#include "base/error.h"
#include "ir/builder.h"
#include "kernels/shim/host_launch.h"
#include "program/sampling.h"
#include "validate/ending_subject.h"
#include "validate/graph_subject.h"

namespace ac::kernels {
namespace {

using validate::Buffers;
using validate::Role;
using validate::Subject;

constexpr float kEps = 1e-5f;

DType dtype_of(Type type) {
  return type == Type::f32 ? DType::f32 : type == Type::f16 ? DType::f16 : DType::bf16;
}

// What a kernel's pointers refer to, by name; null for what its subject has not.
class Places {
 public:
  explicit Places(const Subject& subject) {
    for (std::size_t t = 0; t < subject.tensors.size(); ++t) places_[subject.tensors[t].name] = t;
  }
  void* find(const Buffers& buffers, const std::string& name) const {
    const auto found = places_.find(name);
    return found == places_.end() ? nullptr : buffers[found->second].data();
  }

 private:
  std::map<std::string, std::size_t> places_;
};

// The launch with this number, which decides the order of its threads; gives its error.
template <class Params>
std::string run_once(HostLaunch how, unsigned launch, void (*kernel)(Params), const Params& p) {
  how.schedule = static_cast<Schedule>(launch % 3);
  how.seed = launch + 1;
  return host_launch(how, kernel, p).error;
}

// ---- GEMV

StepGraph graph_of(const GemvCase& c) {
  const GemvOp& op = c.op;
  const DType stored = dtype_of(op.weight), in = dtype_of(op.x), out = dtype_of(op.y);
  const DType inner = in == stored ? in : DType::f32;
  StepGraph step;
  Builder b(step.graph);
  const Dim tokens(Symbol::T);
  const auto weight = [&](const std::string& name, Shape shape) {
    return b.cast(b.weight(name, {stored, std::move(shape)}), inner);
  };
  NodeId x = b.cast(b.input("x", {in, {tokens, c.k}}), inner);
  if (op.norm) x = b.rms_norm(x, weight("norm", {c.k}), kEps, c.norm_offset);
  const auto project = [&](int m, int rows) {
    const NodeId w = weight(fmt::format("w{}", m), {rows, c.k});
    return op.bias ? b.linear(x, w, weight(fmt::format("b{}", m), {rows})) : b.linear(x, w);
  };
  const auto finish = [&](NodeId y, int m, int rows) {
    if (c.scale != 1) y = b.binary(Op::mul, y, b.scalar(inner, c.scale));
    if (op.residual)
      y = b.binary(Op::add, y, b.cast(b.input("residual", {out, {tokens, rows}}), inner));
    if (c.softcap > 0) {
      const NodeId cap = b.scalar(inner, c.softcap);
      y = b.binary(Op::mul, b.unary(Op::tanh, b.binary(Op::div, y, cap)), cap);
    }
    step.graph.outputs.push_back({fmt::format("y{}", m), b.cast(y, out)});
  };
  if (op.pair != Pair::none) {
    const NodeId gate = project(0, c.rows[0]), up = project(1, c.rows[0]);
    const NodeId active = op.pair == Pair::swiglu ? b.unary(Op::silu, gate)
                                                  : b.gelu(gate, op.pair == Pair::geglu_tanh);
    finish(b.binary(Op::mul, active, up), 0, c.rows[0]);
  } else {
    for (int m = 0; m < op.matrices; ++m) finish(project(m, c.rows[m]), m, c.rows[m]);
  }
  return step;
}

// A graph has no argmax.
void add_argmax(Subject& subject) {
  const std::size_t y = index_of(subject, "y0"), best = subject.tensors.size();
  subject.tensors.push_back(
      {.name = "best_row", .dtype = DType::i32, .shape = {1}, .role = Role::output});
  for (validate::Evaluate* evaluate : {&subject.truth, &subject.plain})
    *evaluate = [inner = *evaluate, y, best](const validate::Elements& in) {
      validate::Elements out = inner(in);
      out.resize(best + 1);
      out[best] = {static_cast<double>(greedy_token(out[y]))};
      return out;
    };
}

Subject subject_of(const GemvCase& c, void (*kernel)(GemvParams), bool check_races) {
  const GemvOp& op = c.op;
  const bool pair = op.pair != Pair::none;
  int n = 0;
  for (int m = 0; m < (pair ? 1 : op.matrices); ++m) n += c.rows[m];
  const int grid = c.plan.grid(op, n, 2);
  validate::GraphSubjectOptions options;
  if (c.in_place) options.in_place["y0"] = "residual";
  Subject subject = validate::subject_of(graph_of(c), options);
  subject.linear = c.linear;
  if (op.argmax) {
    add_argmax(subject);
    subject.tensors.push_back(
        {.name = "block_best", .dtype = DType::i64, .shape = {grid}, .role = Role::workspace});
    subject.tensors.push_back(
        {.name = "finished", .dtype = DType::i32, .shape = {1}, .role = Role::counter});
  }

  subject.run = [c, kernel, check_races, grid, pair, places = Places(subject)](
                    const Buffers& buffers, unsigned launch) {
    const auto at = [&](const std::string& name) { return places.find(buffers, name); };
    GemvParams p{};
    for (int m = 0; m < c.op.matrices; ++m)
      p.matrix[m] = {at(fmt::format("w{}", m)), at(fmt::format("b{}", m)),
                     at(c.in_place ? "residual" : fmt::format("y{}", m)), c.rows[pair ? 0 : m]};
    p.k = p.pitch = c.k;
    p.x = at("x");
    p.norm_weight = at("norm");
    p.norm_eps = kEps;
    p.norm_offset = c.norm_offset;
    p.scale = c.scale;
    p.softcap = c.softcap;
    p.residual = at("residual");
    p.block_best = static_cast<unsigned long long*>(at("block_best"));
    p.finished_blocks = static_cast<unsigned*>(at("finished"));
    p.best_row = static_cast<int*>(at("best_row"));
    return run_once({.name = c.name,
                     .grid = {static_cast<unsigned>(grid)},
                     .block = {static_cast<unsigned>(c.plan.threads)},
                     .shared_bytes = static_cast<std::size_t>(c.plan.shared_bytes(c.op, c.k)),
                     .check_races = check_races},
                    launch, kernel, p);
  };
  return subject;
}

// ---- attention

constexpr int kKvHeads = 2;

std::vector<double> frequencies(const AttentionCase& c) {
  std::vector<double> result;
  for (int i = 0; i < c.op.rotary / 2; ++i)
    result.push_back(round_to(DType::f32, std::pow(10000.0, -2.0 * i / c.op.rotary)));
  return result;
}

StepGraph graph_of(const AttentionCase& c) {
  const AttentionOp& op = c.op;
  const DType dtype = dtype_of(op.type);
  StepGraph step;
  Builder b(step.graph);
  const Dim tokens(Symbol::T);
  const NodeId q = b.input("q", {dtype, {tokens, kKvHeads * op.group, op.head_dim}});
  const NodeId k = b.input("k", {dtype, {tokens, kKvHeads, op.head_dim}});
  const NodeId v = b.input("v", {dtype, {tokens, kKvHeads, op.head_dim}});
  const NodeId positions = b.positions(tokens);
  const auto prepare = [&](NodeId x, const std::string& norm) {
    if (op.qk_norm) x = b.rms_norm(x, b.weight(norm, {dtype, {op.head_dim}}), kEps, c.norm_offset);
    if (op.rotary == 0) return x;
    return b.rope(x, positions, b.constant(DType::f32, {op.rotary / 2}, frequencies(c)), 1.0,
                  op.interleaved);
  };
  const NodeId turned_q = prepare(q, "q_norm"), turned_k = prepare(k, "k_norm");
  step.caches.push_back({dtype, kKvHeads, op.head_dim, op.head_dim, c.window, "attention"});
  step.graph.outputs.push_back(
      {"out", b.append_attend(turned_q, turned_k, v, 0, 1 / std::sqrt(double(op.head_dim)),
                              c.window, c.softcap)});
  return step;
}

Subject subject_of(const AttentionCase& c, void (*kernel)(AttentionParams), bool check_races) {
  validate::GraphSubjectOptions options;
  options.capacity = c.capacity;
  options.positions.assign(std::begin(c.positions), std::end(c.positions));
  Subject subject = validate::subject_of(graph_of(c), options);
  const auto add = [&](const char* name, Role role, DType dtype, std::vector<std::int64_t> shape) {
    subject.tensors.push_back({.name = name, .dtype = dtype, .shape = shape, .role = role});
  };
  add("partial", Role::workspace, DType::f32, {c.op.partial_floats(kKvHeads, c.plan.splits)});
  add("finished", Role::counter, DType::i32, {kKvHeads});

  const auto rope = std::make_shared<std::vector<float>>();
  const std::vector<double> turns = frequencies(c);
  for (int position = 0; position <= std::max(c.capacity, c.positions[8]); ++position)
    for (const double turn : turns) {
      rope->push_back(static_cast<float>(std::cos(position * turn)));
      rope->push_back(static_cast<float>(std::sin(position * turn)));
    }

  subject.run = [c, kernel, check_races, rope, places = Places(subject)](const Buffers& buffers,
                                                                         unsigned launch) {
    const auto at = [&](const char* name) { return places.find(buffers, name); };
    AttentionParams p{};
    p.q = at("q"), p.k = at("k"), p.v = at("v");
    p.q_norm = at("q_norm"), p.k_norm = at("k_norm");
    p.norm_eps = kEps, p.norm_offset = c.norm_offset;
    p.rope = rope->data(), p.rope_pitch = c.op.rotary;
    p.position = static_cast<const int*>(at("position"));
    p.k_cache = at("cache0.keys"), p.v_cache = at("cache0.values");
    p.capacity = c.capacity, p.window = c.window;
    p.scale = 1 / std::sqrt(static_cast<float>(c.op.head_dim)), p.softcap = c.softcap;
    p.out = at("out");
    p.partial = static_cast<float*>(at("partial"));
    p.finished = static_cast<unsigned*>(at("finished"));
    return run_once({.name = c.name,
                     .grid = {kKvHeads, static_cast<unsigned>(c.plan.splits)},
                     .block = {static_cast<unsigned>(c.plan.threads)},
                     .shared_bytes = static_cast<std::size_t>(c.plan.shared_bytes(c.op)),
                     .check_races = check_races,
                     .relaxed_lag = launch % 4 == 3 ? 1 : 0},
                    launch, kernel, p);
  };
  return subject;
}

// ---- what ends a step

Subject subject_of(const AdvanceCase& c, void (*kernel)(AdvanceParams), bool check_races) {
  Subject subject = validate::subject_of_ending(c.op.wide_ids ? DType::i64 : DType::i32, c.tokens,
                                                c.logged, {c.positions, c.positions + 4});
  subject.run = [c, kernel, check_races, places = Places(subject)](const Buffers& buffers,
                                                                   unsigned launch) {
    const auto at = [&](const char* name) { return places.find(buffers, name); };
    const AdvanceParams p{.token = static_cast<const int*>(at("token")),
                          .ids = at("ids"),
                          .log = static_cast<int*>(at("log")),
                          .position = static_cast<int*>(at("position")),
                          .tokens = c.tokens,
                          .positions = c.logged};
    return run_once(
        {.name = c.name, .grid = {1}, .block = {advance_threads}, .check_races = check_races},
        launch, kernel, p);
  };
  return subject;
}

}  // namespace

Subject subject_of_case(const std::string& name, void* kernel, bool check_races) {
  for (const GemvCase& c : gemv_cases)
    if (name == c.name)
      return subject_of(c, reinterpret_cast<void (*)(GemvParams)>(kernel), check_races);
  for (const AttentionCase& c : attention_cases)
    if (name == c.name)
      return subject_of(c, reinterpret_cast<void (*)(AttentionParams)>(kernel), check_races);
  for (const AdvanceCase& c : advance_cases)
    if (name == c.name)
      return subject_of(c, reinterpret_cast<void (*)(AdvanceParams)>(kernel), check_races);
  wrong_usage("there is no case \"{}\"", name);
}

}  // namespace ac::kernels
