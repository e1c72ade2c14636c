// Plans and ops in text: canonical ids, and the C++ that generated source uses.
#include <fmt/format.h>

#include "base/error.h"
#include "base/weight_format.h"
#include "plan/space.h"

namespace ac {
namespace {

using namespace kernels;

std::string text(int value) { return fmt::format("{}", value); }
std::string text(bool value) { return value ? "true" : "false"; }
std::string text(Type type) {
  constexpr const char* names[] = {"f32", "f16", "bf16"};
  return fmt::format("Type::{}", names[static_cast<int>(type)]);
}
std::string text(kernels::Cache cache) {
  constexpr const char* names[] = {"streaming", "no_allocate", "evict_first"};
  return fmt::format("Cache::{}", names[static_cast<int>(cache)]);
}
std::string text(Pair pair) {
  constexpr const char* names[] = {"none", "swiglu", "geglu_tanh", "geglu_erf"};
  return fmt::format("Pair::{}", names[static_cast<int>(pair)]);
}
std::string_view name(Ring ring) {
  constexpr std::string_view names[] = {"none", "registers", "async_copy", "bulk_copy"};
  return names[static_cast<int>(ring)];
}
std::string text(Ring ring) { return fmt::format("Ring::{}", name(ring)); }
std::string text(Signal signal) {
  return signal == Signal::entry ? "Signal::entry" : "Signal::last_group";
}
std::string_view name(Tile tile) {
  constexpr std::string_view names[] = {"scalar", "mma", "wgmma"};
  return names[static_cast<int>(tile)];
}
std::string text(Tile tile) { return fmt::format("Tile::{}", name(tile)); }
std::string_view name(Team team) { return team == Team::warp ? "warp" : "block"; }
std::string text(Team team) { return fmt::format("Team::{}", name(team)); }
std::string_view name(Keep keep) {
  constexpr std::string_view names[] = {"reread", "registers", "shared"};
  return names[static_cast<int>(keep)];
}
std::string text(Keep keep) { return fmt::format("Keep::{}", name(keep)); }
std::string text(kernels::Norm norm) {
  return norm == kernels::Norm::rms ? "Norm::rms" : "Norm::layer";
}
std::string text(Variance variance) {
  return variance == Variance::two_pass ? "Variance::two_pass" : "Variance::welford";
}
std::string text(SoftmaxPasses passes) {
  return passes == SoftmaxPasses::online ? "SoftmaxPasses::online" : "SoftmaxPasses::two";
}
std::string text(Fold fold) {
  constexpr const char* names[] = {"sum", "mean", "max"};
  return fmt::format("Fold::{}", names[static_cast<int>(fold)]);
}

// "{.a = 1, .b = 2}"
class Fields {
 public:
  template <class T>
  Fields& add(std::string_view field, T value) {
    return add_text(field, text(value));
  }
  Fields& add_text(std::string_view field, const std::string& value) {
    out_ += fmt::format("{}.{} = {}", out_.empty() ? "" : ", ", field, value);
    return *this;
  }
  std::string str() const { return "{" + out_ + "}"; }

 private:
  std::string out_;
};

std::string op_of(const GemvOp& op) {
  Fields fields;
  fields.add("weight", op.weight)
      .add("x", op.x)
      .add("y", op.y)
      .add("norm", op.norm)
      .add("pair", op.pair)
      .add("bias", op.bias)
      .add("residual", op.residual)
      .add("argmax", op.argmax)
      .add("matrices", op.matrices);
  // So that kernels of plain weights keep their names.
  if (op.format != Format::plain)
    fields.add_text("format", fmt::format("Format::{}", traits(op.format).name));
  return fields.str();
}
std::string op_of(const GemmOp& op) {
  return Fields()
      .add("weight", op.weight)
      .add("x", op.x)
      .add("y", op.y)
      .add("pair", op.pair)
      .add("bias", op.bias)
      .add("residual", op.residual)
      .add("matrices", op.matrices)
      .str();
}
std::string op_of(const PrefillAttentionOp& op) {
  return Fields()
      .add("type", op.type)
      .add("head_dim", op.head_dim)
      .add("group", op.group)
      .add("softcap", op.softcap)
      .str();
}
std::string op_of(const RopeAppendOp& op) {
  return Fields()
      .add("type", op.type)
      .add("head_dim", op.head_dim)
      .add("qk_norm", op.qk_norm)
      .add("rotary", op.rotary)
      .add("interleaved", op.interleaved)
      .str();
}
std::string op_of(const QkvRopeOp& op) {
  return Fields().add_text("product", op_of(op.product)).add_text("append", op_of(op.append)).str();
}
std::string op_of(const AttentionOp& op) {
  return Fields()
      .add("type", op.type)
      .add("head_dim", op.head_dim)
      .add("group", op.group)
      .add("qk_norm", op.qk_norm)
      .add("rotary", op.rotary)
      .add("interleaved", op.interleaved)
      .add("window", op.window)
      .add("softcap", op.softcap)
      .str();
}
std::string op_of(const NormOp& op) {
  return Fields()
      .add("norm", op.norm)
      .add("x", op.x)
      .add("weight", op.weight)
      .add("y", op.y)
      .add("weighted", op.weighted)
      .add("bias", op.bias)
      .add("residual", op.residual)
      .str();
}
std::string op_of(const SoftmaxOp& op) { return Fields().add("x", op.x).add("y", op.y).str(); }
std::string op_of(const ReductionOp& op) {
  return Fields().add("x", op.x).add("y", op.y).add("fold", op.fold).str();
}
std::string op_of(const ElementwiseOp& op) {
  std::string in;
  for (int i = 0; i < op.inputs; ++i) in += (i ? ", " : "") + text(op.in[i]);
  return Fields().add("out", op.out).add("inputs", op.inputs).add_text("in", "{" + in + "}").str();
}
std::string op_of(const EmbeddingOp& op) {
  return Fields().add("table", op.table).add("y", op.y).add("wide_ids", op.wide_ids).str();
}
std::string op_of(const SamplingOp& op) { return Fields().add("logits", op.logits).str(); }

std::string plan_of(const GemvPlan& p) {
  return Fields()
      .add("threads", p.threads)
      .add("rows", p.rows)
      .add("depth", p.depth)
      .add("chunks", p.chunks)
      .add("ring", p.ring)
      .add("split", p.split)
      .add("resident", p.resident)
      .add("persistent", p.persistent)
      .add("signal", p.signal)
      .add("cache", p.cache)
      .str();
}
std::string plan_of(const GemmPlan& p) {
  return Fields()
      .add("tile_m", p.tile_m)
      .add("tile_n", p.tile_n)
      .add("tile_k", p.tile_k)
      .add("thread_m", p.thread_m)
      .add("thread_n", p.thread_n)
      .add("stages", p.stages)
      .add("resident", p.resident)
      .str();
}
std::string plan_of(const TmaGemmPlan& p) {
  return Fields()
      .add("tile_m", p.tile_m)
      .add("tile_n", p.tile_n)
      .add("stages", p.stages)
      .add("cluster_m", p.cluster_m)
      .add("cluster_n", p.cluster_n)
      .add("cluster_k", p.cluster_k)
      .add("group_m", p.group_m)
      .str();
}
std::string plan_of(const MmaGemmPlan& p) {
  return Fields()
      .add("tile_m", p.tile_m)
      .add("tile_n", p.tile_n)
      .add("tile_k", p.tile_k)
      .add("warp_m", p.warp_m)
      .add("warp_n", p.warp_n)
      .add("stages", p.stages)
      .add("split", p.split)
      .add("group_m", p.group_m)
      .add("resident", p.resident)
      .add("tile", p.tile)
      .str();
}
std::string plan_of(const LibraryPlan& p) { return Fields().add("algorithm", p.algorithm).str(); }
std::string plan_of(const PrefillAttentionPlan& p) {
  return Fields()
      .add("tile", p.tile)
      .add("query_tile", p.query_tile)
      .add("key_tile", p.key_tile)
      .add("warps", p.warps)
      .add("stages", p.stages)
      .add("keep_queries", p.keep_queries)
      .add("resident", p.resident)
      .add("splits", p.splits)
      .str();
}
std::string plan_of(const QkvAttentionPlan& p) {
  return Fields()
      .add("tile_m", p.tile_m)
      .add("tile_n", p.tile_n)
      .add("stages", p.stages)
      .add("cluster_m", p.cluster_m)
      .add("cluster_n", p.cluster_n)
      .add("group_m", p.group_m)
      .add("tile", p.tile)
      .add("query_tile", p.query_tile)
      .add("key_tile", p.key_tile)
      .add("warps", p.warps)
      .add("key_stages", p.key_stages)
      .add("keep_queries", p.keep_queries)
      .add("resident", p.resident)
      .add("splits", p.splits)
      .str();
}
std::string plan_of(const RopeAppendPlan& p) {
  return Fields()
      .add("threads", p.threads)
      .add("heads", p.heads)
      .add("resident", p.resident)
      .add("persistent", p.persistent)
      .str();
}
std::string plan_of(const AttentionPlan& p) {
  return Fields()
      .add("tile", p.tile)
      .add("threads", p.threads)
      .add("splits", p.splits)
      .add("min_tiles", p.min_tiles)
      .add("resident", p.resident)
      .str();
}
std::string plan_of(const NormPlan& p) {
  return Fields()
      .add("team", p.team)
      .add("keep", p.keep)
      .add("kept", p.kept)
      .add("variance", p.variance)
      .add("threads", p.threads)
      .add("vector", p.vector)
      .add("resident", p.resident)
      .add("persistent", p.persistent)
      .str();
}
std::string plan_of(const SoftmaxPlan& p) {
  return Fields()
      .add("team", p.team)
      .add("passes", p.passes)
      .add("keep", p.keep)
      .add("kept", p.kept)
      .add("threads", p.threads)
      .add("vector", p.vector)
      .add("resident", p.resident)
      .add("persistent", p.persistent)
      .str();
}
std::string plan_of(const ReductionPlan& p) {
  return Fields()
      .add("team", p.team)
      .add("threads", p.threads)
      .add("vector", p.vector)
      .add("resident", p.resident)
      .add("persistent", p.persistent)
      .str();
}
std::string plan_of(const ElementwisePlan& p) {
  return Fields()
      .add("threads", p.threads)
      .add("vector", p.vector)
      .add("unroll", p.unroll)
      .add("resident", p.resident)
      .add("persistent", p.persistent)
      .str();
}
template <class Flat>  // embedding and sampling
std::string plan_of(const Flat& p) {
  return Fields()
      .add("threads", p.threads)
      .add("vector", p.vector)
      .add("resident", p.resident)
      .add("persistent", p.persistent)
      .str();
}

std::string grid(bool persistent, int resident) {
  return persistent ? fmt::format("/{}", resident) : fmt::format("/full{}", resident);
}

std::string id(const GemvPlan& p) {
  constexpr const char* rings[] = {"N", "R", "S", "B"};
  std::string out =
      fmt::format("{}{}x{}x{}", rings[static_cast<int>(p.ring)], p.threads, p.rows, p.depth);
  if (p.chunks > 1) out += fmt::format("x{}", p.chunks);
  out += grid(p.persistent, p.resident);
  if (p.split > 1) out += fmt::format("/split{}", p.split);
  if (p.signal == Signal::last_group) out += "/late";
  if (p.cache == kernels::Cache::no_allocate) out += "/noalloc";
  if (p.cache == kernels::Cache::evict_first) out += "/evict";
  return out;
}
std::string id(const GemmPlan& p) {
  return fmt::format("{}x{}x{}/{}x{}/{}/{}", p.tile_m, p.tile_n, p.tile_k, p.thread_m, p.thread_n,
                     p.stages, p.resident);
}
std::string id(const MmaGemmPlan& p) {
  return fmt::format("{}{}x{}x{}/{}x{}/{}/group{}/{}{}", p.tile == Tile::mma ? "" : name(p.tile),
                     p.tile_m, p.tile_n, p.tile_k, p.warp_m, p.warp_n, p.stages, p.group_m,
                     p.resident, p.split > 1 ? fmt::format("/split{}", p.split) : "");
}
std::string id(const TmaGemmPlan& p) {
  return fmt::format("{}x{}{}/{}/c{}x{}/group{}", p.tile_m, p.tile_n,
                     p.cluster_k > 1 ? fmt::format("k{}", p.cluster_k) : "", p.stages, p.cluster_m,
                     p.cluster_n, p.group_m);
}
std::string id(const LibraryPlan& p) { return fmt::format("algorithm/{}", p.algorithm); }
std::string id(const PrefillAttentionPlan& p) {
  return fmt::format("{}{}x{}/{}/{}/{}{}{}", name(p.tile), p.query_tile, p.key_tile, p.warps,
                     p.stages, p.resident, p.splits > 1 ? fmt::format("/split{}", p.splits) : "",
                     p.keep_queries ? "/keep" : "");
}
// The product's tiles and all of attention are the outline: what is tried first differs in these.
std::string id(const QkvAttentionPlan& p) {
  return fmt::format("{}x{}+{}{}x{}.{}.{}.{}{}{}/{}/c{}x{}/group{}", p.tile_m, p.tile_n,
                     name(p.tile), p.query_tile, p.key_tile, p.warps, p.key_stages, p.resident,
                     p.splits > 1 ? fmt::format(".split{}", p.splits) : "",
                     p.keep_queries ? ".keep" : "", p.stages, p.cluster_m, p.cluster_n, p.group_m);
}
std::string id(const AttentionPlan& p) {
  return fmt::format("{}{}x{}/min{}/{}", name(p.tile), p.threads, p.splits, p.min_tiles,
                     p.resident);
}
template <class Plan>
std::string rows_id(const Plan& p, std::string_view keep, int kept) {
  return fmt::format("{}{}/{}{}/v{}{}", name(p.team), p.threads, keep,
                     kept > 1 ? fmt::format("{}", kept) : "", p.vector,
                     grid(p.persistent, p.resident));
}
std::string id(const NormPlan& p) {
  return rows_id(p, name(p.keep), p.kept) + (p.variance == Variance::welford ? "/welford" : "");
}
std::string id(const SoftmaxPlan& p) {
  return rows_id(p, name(p.keep), p.kept) + (p.passes == SoftmaxPasses::two ? "/two" : "");
}
std::string id(const ReductionPlan& p) { return rows_id(p, "once", 1); }
std::string id(const ElementwisePlan& p) {
  return fmt::format("{}/v{}x{}{}", p.threads, p.vector, p.unroll, grid(p.persistent, p.resident));
}
template <class Flat>
std::string id(const Flat& p) {
  return fmt::format("{}/v{}{}", p.threads, p.vector, grid(p.persistent, p.resident));
}

// What id() does not say.
std::vector<PlanField> unsaid(const GemvPlan&) {
  return {{"cache", "streaming"},
          {"chunks", "1"},
          {"persistent", "true"},
          {"signal", "entry"},
          {"split", "1"}};
}
std::vector<PlanField> unsaid(const GemmPlan&) { return {}; }
std::vector<PlanField> unsaid(const MmaGemmPlan&) { return {{"split", "1"}, {"tile", "mma"}}; }
std::vector<PlanField> unsaid(const TmaGemmPlan&) { return {{"cluster_k", "1"}}; }
std::vector<PlanField> unsaid(const LibraryPlan&) { return {}; }
std::vector<PlanField> unsaid(const PrefillAttentionPlan&) {
  return {{"keep_queries", "false"}, {"splits", "1"}};
}
std::vector<PlanField> unsaid(const QkvAttentionPlan&) {
  return {{"keep_queries", "false"}, {"splits", "1"}};
}
std::vector<PlanField> unsaid(const AttentionPlan&) { return {}; }
std::vector<PlanField> unsaid(const NormPlan&) {
  return {{"kept", "1"}, {"persistent", "true"}, {"variance", "two_pass"}};
}
std::vector<PlanField> unsaid(const SoftmaxPlan&) {
  return {{"kept", "1"}, {"passes", "online"}, {"persistent", "true"}};
}
template <class Plan>
std::vector<PlanField> unsaid(const Plan&) {
  return {{"persistent", "true"}};
}

std::string_view kind(const GemvPlan& p) { return name(p.ring); }
std::string_view kind(const AttentionPlan& p) { return name(p.tile); }
std::string_view kind(const GemmPlan&) { return "plain"; }
std::string_view kind(const MmaGemmPlan& p) {
  if (p.tile == Tile::wgmma) return p.split > 1 ? "wgmma_split" : "wgmma";
  return p.split > 1 ? "split" : "whole";
}
std::string_view kind(const TmaGemmPlan& p) {
  return p.cluster_k > 1 ? "split" : p.cluster() > 1 ? "cluster" : "alone";
}
std::string_view kind(const LibraryPlan&) { return "library"; }
std::string_view kind(const PrefillAttentionPlan& p) {
  return p.splits > 1 ? "split" : name(p.tile);
}
std::string_view kind(const QkvAttentionPlan& p) { return p.splits > 1 ? "split" : name(p.tile); }
std::string_view kind(const NormPlan& p) { return name(p.team); }
std::string_view kind(const SoftmaxPlan& p) { return name(p.team); }
std::string_view kind(const ReductionPlan& p) { return name(p.team); }
template <class Flat>
std::string_view kind(const Flat& p) {
  return p.vector > 1 ? "vectors" : "elements";
}

}  // namespace

std::string_view family_of(const Choice& choice) {
  return std::visit([](const auto& made) { return made.task.family; }, choice);
}
std::string id_of(const Choice& choice) {
  return std::visit(
      [](const auto& made) { return fmt::format("{}/{}", made.task.family, id(made.plan)); },
      choice);
}
std::string kind_of(const Choice& choice) {
  return std::visit(
      [](const auto& made) { return fmt::format("{} {}", made.task.family, kind(made.plan)); },
      choice);
}
std::string op_text(const Choice& choice) {
  return std::visit([](const auto& made) { return op_of(made.task.op); }, choice);
}
std::string plan_text(const Choice& choice) {
  return std::visit([](const auto& made) { return plan_of(made.plan); }, choice);
}
std::vector<PlanField> plan_fields(const Choice& choice) {
  std::vector<PlanField> fields;
  const std::string text = plan_text(choice);
  for (std::size_t at = 1; at < text.size() && text[at] == '.';) {
    const std::size_t equals = text.find(" = ", at), end = text.find_first_of(",}", at);
    AC_ASSERT(equals < end && end != std::string::npos);
    const std::string value = text.substr(equals + 3, end - equals - 3);
    // Past "Ring::"; from the beginning where there is no such type.
    fields.push_back({text.substr(at + 1, equals - at - 1), value.substr(value.rfind(':') + 1)});
    at = end + 2;
  }
  return fields;
}
std::vector<PlanField> unsaid_fields(const Choice& choice) {
  return std::visit([](const auto& made) { return unsaid(made.plan); }, choice);
}
std::string op_text(const RopeAppendOp& op) { return op_of(op); }
std::string plan_text(const RopeAppendPlan& plan) { return plan_of(plan); }

std::string_view to_string(Limit limit) {
  constexpr std::string_view names[] = {"launch", "memory", "latency", "compute"};
  return names[static_cast<int>(limit)];
}
std::string_view to_string(Risk risk) {
  constexpr std::string_view names[] = {"low", "medium", "high"};
  return names[static_cast<int>(risk)];
}

}  // namespace ac
