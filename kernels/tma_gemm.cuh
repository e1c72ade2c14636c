// The product by wgmma of tiles that the copy engine brings; tma_gemm_plan.h says what op and plan
// mean.
//
// One thread of a block asks for tiles, as far ahead as the ring's slots allow; the other warps
// multiply, and tell every block that copies into a slot when they have read it. A block takes tile
// after tile, so that the next one's copies run under the last one's outputs. Blocks that have
// parts of K have one tile: they add up its sums where their rings were, and each writes its share
// of the columns.
//
// With weights in a format of codes, the four warps that only copy bring codes into a second ring,
// equally far ahead. When a slot is free, they decode its codes into the slot's 16-bit elements.
#pragma once

#include "kernels/cluster_sums.cuh"
#include "kernels/coded_tile.cuh"
#include "kernels/gemm_tile.cuh"
#include "kernels/tensor_map.cuh"
#include "kernels/tma_gemm_plan.h"
#include "kernels/warpgroup.cuh"

namespace ac::kernels {

// What becomes of a warp's finished sums: the op's own outputs. A type that stands in for this one
// has write(sums, tile, first row of the warp, memory of the warp, what begin() returned), and may
// change the sums; ask() comes before anything may be read that kernels before this one write.
struct OwnOutputs {
  static constexpr bool own = true;
  AC_DEVICE void ask() const {}
  AC_DEVICE int begin() const { return 0; }
};

template <GemmOp op, TmaGemmPlan plan, class Outputs = OwnOutputs>
struct TmaGemm {
  using T = Scalar<op.x>;
  using Y = Scalar<op.y>;
  using Tiles = GemmTile<op, plan.tile_m, plan.tile_n>;
  static constexpr int sets = op.row_sets(), outputs = plan.tile_n / sets, stages = plan.stages;
  static constexpr int x_bytes = plan.tile_m * 128;
  // Blocks that copy into each other's slots: those of its row and of its column of the cluster.
  static constexpr int sharers = plan.cluster_m + plan.cluster_n - 1;
  static constexpr int written = plan.written(op);  // of a token, by this block
  using Parts = ClusterSums<plan.cluster_k, plan.cluster_m * plan.cluster_n, sets, outputs / 8,
                            written / 8, plan.groups() * 128>;
  static_assert(Parts::bytes == plan.sent_bytes(op));
  // What 128 sums a thread leave no room for, four warps that only copy can spare.
  static constexpr bool trades_registers = plan.groups() == 2 && plan.tile_n == 256;
  static constexpr bool coded = !op.format.is_plain();
  static constexpr int makers = coded ? 4 : 0;  // warps that make elements of codes
  // More than a block begins with nobody can take: it would wait for ever.
  static constexpr int given = coded ? 88 : 40, taken = coded ? 208 : 232;
  static_assert(given + 2 * taken <= 3 * (65536 / 384 / 8 * 8));
  using Params = TmaGemmParamsOf<op.format>;

  const Params& all;
  const GemmParamsOf<op.format>& p;
  unsigned char* const ring;
  CopyBarrier *const filled, *const free;  // [stages]
  const int mine_m, mine_n, mine_k;        // this block in its cluster
  const int down, across;
  const int begin, steps;  // of K, in 64s

  AC_DEVICE TmaGemm(const Params& all, unsigned char* ring, CopyBarrier* filled, CopyBarrier* free)
      : all(all),
        p(all.gemm),
        ring(ring),
        filled(filled),
        free(free),
        mine_m(blockIdx.x % plan.cluster_m),
        mine_n(blockIdx.x / plan.cluster_m % plan.cluster_n),
        mine_k(blockIdx.x / (plan.cluster_m * plan.cluster_n) % plan.cluster_k),
        down((Tiles::tiles_m(p) + plan.cluster_m - 1) / plan.cluster_m),
        across((Tiles::tiles_n(p) + plan.cluster_n - 1) / plan.cluster_n),
        begin((p.k + 63) / 64 * mine_k / plan.cluster_k),
        steps((p.k + 63) / 64 * (mine_k + 1) / plan.cluster_k - begin) {}

  AC_DEVICE static int rank_of(int m, int n, int k) {
    return m + plan.cluster_m * (n + plan.cluster_n * k);
  }
  AC_DEVICE Parts parts(CopyBarrier* landed, CopyBarrier* ready) const {
    return {ring, landed, ready, mine_k, rank_of(mine_m, mine_n, 0)};
  }
  AC_DEVICE unsigned char* slot(int index) const { return ring + index * plan.stage_bytes(); }

  // Tiles of whole clusters, this block's part of each: down some rows of tokens before the next
  // weights, so that what runs at once shares both in L2.
  AC_DEVICE int first_tile() const { return blockIdx.x / plan.cluster(); }
  AC_DEVICE int next_tile(int tile) const {
    return plan.cluster_k > 1 ? down * across : tile + gridDim.x / plan.cluster();
  }
  AC_DEVICE bool is_tile(int tile) const { return tile < down * across; }
  AC_DEVICE Tiles place(int tile) const {
    const int group = tile / (plan.group_m * across), within = tile % (plan.group_m * across);
    const int left = down - group * plan.group_m;
    const int height = left < plan.group_m ? left : plan.group_m;
    const int row = group * plan.group_m + within % height;
    return Tiles::at(p, row * plan.cluster_m + mine_m, within / height * plan.cluster_n + mine_n);
  }

  AC_DEVICE void copy_weights(int index, int step, const Tiles& tile) const {
    constexpr int boxes = plan.boxes_n(op), rows = plan.box_n(op), of_one = boxes / sets;
    unsigned mask = 0;
    for (int i = 0; i < plan.cluster_m; ++i) mask |= 1u << rank_of(i, mine_n, mine_k);
    AC_UNROLL
    for (int i = 0; i < boxes; ++i) {
      if (i % plan.cluster_m != mine_m) continue;
      copy_box<(plan.cluster_m > 1)>(
          slot(index) + x_bytes + i * rows * 128, &all.weight[tile.matrix + i / of_one],
          (begin + step) * 64, tile.output + i % of_one * rows, filled + index, mask, down == 1);
    }
  }
  AC_DEVICE void copy_x(int index, int step, const Tiles& tile) const {
    constexpr int rows = plan.box_m();
    unsigned mask = 0;
    for (int i = 0; i < plan.cluster_n; ++i) mask |= 1u << rank_of(mine_m, i, mine_k);
    AC_UNROLL
    for (int i = 0; i < plan.cluster_n; ++i) {
      if (i != mine_n) continue;
      copy_box<(plan.cluster_n > 1)>(slot(index) + i * rows * 128, &all.x, (begin + step) * 64,
                                     tile.token + i * rows, filled + index, mask, false);
    }
  }

  // One thread's work: all copies of the block.
  AC_DEVICE void copy() const {
    prefetch_map(&all.x);
    for (int i = 0; i < op.matrices; ++i) prefetch_map(all.weight + i);
    Tiles tile = place(first_tile());
    int first = stages < steps ? stages : steps;
    // Weights need not wait for the kernel before this one.
    for (int i = 0; i < first; ++i) {
      barrier_expect(filled + i, plan.stage_bytes());
      copy_weights(i, i, tile);
    }
    wait_for_dependency();
    for (int i = 0; i < first; ++i) copy_x(i, i, tile);
    int index = first % stages, round = first / stages;
    for (int t = first_tile(); is_tile(t); t = next_tile(t), first = 0) {
      tile = place(t);
      for (int step = first; step < steps; ++step) {
        if (round > 0) barrier_wait(free + index, (round - 1) & 1);
        barrier_expect(filled + index, plan.stage_bytes());
        copy_weights(index, step, tile);
        copy_x(index, step, tile);
        if (++index == stages) index = 0, ++round;
      }
    }
    stay(index, round);
  }

  // A step of a tile, and the steps after it through all tiles of the block.
  struct Cursor {
    int tile, step;
    Tiles place;
  };
  AC_DEVICE Cursor first_step() const { return {first_tile(), 0, place(first_tile())}; }
  AC_DEVICE void advance(Cursor& at) const {
    if (++at.step < steps) return;
    at.tile = next_tile(at.tile), at.step = 0;
    if (is_tile(at.tile)) at.place = place(at.tile);
  }

  // What four warps do, of weights in a format of codes. Their first thread copies x, too.
  AC_DEVICE void make(unsigned char* codes) const {
    const CodedTile<op, plan.tile_n, 128> made(p,
                                               static_cast<int>(threadIdx.x) - plan.groups() * 128);
    const bool leads = made.thread == 0;
    Cursor copied = first_step();
    const auto copy_codes = [&](int index) {
      if (is_tile(copied.tile)) {
        made.copy(codes + index * plan.code_bytes(op), copied.place.matrix, copied.place.output,
                  (begin + copied.step) * 64);
        advance(copied);
      }
      commit_copies();
    };
    const auto scales_at = [&](const Cursor& at) {
      return made.scales(at.place.matrix, at.place.output, (begin + at.step) * 64);
    };
    if (leads) prefetch_map(&all.x);
    for (int i = 0; i < stages - 1; ++i) copy_codes(i);
    Cursor now = first_step();
    auto next_scales = scales_at(now);
    if (leads) wait_for_dependency();
    int index = 0, round = 0;
    while (is_tile(now.tile)) {
      copy_codes(index > 0 ? index - 1 : stages - 1);
      if (round > 0) barrier_wait(free + index, (round - 1) & 1);
      if (leads) {
        barrier_expect(filled + index, x_bytes);
        copy_x(index, now.step, now.place);
      }
      const auto scales = next_scales;
      advance(now);
      if (is_tile(now.tile)) next_scales = scales_at(now);
      wait_for_copies<stages - 1>();
      made.make(slot(index) + x_bytes, codes + index * plan.code_bytes(op), scales);
      publish_to_products();
      __syncwarp();
      if (threadIdx.x % 32 == 0) barrier_arrive(filled + index);
      if (++index == stages) index = 0, ++round;
    }
    if (leads) stay(index, round);
  }

  // The block stays until the others have told it of its last slots.
  AC_DEVICE void stay(int index, int round) const {
    for (int i = 0; sharers > 1 && i < stages; ++i) {
      const int last = i < index ? round : round - 1;
      if (last >= 0) barrier_wait(free + i, last & 1);
    }
  }

  // Lane `lane` tells the block that it is to tell.
  AC_DEVICE void release(int index) const {
    const int lane = threadIdx.x % 32, other = lane - plan.cluster_m;
    if (lane >= sharers) return;
    const int told = lane < plan.cluster_m ? rank_of(lane, mine_n, mine_k)
                                           : rank_of(mine_m, other + (other >= mine_n), mine_k);
    barrier_arrive(free + index, told);
  }

  // What the warps that multiply do. A warp's outputs pass through shared memory of its own, so
  // that whole sectors go to memory, and the residual comes in such.
  AC_DEVICE void multiply(unsigned char* staging, const Parts& parts,
                          const Outputs& outputs_of) const {
    const int group = threadIdx.x / 128;
    unsigned char* const mine = staging + threadIdx.x / 32 * 16 * plan.staging_pitch() * 4;
    outputs_of.ask();
    wait_for_dependency();
    [[maybe_unused]] const auto known = outputs_of.begin();
    float sums[plan.tile_n / 8][4];
    int index = 0, parity = 0;
    for (int t = first_tile(); is_tile(t); t = next_tile(t)) {
      const Tiles tile = place(t);
      int last = 0;
      for (int step = 0; step < steps; ++step) {
        barrier_wait(filled + index, parity);
        const SharedTile x = moved(shared_tile<plan.tile_m>(slot(index)), group * 64 * 128);
        const SharedTile w = shared_tile<plan.tile_n>(slot(index) + x_bytes);
        products_begin();
        AC_UNROLL
        for (int k = 0; k < 4; ++k)
          multiply_shared<T, plan.tile_n>(sums, moved(x, k * 32), moved(w, k * 32),
                                          step > 0 || k > 0);
        products_commit();
        products_wait<1>();
        if (step > 0) release(last);
        last = index;
        if (++index == stages) index = 0, parity ^= 1;
      }
      const int row = tile.token + group * 64 + threadIdx.x / 32 % 4 * 16;
      if constexpr (!Outputs::own) {
        products_wait<0>();
        hold(sums);
        release(last);
        outputs_of.write(sums, tile, row, mine, known);
        continue;
      }
      const GemmMatrix& matrix = p.matrix[tile.matrix];
      const int output = tile.output + mine_k * written;
      const Lines lines(mine, matrix, row, output);
      const bool writes = parts.writes();
      const bool whole = !op.bias && p.softcap <= 0 && matrix.y_pitch % 8 == 0 && row + 16 <= p.m &&
                         output + written <= matrix.rows;
      uint4 residuals[2][Lines::count] = {};  // of two panels: they come from far
      AC_UNROLL
      for (int q = 0; q < 2 && q < Lines::panels && op.residual; ++q)
        if (whole && writes) load_lines(lines, matrix.residual, q * Lines::panel, residuals[q]);
      products_wait<0>();
      hold(sums);
      release(last);
      float total[Parts::sent][4];
      parts.add_up(sums, total);
      if (!writes) continue;
      if (whole)
        write_lines(total, matrix, lines, residuals);
      else
        write_fours(total, matrix, row, output, reinterpret_cast<float*>(mine));
    }
  }

  // ---- outputs, of a warp 16 rows; `mine` is its memory to turn them in

  using Sums = const float (&)[Parts::sent][4];

  // Rows that are all there, in lines of 16 bytes a lane: the usual case, and all of it unrolled.
  struct Lines {
    static constexpr int panel = written < 64 ? written : 64, across = panel / 8;
    static constexpr int count = across / 2, down = 32 / across;  // a lane's, and rows between them
    static constexpr int pitch = panel * 2 + 16;  // bytes: rows begin in other banks
    static constexpr int panels = written / panel;
    static_assert(pitch <= plan.staging_pitch() * 4);
    unsigned char *line, *sums;
    long long at;  // of the lane's first line in y
    int step;      // from one to the next

    AC_DEVICE Lines(unsigned char* mine, const GemmMatrix& matrix, int row, int output)
        : line(mine + lane() / across * pitch + lane() % across * 16),
          sums(mine + lane() / 4 * pitch + lane() % 4 * 4),
          at(static_cast<long long>(row + lane() / across) * matrix.y_pitch + output +
             lane() % across * 8),
          step(down * matrix.y_pitch) {}
    AC_DEVICE static int lane() { return threadIdx.x % 32; }
    AC_DEVICE uint4* staged(int i) const {
      return reinterpret_cast<uint4*>(line + i * down * pitch);
    }
  };
  AC_DEVICE static void load_lines(const Lines& lines, const void* from, int first,
                                   uint4 (&to)[Lines::count]) {
    AC_UNROLL
    for (int i = 0; i < Lines::count; ++i)
      to[i] = load_fresh(reinterpret_cast<const uint4*>(static_cast<const Y*>(from) + lines.at +
                                                        i * lines.step + first));
  }
  AC_DEVICE void write_lines(Sums sums, const GemmMatrix& matrix, const Lines& lines,
                             uint4 (&residuals)[2][Lines::count]) const {
    AC_UNROLL
    for (int q = 0; q < Lines::panels; ++q) {
      const int first = q * Lines::panel;
      if constexpr (op.residual) {
        AC_UNROLL
        for (int i = 0; i < Lines::count; ++i) *lines.staged(i) = residuals[q % 2][i];
        __syncwarp();
        if (q + 2 < Lines::panels)
          load_lines(lines, matrix.residual, first + 2 * Lines::panel, residuals[q % 2]);
      }
      AC_UNROLL
      for (int j = 0; j < Lines::panel / 8; ++j) AC_UNROLL
      for (int half = 0; half < 2; ++half) {
        auto* const pair =
            reinterpret_cast<unsigned*>(lines.sums + 8 * half * Lines::pitch + 16 * j);
        constexpr int up = sets == 2 ? written / 8 : 0;
        const int of = first / 8 + j;
        const float2 residual = op.residual ? unpack_pair<Y>(*pair) : make_float2(0, 0);
        *pair = pack_pair<Y>(
            scale_output<op>(p, matrix, 0, sums[of][2 * half], sums[of + up][2 * half], residual.x),
            scale_output<op>(p, matrix, 0, sums[of][2 * half + 1], sums[of + up][2 * half + 1],
                             residual.y));
      }
      __syncwarp();
      Y* const y = static_cast<Y*>(matrix.y) + lines.at + first;
      AC_UNROLL
      for (int i = 0; i < Lines::count; ++i)
        *reinterpret_cast<uint4*>(y + i * lines.step) = *lines.staged(i);
      __syncwarp();
    }
  }

  // Any rows, by panels of 32 columns of sums or all there are, of a pair half of each set; a lane
  // has four outputs at a time.
  AC_DEVICE void write_fours(Sums sums, const GemmMatrix& matrix, int row, int output,
                             float* mine) const {
    constexpr int panel = written < 32 / sets ? written : 32 / sets, of_set = panel / 8;
    constexpr int across = panel / 4, pitch = plan.staging_pitch();
    const int lane = threadIdx.x % 32;
    float* const to = mine + lane / 4 * pitch + lane % 4 * 2;
    AC_UNROLL_BY(1)
    for (int first = 0; first < written; first += panel) {
      AC_UNROLL
      for (int q = 0; q < written; q += panel) {
        if (q != first) continue;
        AC_UNROLL
        for (int j = 0; j < sets * of_set; ++j) AC_UNROLL
        for (int half = 0; half < 2; ++half) {
          const float(&from)[4] = sums[j / of_set * (written / 8) + q / 8 + j % of_set];
          *reinterpret_cast<float2*>(to + 8 * half * pitch + 8 * j) =
              make_float2(from[2 * half], from[2 * half + 1]);
        }
      }
      __syncwarp();
      AC_UNROLL_BY(1)
      for (int i = lane; i < 16 * across; i += 32) {
        const float* const from = mine + i / across * pitch + i % across * 4;
        FourOutputs<op> four;
        four.token = row + i / across, four.output = output + first + i % across * 4;
        four.inside = four.token < p.m && four.output < matrix.rows;
        four.load(matrix, *reinterpret_cast<const float4*>(from),
                  *reinterpret_cast<const float4*>(from + (sets - 1) * panel));
        four.write(p, matrix);
      }
      __syncwarp();
    }
  }
};

template <GemmOp op, TmaGemmPlan plan, class Outputs>
AC_DEVICE void tma_gemm_to(const TmaGemmParamsOf<op.format>& all, const Outputs& outputs) {
  static_assert(plan.why_illegal(op) == nullptr, "the plan is illegal for this op");
  using G = TmaGemm<op, plan, Outputs>;
  AC_ALIGNED_SHARED(tiles, 1024);
  AC_SHARED(CopyBarrier, filled, plan.stages);
  AC_SHARED(CopyBarrier, free, plan.stages);
  AC_SHARED(CopyBarrier, sums, 2);
  const G gemm(all, tiles, filled, free);
  unsigned char* const staging = tiles + plan.stages * plan.stage_bytes();
  const auto parts = gemm.parts(sums, sums + 1);
  launch_dependents();
  if (threadIdx.x == 0) {
    for (int i = 0; i < plan.stages; ++i) {
      barrier_init(filled + i, 1 + G::makers);
      barrier_init(free + i, G::sharers * plan.groups() * 4);  // one arrival a warp
    }
    parts.init();
    barrier_init_visible();
  }
  meet_cluster<plan.cluster()>();
  if (threadIdx.x >= plan.groups() * 128) {
    if constexpr (G::trades_registers) give_registers<G::given>();
    if constexpr (G::coded)
      gemm.make(staging + plan.staging_bytes());
    else if (threadIdx.x == plan.groups() * 128)
      gemm.copy();
  } else {
    if constexpr (G::trades_registers) take_registers<G::taken>();
    gemm.multiply(staging, parts, outputs);
  }
}

template <GemmOp op, TmaGemmPlan plan>
AC_DEVICE void tma_gemm(const TmaGemmParamsOf<op.format>& all) {
  tma_gemm_to<op, plan>(all, OwnOutputs{});
}

}  // namespace ac::kernels

// Defines the kernel `name`; its grid is (plan.grid(op, shape, SMs)).
#define AC_TMA_GEMM_KERNEL(name, op, plan)                                                     \
  AC_CLUSTER_KERNEL_ENTRY(name, ::ac::kernels::TmaGemmParamsOf<(op).format>, (plan).threads(), \
                          (plan).cluster(), ::ac::kernels::tma_gemm<op, plan>(p))
