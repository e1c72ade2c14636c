#include "plan/plans.h"

namespace ac {
namespace {

using namespace kernels;

struct GemvMemory {
  Ring ring;
  int depth, chunks;
  kernels::Cache cache = kernels::Cache::streaming;
};

std::vector<GemvMemory> gemv_memory() {
  std::vector<GemvMemory> choices{{Ring::none, 1, 1}};
  for (const int depth : {4, 5, 8, 10, 16})
    for (const auto cache :
         {kernels::Cache::streaming, kernels::Cache::no_allocate, kernels::Cache::evict_first})
      choices.push_back({Ring::registers, depth, 1, cache});
  for (const int depth : {5, 8, 12, 16}) choices.push_back({Ring::async_copy, depth, 1});
  for (const int chunks : {2, 4, 8})
    for (const int depth : {2, 3, 4, 6, 8}) choices.push_back({Ring::bulk_copy, depth, chunks});
  return choices;
}

struct RowsParallel {
  Team team;
  int threads, blocks;
  bool persistent;
};

std::vector<RowsParallel> rows_parallel() {
  std::vector<RowsParallel> choices;
  for (const Team team : {Team::warp, Team::block})
    for (const int threads : {64, 128, 256, 512, 1024})
      for (const int blocks : {1, 2, 4})
        for (const bool persistent : {true, false})
          choices.push_back({team, threads, blocks, persistent});
  return choices;
}

struct RowsMemory {
  Keep keep;
  int kept, vector;
};

std::vector<RowsMemory> rows_memory() {
  std::vector<RowsMemory> choices;
  for (const int vector : {1, 2, 4, 8}) {
    choices.push_back({Keep::reread, 1, vector});
    choices.push_back({Keep::shared, 1, vector});
    for (const int kept : {1, 2, 4, 8}) choices.push_back({Keep::registers, kept, vector});
  }
  return choices;
}

// Families without a team: threads and grid only.
template <class Plan, class Set>
std::vector<Plan> flat_plans(std::initializer_list<int> vectors, const Set& set) {
  std::vector<Plan> plans;
  for (const int vector : vectors)
    for (const RowsParallel& parallel : rows_parallel()) {
      if (parallel.team == Team::warp) continue;  // there is no team
      Plan plan;
      plan.vector = vector;
      plan.threads = parallel.threads;
      plan.resident = parallel.threads * parallel.blocks;
      plan.persistent = parallel.persistent;
      set(plans, plan);
    }
  return plans;
}

// Blocks with other tokens, and with other weights. Clusters of four do not fill an H100's
// multiprocessors: with many tokens, half as fast.
struct Cluster {
  int m, n;
};
constexpr Cluster kClusters[] = {{1, 1}, {2, 1}, {1, 2}};

}  // namespace

std::vector<GemvPlan> enumerate_plans(const GemvTask&) {
  std::vector<GemvPlan> plans;
  const std::vector<GemvMemory> memory = gemv_memory();
  for (const GemvMemory& m : memory)
    for (const int threads : {128, 256, 320, 384, 512, 768, 1024})
      for (const int rows : {1, 2, 4})
        for (const int split : {1, 2})
          for (const int blocks : {1, 2, 3, 4})
            for (const bool persistent : {true, false})
              for (const Signal signal : {Signal::entry, Signal::last_group})
                plans.push_back({.threads = threads,
                                 .rows = rows,
                                 .depth = m.depth,
                                 .chunks = m.chunks,
                                 .ring = m.ring,
                                 .split = split,
                                 .resident = threads * blocks,
                                 .persistent = persistent,
                                 .signal = signal,
                                 .cache = m.cache});
  return plans;
}

std::vector<GemmPlan> enumerate_plans(const GemmTask&) {
  std::vector<GemmPlan> plans;
  for (const int tile_m : {8, 16, 32, 64, 128})
    for (const int tile_n : {32, 64, 128})
      for (const int tile_k : {8, 16, 32})
        for (const int thread_m : {1, 2, 4, 8})
          for (const int thread_n : {2, 4, 8})
            for (const int stages : {1, 2})
              for (const int resident : {256, 512, 1024})
                plans.push_back({tile_m, tile_n, tile_k, thread_m, thread_n, stages, resident});
  return plans;
}

std::vector<MmaGemmPlan> enumerate_plans(const MmaGemmTask&) {
  struct Tiles {
    int m, n, warp_m, warp_n;
  };
  constexpr Tiles kTiles[] = {
      {16, 64, 16, 32},    {16, 128, 16, 32}, {32, 64, 32, 32},   {32, 128, 32, 32},
      {64, 64, 32, 32},    {64, 128, 32, 32}, {64, 128, 32, 64},  {64, 128, 64, 32},
      {128, 64, 32, 32},   {128, 64, 64, 32}, {128, 128, 32, 32}, {128, 128, 64, 32},
      {128, 128, 64, 64},  {64, 256, 64, 64}, {128, 256, 64, 64}, {256, 128, 64, 64},
      {256, 128, 128, 64},
  };
  // By wgmma, where four warps have 64 tokens.
  constexpr Tiles kGroupTiles[] = {
      {64, 64, 16, 64},    {64, 128, 16, 64},   {64, 128, 16, 128},
      {64, 256, 16, 128},  {128, 64, 16, 64},   {128, 128, 16, 64},
      {128, 128, 16, 128}, {128, 256, 16, 128}, {256, 128, 16, 128},
  };
  std::vector<MmaGemmPlan> plans;
  for (const Tiles& t : kTiles)
    for (const int tile_k : {32, 64, 128})
      for (const int stages : {2, 3, 4, 5, 6})
        for (const int split : {1, 2, 4, 8})
          for (const int group_m : {4, 8, 16})
            for (const int resident : {1, 2, 3})
              plans.push_back({.tile_m = t.m,
                               .tile_n = t.n,
                               .tile_k = tile_k,
                               .warp_m = t.warp_m,
                               .warp_n = t.warp_n,
                               .stages = stages,
                               .split = split,
                               .group_m = group_m,
                               .resident = resident});
  for (const Tiles& t : kGroupTiles)
    for (const int stages : {4, 6, 8})
      for (const int split : {1, 2, 4, 8, 16})
        for (const int resident : {1, 2, 3})
          plans.push_back({.tile_m = t.m,
                           .tile_n = t.n,
                           .tile_k = 64,
                           .warp_m = t.warp_m,
                           .warp_n = t.warp_n,
                           .stages = stages,
                           .split = split,
                           .resident = resident,
                           .tile = Tile::wgmma});
  return plans;
}

std::vector<TmaGemmPlan> enumerate_plans(const TmaGemmTask&) {
  std::vector<TmaGemmPlan> plans;
  for (const int tile_m : {64, 128})
    for (const int tile_n : {64, 128, 256})
      for (const int stages : {3, 4, 6, 8})
        for (const Cluster& cluster : kClusters)
          for (const int group_m : {4, 8, 16})
            plans.push_back({.tile_m = tile_m,
                             .tile_n = tile_n,
                             .stages = stages,
                             .cluster_m = cluster.m,
                             .cluster_n = cluster.n,
                             .group_m = group_m});
  for (const int tile_m : {64, 128})
    for (const int tile_n : {64, 128})
      for (const int stages : {3, 4, 6, 8})
        for (const Cluster& cluster : kClusters)
          for (const int parts : {2, 3, 4})
            plans.push_back({.tile_m = tile_m,
                             .tile_n = tile_n,
                             .stages = stages,
                             .cluster_m = cluster.m,
                             .cluster_n = cluster.n,
                             .cluster_k = parts});
  return plans;
}

std::vector<LibraryPlan> enumerate_plans(const LibraryTask& task) {
  constexpr int kAlgorithms = 8;
  std::vector<LibraryPlan> plans;
  for (int algorithm = 0; algorithm < kAlgorithms; ++algorithm)
    plans.push_back({algorithm, task.shape});
  return plans;
}

std::vector<PrefillAttentionPlan> enumerate_plans(const PrefillAttentionTask&) {
  std::vector<PrefillAttentionPlan> plans;
  for (const int groups : {1, 2, 3, 4})
    for (const int key_tile : {64, 128})
      for (const int stages : {2, 3, 4})
        for (const bool keep : {true, false})
          for (const int resident : {1, 2, 3})
            plans.push_back({.tile = Tile::wgmma,
                             .query_tile = 64 * groups,
                             .key_tile = key_tile,
                             .warps = 4 * groups,
                             .stages = stages,
                             .keep_queries = keep,
                             .resident = resident});
  for (const int warps : {1, 2, 4, 8})
    for (const int queries : {1, 2, 4, 8, 16, 32})  // of a warp
      for (const int key_tile : {16, 32, 64, 128})
        for (const int resident : {1, 2, 3}) {
          plans.push_back({.tile = Tile::scalar,
                           .query_tile = warps * queries,
                           .key_tile = key_tile,
                           .warps = warps,
                           .stages = 1,
                           .keep_queries = false,
                           .resident = resident});
          for (const int stages : {2, 3})
            for (const bool keep : {true, false})
              plans.push_back({.tile = Tile::mma,
                               .query_tile = warps * queries,
                               .key_tile = key_tile,
                               .warps = warps,
                               .stages = stages,
                               .keep_queries = keep,
                               .resident = resident});
        }
  // For so few queries that there is no warp of them for each multiprocessor's scheduler.
  for (const int splits : {2, 4, 8})
    for (const int teams : {1, 2})
      for (const int queries : {16, 32})  // of a warp
        for (const int keys : {16, 32, 64})
          for (const int stages : {2, 3})
            for (const bool keep : {true, false})
              plans.push_back({.tile = Tile::mma,
                               .query_tile = teams * queries,
                               .key_tile = splits * keys,
                               .warps = splits * teams,
                               .stages = stages,
                               .keep_queries = keep,
                               .resident = 1,
                               .splits = splits});
  return plans;
}

std::vector<QkvAttentionPlan> enumerate_plans(const QkvAttentionTask&) {
  struct Keys {
    Tile tile;
    int query_tile, key_tile, warps, stages;
    bool keep;
    int resident, splits = 1;
  };
  // Few, as each goes with every product; those that did well by themselves, and neighbours.
  constexpr Keys kKeys[] = {
      {Tile::wgmma, 64, 64, 4, 2, true, 1},    {Tile::wgmma, 64, 64, 4, 2, false, 2},
      {Tile::wgmma, 64, 64, 4, 2, true, 2},    {Tile::wgmma, 64, 64, 4, 2, false, 3},
      {Tile::wgmma, 64, 128, 4, 2, false, 2},  {Tile::wgmma, 128, 64, 8, 3, true, 1},
      {Tile::wgmma, 128, 64, 8, 4, false, 1},  {Tile::wgmma, 128, 128, 8, 2, false, 1},
      {Tile::wgmma, 192, 64, 12, 3, false, 1}, {Tile::mma, 16, 128, 1, 3, true, 1},
      {Tile::mma, 64, 64, 4, 2, true, 2},      {Tile::mma, 128, 64, 8, 2, false, 1},
      {Tile::mma, 128, 128, 8, 3, false, 1},   {Tile::mma, 16, 128, 4, 2, false, 1, 4},
      {Tile::mma, 32, 128, 8, 2, false, 1, 4}, {Tile::mma, 32, 128, 8, 2, true, 1, 4}};
  struct Products {
    int tile_m, tile_n, stages;
  };
  constexpr Products kProducts[] = {{64, 64, 8},   {64, 128, 6},  {64, 128, 8},
                                    {64, 256, 4},  {128, 64, 6},  {128, 64, 8},
                                    {128, 128, 4}, {128, 128, 6}, {128, 256, 4}};
  std::vector<QkvAttentionPlan> plans;
  for (const Products& product : kProducts)
    for (const Cluster& cluster : kClusters)
      for (const Keys& keys : kKeys)
        plans.push_back({.tile_m = product.tile_m,
                         .tile_n = product.tile_n,
                         .stages = product.stages,
                         .cluster_m = cluster.m,
                         .cluster_n = cluster.n,
                         .group_m = 16,
                         .tile = keys.tile,
                         .query_tile = keys.query_tile,
                         .key_tile = keys.key_tile,
                         .warps = keys.warps,
                         .key_stages = keys.stages,
                         .keep_queries = keys.keep,
                         .resident = keys.resident,
                         .splits = keys.splits});
  return plans;
}

std::vector<AttentionPlan> enumerate_plans(const AttentionTask&) {
  std::vector<AttentionPlan> plans;
  for (const Tile tile : {Tile::mma, Tile::scalar})
    for (const int threads : {64, 128, 256, 384, 512})
      for (const int splits : {1, 2, 4, 8, 16, 33, 66, 132})
        for (const int min_tiles : {1, 2, 4})
          for (const int resident : {256, 512, 1024})
            plans.push_back({.tile = tile,
                             .threads = threads,
                             .splits = splits,
                             .min_tiles = min_tiles,
                             .resident = resident});
  return plans;
}

std::vector<NormPlan> enumerate_plans(const NormTask& task) {
  std::vector<NormPlan> plans;
  std::vector<Variance> variances{Variance::two_pass};
  if (task.op.layer()) variances.push_back(Variance::welford);
  for (const Variance variance : variances)
    for (const RowsMemory& m : rows_memory())
      for (const RowsParallel& p : rows_parallel())
        plans.push_back({p.team, m.keep, m.kept, variance, p.threads, m.vector,
                         p.threads * p.blocks, p.persistent});
  return plans;
}

std::vector<SoftmaxPlan> enumerate_plans(const SoftmaxTask&) {
  std::vector<SoftmaxPlan> plans;
  for (const SoftmaxPasses passes : {SoftmaxPasses::online, SoftmaxPasses::two})
    for (const RowsMemory& m : rows_memory())
      for (const RowsParallel& p : rows_parallel())
        plans.push_back({p.team, passes, m.keep, m.kept, p.threads, m.vector, p.threads * p.blocks,
                         p.persistent});
  return plans;
}

std::vector<ReductionPlan> enumerate_plans(const ReductionTask&) {
  std::vector<ReductionPlan> plans;
  for (const int vector : {1, 2, 4, 8})
    for (const RowsParallel& p : rows_parallel())
      plans.push_back({p.team, p.threads, vector, p.threads * p.blocks, p.persistent});
  return plans;
}

std::vector<ElementwisePlan> enumerate_plans(const ElementwiseTask&) {
  return flat_plans<ElementwisePlan>({1, 2, 4, 8}, [](auto& plans, ElementwisePlan plan) {
    for (const int unroll : {1, 2, 4}) {
      plan.unroll = unroll;
      plans.push_back(plan);
    }
  });
}

std::vector<EmbeddingPlan> enumerate_plans(const EmbeddingTask&) {
  return flat_plans<EmbeddingPlan>(
      {1, 2, 4, 8}, [](auto& plans, const EmbeddingPlan& plan) { plans.push_back(plan); });
}

std::vector<SamplingPlan> enumerate_plans(const SamplingTask&) {
  return flat_plans<SamplingPlan>(
      {1, 2, 4, 8}, [](auto& plans, const SamplingPlan& plan) { plans.push_back(plan); });
}

}  // namespace ac
