// The decode GEMV kernel; gemv_plan.h says what op and plan mean.
//
// A warp takes groups of `plan.rows` weight rows, each streamed once through the warp's own ring of
// loads in flight. The ring is filled before the kernel waits for its predecessor, so that memory
// stays busy across the boundary. RMSNorm's scale is applied to the finished sums: they are linear
// in it, and so one barrier serves both x and its mean square. With several tokens, each has an x
// and sums of its own, which are added up as if it were alone.
#pragma once

#include "kernels/gemv_ring.cuh"
#include "kernels/gemv_rows.cuh"
#include "kernels/ptx.cuh"
#include "kernels/vectors.cuh"

namespace ac::kernels {

template <GemvOp op, GemvPlan plan>
struct Gemv : GemvRows<op> {
  using Rows = GemvRows<op>;
  using Reader = WeightReader<op.format, op.weight>;
  using Stored = typename Reader::Stored;
  using typename Rows::Params;
  using typename Rows::W;
  using typename Rows::X;
  using typename Rows::Y;
  static constexpr int rows = plan.rows;
  static constexpr int outputs = plan.outputs_per_group(op);
  static constexpr int tokens = plan.tokens;
  static constexpr int vector = op.vector();
  static constexpr int stored = 16 / sizeof(Stored);  // of them, or bytes, in a vector of a row
  static constexpr int x_parts = op.wide_x() ? vector / 4 : 1;  // 16-byte pieces of a vector of x

  // ---- which rows

  // Where weight row r of a group is; rows past the end repeat the last one.
  struct RowPlace {
    int matrix, row;
  };
  AC_DEVICE static RowPlace place_of(const GemvParams& p, int n, int group, int r) {
    int row = group * outputs + (op.pair == Pair::none ? r : r / 2);
    row = row < n ? row : n - 1;
    const int matrix = op.pair == Pair::none ? Rows::matrix_of(p, row) : r % 2;
    return {matrix, row};
  }
  AC_DEVICE static const Stored* weight_row(const GemvParams& p, int n, int group, int r) {
    const auto [matrix, row] = place_of(p, n, group, r);
    return static_cast<const Stored*>(p.matrix[matrix].weight) +
           static_cast<long long>(row) * p.pitch;
  }
  // The scales of a group's rows.
  struct Scales {
    RowScales<op.format> of_row[Reader::scaled ? rows : 1];

    AC_DEVICE void point_to(const Params& p, int n, int group) {
      if constexpr (Reader::scaled) {
        AC_UNROLL
        for (int r = 0; r < rows; ++r) {
          const auto [matrix, row] = place_of(p, n, group, r);
          of_row[r].point_to(p, matrix, row);
        }
      }
    }
  };

  // ---- x in shared memory

  // Vector i of x: part j of all vectors lies together, so that lanes read with no bank conflict.
  AC_DEVICE static float4& wide_part(unsigned char* shared_x, int padded, int i, int j) {
    return reinterpret_cast<float4*>(shared_x)[j * padded + i];
  }

  // Constant data only: runs before the wait.
  AC_DEVICE static void stage_norm_weight(const GemvParams& p, unsigned char* shared_x) {
    if constexpr (plan.ring == Ring::none) {
      auto* xs = reinterpret_cast<float*>(shared_x);
      for (int i = threadIdx.x; i < p.k; i += plan.threads)
        xs[i] = op.norm ? to_float(static_cast<const W*>(p.norm_weight)[i]) + p.norm_offset : 1.f;
    } else {
      const int padded = plan.padded_vectors(op, p.k), used = p.k / vector;
      for (int i = threadIdx.x; i < padded; i += plan.threads) {
        if constexpr (!op.wide_x()) {
          if (i >= used) reinterpret_cast<uint4*>(shared_x)[i] = make_uint4(0, 0, 0, 0);
        } else {
          float v[vector] = {};
          if (i < used && op.norm) {
            load_vector(static_cast<const W*>(p.norm_weight) + i * vector, v);
            AC_UNROLL
            for (int e = 0; e < vector; ++e) v[e] += p.norm_offset;
          }
          AC_UNROLL
          for (int j = 0; j < x_parts; ++j)
            wide_part(shared_x, padded, i, j) =
                make_float4(v[4 * j], v[4 * j + 1], v[4 * j + 2], v[4 * j + 3]);
        }
      }
    }
  }

  // The norm's weight goes where the first token's x will be.
  AC_DEVICE static void stage_before_x(const GemvParams& p, unsigned char* shared_x, int x_bytes) {
    stage_norm_weight(p, shared_x);
    if constexpr (tokens > 1 && plan.ring != Ring::none) {
      const int padded = plan.padded_vectors(op, p.k), used = p.k / vector;
      for (int i = used + threadIdx.x; i < padded; i += plan.threads) {
        for (int t = 1; t < tokens; ++t) {
          AC_UNROLL
          for (int j = 0; j < x_parts; ++j)
            reinterpret_cast<uint4*>(shared_x + t * x_bytes)[j * padded + i] =
                make_uint4(0, 0, 0, 0);
        }
      }
    }
  }

  AC_DEVICE static const X* vector_of(const X* x, int i) {
    // The two are the same address, and other instructions.
    if constexpr (op.wide_x()) return x + i * vector;
    return reinterpret_cast<const X*>(reinterpret_cast<const uint4*>(x) + i);
  }
  // Whether x comes as it is, by the copy engine, in pieces of so many steps: the first is used
  // while the others are under way.
  static constexpr bool x_in_pieces =
      has_bulk_copies && tokens > 1 && !op.wide_x() && plan.ring != Ring::none;
  static constexpr int pieces = x_in_pieces ? 4 : 1;
  AC_DEVICE static int steps_of_piece(int steps) {
    constexpr int turn = plan.ring == Ring::registers ? plan.depth : 1;
    return (steps + pieces * turn - 1) / (pieces * turn) * turn;
  }
  // The vectors of a piece that a part of the row has.
  struct Piece {
    int first, count;
  };
  AC_DEVICE static Piece piece_of(int piece, int part, int steps, int used) {
    const int of_piece = steps_of_piece(steps), begin = piece * of_piece;
    const int end = begin + of_piece < steps ? begin + of_piece : steps;
    const int first = (part * steps + begin) * 32 * plan.chunks;
    const int last = (part * steps + end) * 32 * plan.chunks;
    const int count = (last < used ? last : used) - first;
    return {first, count > 0 ? count : 0};
  }
  // One warp asks for all pieces; `ready[i]` says when piece i is there.
  AC_DEVICE static void ask_for_x(const X* const (&x)[tokens], unsigned char* shared_x, int x_bytes,
                                  int steps, int used, CopyBarrier* ready) {
    const int lane = threadIdx.x % 32;
    if (threadIdx.x >= 32) return;
    if (lane < pieces) {
      int count = 0;
      for (int part = 0; part < plan.split; ++part)
        count += piece_of(lane, part, steps, used).count;
      barrier_expect(ready + lane, tokens * count * 16);
    }
    __syncwarp();
    for (int piece = 0; piece < pieces; ++piece) {
      for (int part = 0; part < plan.split; ++part) {
        const Piece of = piece_of(piece, part, steps, used);
        if (of.count == 0) continue;
        AC_UNROLL
        for (int t = 0; t < tokens; ++t)
          if (lane == t)
            copy_bulk<Cache::streaming>(shared_x + t * x_bytes + of.first * 16,
                                        vector_of(x[t], of.first), of.count * 16, ready + piece);
      }
    }
  }
  // Vector i of the norm's weight.
  AC_DEVICE static void load_norm_weight(unsigned char* shared_x, int padded, int i,
                                         float4 (&weight)[x_parts]) {
    if constexpr (op.norm) {
      AC_UNROLL
      for (int j = 0; j < x_parts; ++j) weight[j] = wide_part(shared_x, padded, i, j);
    }
  }
  // Vector i of a token's x, times the norm's weight: one token finds that in its place.
  AC_DEVICE static void store_x(const Packed<X, vector>& x,
                                [[maybe_unused]] const float4 (&weight)[x_parts],
                                unsigned char* shared_x, int padded, int i, float& squares) {
    if constexpr (!op.wide_x()) {
      reinterpret_cast<uint4*>(shared_x)[i] =
          make_uint4(x.word[0], x.word[1], x.word[2], x.word[3]);
    } else {
      float v[vector];
      x.unpack(v);
      AC_UNROLL
      for (int j = 0; j < x_parts; ++j) {
        float4& part = wide_part(shared_x, padded, i, j);
        float4 w = make_float4(1, 1, 1, 1);
        if constexpr (op.norm) w = tokens == 1 ? part : weight[j];
        part =
            make_float4(w.x * v[4 * j], w.y * v[4 * j + 1], w.z * v[4 * j + 2], w.w * v[4 * j + 3]);
      }
      AC_UNROLL
      for (int e = 0; e < vector; ++e) squares += v[e] * v[e];
    }
  }
  // x of all tokens, times the norm weight; adds this thread's shares of the sums of squares. A
  // thread touches the same vectors as in stage_norm_weight. Loads of all tokens are under way at
  // once: one takes a microsecond or more while the memory streams.
  AC_DEVICE static void stage_x(const GemvParams& p, const X* const (&x)[tokens],
                                unsigned char* shared_x, int x_bytes, float (&squares)[tokens]) {
    if constexpr (plan.ring == Ring::none) {
      for (int i = threadIdx.x; i < p.k; i += plan.threads) {
        float v[tokens];
        const float weight = reinterpret_cast<const float*>(shared_x)[i];
        AC_UNROLL
        for (int t = 0; t < tokens; ++t) v[t] = to_float(load_fresh(x[t] + i));
        AC_UNROLL
        for (int t = 0; t < tokens; ++t) {
          squares[t] += v[t] * v[t];
          reinterpret_cast<float*>(shared_x + t * x_bytes)[i] = v[t] * weight;
        }
      }
    } else {
      const int padded = plan.padded_vectors(op, p.k), used = p.k / vector;
      // Registers hold so many words of x.
      constexpr int words = Packed<X, vector>::words;
      constexpr int together = words * tokens <= 32 ? tokens : words < 32 ? 32 / words : 1;
      [[maybe_unused]] constexpr int at_once = together < 4 ? 4 / together : 1;
      AC_UNROLL_BY(at_once)
      for (int i = threadIdx.x; i < used; i += plan.threads) {
        float4 weight[x_parts];
        AC_UNROLL
        for (int first = 0; first < tokens; first += together) {
          Packed<X, vector> packed[together];
          AC_UNROLL
          for (int t = 0; t < together; ++t)
            if (first + t < tokens) packed[t].load(vector_of(x[first + t], i));
          if (tokens > 1 && first == 0) load_norm_weight(shared_x, padded, i, weight);
          AC_UNROLL
          for (int t = 0; t < together; ++t)
            if (first + t < tokens)
              store_x(packed[t], weight, shared_x + (first + t) * x_bytes, padded, i,
                      squares[first + t]);
        }
      }
    }
  }

  // ---- sums

  // Adds the products of vector i of each token's x and of each row's w. Only the first `used` have
  // scales.
  AC_DEVICE static void multiply(unsigned char* shared_x, int x_bytes, int padded, int i, int used,
                                 const uint4 (&w)[rows], const Scales& scales,
                                 float (&sums)[tokens][rows][2]) {
    if constexpr (Reader::scaled) {
      multiply_codes(shared_x, x_bytes, padded, i, used, w, scales, sums);
    } else {
      AC_UNROLL
      for (int t = 0; t < tokens; ++t)
        multiply_plain(shared_x + t * x_bytes, padded, i, w, sums[t]);
    }
  }

  // The products of what shares a scale are summed up before they are scaled.
  AC_DEVICE static void multiply_codes(unsigned char* shared_x, int x_bytes, int padded, int i,
                                       int used, const uint4 (&w)[rows], const Scales& scales,
                                       float (&sums)[tokens][rows][2]) {
    constexpr int of_word = Reader::of_word, of_scale = 4 / op.format.scales_of(vector);
    // Minima are times the sum of x.
    float products[tokens][rows][2], zero[rows] = {}, of_x[tokens] = {};
    VectorHigh<op.format> high[rows];
    if (i < used) {
      AC_UNROLL
      for (int r = 0; r < rows; ++r) high[r].load(scales.of_row[r], i * vector);
    }
    AC_UNROLL
    for (int j = 0; j < 4; ++j) {
      const int column = i * vector + j / of_scale * of_scale * of_word;  // the scale's first
      if (j % of_scale == 0) {
        AC_UNROLL
        for (int t = 0; t < tokens; ++t) of_x[t] = 0;
        AC_UNROLL
        for (int r = 0; r < rows; ++r) {
          AC_UNROLL
          for (int t = 0; t < tokens; ++t) products[t][r][0] = products[t][r][1] = 0;
          if (i < used) zero[r] = scales.of_row[r].zero_at(column);
        }
      }
      float x[tokens][of_word];
      AC_UNROLL
      for (int t = 0; t < tokens; ++t) {
        AC_UNROLL
        for (int e = 0; e < of_word; e += 4) {
          const float4 part = wide_part(shared_x + t * x_bytes, padded, i, (j * of_word + e) / 4);
          x[t][e] = part.x, x[t][e + 1] = part.y, x[t][e + 2] = part.z, x[t][e + 3] = part.w;
          if constexpr (op.format.minima) of_x[t] += (part.x + part.y) + (part.z + part.w);
        }
      }
      AC_UNROLL
      for (int r = 0; r < rows; ++r) {
        const unsigned word[4] = {w[r].x, w[r].y, w[r].z, w[r].w};
        float v[of_word];
        unpack_word<op.format, op.weight>(word[j], high[r].of_word(j), zero[r], v);
        AC_UNROLL
        for (int t = 0; t < tokens; ++t) {
          AC_UNROLL
          for (int e = 0; e < of_word; ++e)
            products[t][r][e % 2] = fmaf(v[e], x[t][e], products[t][r][e % 2]);
        }
      }
      if (j % of_scale != of_scale - 1) continue;
      AC_UNROLL
      for (int r = 0; r < rows; ++r) {
        const float scale = i < used ? scales.of_row[r].scale_at(column) : 0;
        AC_UNROLL
        for (int t = 0; t < tokens; ++t) {
          auto& sum = sums[t][r];
          sum[0] = fmaf(scale, products[t][r][0], sum[0]);
          sum[1] = fmaf(scale, products[t][r][1], sum[1]);
          if constexpr (op.format.minima)
            if (i < used) sum[0] = fmaf(-scales.of_row[r].minimum_at(column), of_x[t], sum[0]);
        }
      }
    }
  }

  AC_DEVICE static void multiply_plain(unsigned char* shared_x, int padded, int i,
                                       const uint4 (&w)[rows], float (&sums)[rows][2]) {
    float x[vector];
    if constexpr (op.wide_x()) {
      AC_UNROLL
      for (int j = 0; j < x_parts; ++j) {
        const float4 part = wide_part(shared_x, padded, i, j);
        x[4 * j] = part.x, x[4 * j + 1] = part.y, x[4 * j + 2] = part.z, x[4 * j + 3] = part.w;
      }
    } else {
      unpack_as<X>(reinterpret_cast<const uint4*>(shared_x)[i], x);
    }
    AC_UNROLL
    for (int r = 0; r < rows; ++r) {
      float v[vector];
      Reader::unpack(w[r], v);
      AC_UNROLL
      for (int e = 0; e < vector; ++e) sums[r][e % 2] = fmaf(v[e], x[e], sums[r][e % 2]);
    }
  }

  // ---- outputs

  // The sums of a group of several tokens: each lane has one, in the order of tokens and then of
  // rows. (Of one token, all lanes have all: to share them costs more than it saves.)
  using Sums = SpreadSums<tokens * rows>;

  // The output of a group that a lane finishes, if `is_one`.
  struct Own {
    int token, output;
    bool is_one;
  };
  AC_DEVICE static Own own_of_lane(const BlockTokens& of) {
    const int lane = threadIdx.x % 32;
    if constexpr (tokens == 1) return {0, lane, lane < outputs};
    const int mine = Sums::mine(), token = mine / rows, row = mine % rows;
    return {token, row / op.row_sets(),
            Sums::is_first() && row % op.row_sets() == 0 && token < of.count};
  }

  // For one token: lane i finishes output i of the group.
  AC_DEVICE static void write(const GemvParams& p, const BlockTokens& of, int n, int group,
                              const float (&sums)[1][rows], float norm_scale, float residual,
                              unsigned long long& best) {
    const int lane = threadIdx.x % 32;
    float value = 0, up = 0;
    AC_UNROLL
    for (int i = 0; i < outputs; ++i)
      if (lane == i) {
        value = sums[0][i * op.row_sets()];
        if constexpr (op.pair != Pair::none) up = sums[0][i * 2 + 1];
      }
    const int row = group * outputs + lane;
    if (lane >= outputs || row >= n) return;
    Rows::finish(p, of.first, row, value, up, norm_scale, residual, best);
  }
  // For several tokens: a lane finishes the output whose first sum it has.
  AC_DEVICE static void write(const GemvParams& p, const BlockTokens& of, int n, int group,
                              float sum, float norm_scale, float residual,
                              unsigned long long& best) {
    float up = 0;
    if constexpr (op.pair != Pair::none)
      up = OfLanes<float>(sum)[(threadIdx.x + Sums::lanes_of_each) % 32];
    const Own own = own_of_lane(of);
    const int row = group * outputs + own.output;
    if (own.is_one && row < n)
      Rows::finish(p, of.first + own.token, row, sum, up, norm_scale, residual, best);
  }

  AC_DEVICE static float load_residual(const GemvParams& p, const BlockTokens& of, int n,
                                       int group) {
    if constexpr (op.residual) {
      const Own own = own_of_lane(of);
      const int row = group * outputs + own.output;
      if (own.is_one && row < n) return Rows::residual_of(p, of.first + own.token, n, row);
    }
    return 0;
  }
};

template <GemvOp op, GemvPlan plan>
AC_DEVICE void gemv(const GemvParamsOf<op.format, plan.tokens>& p) {
  static_assert(plan.why_illegal(op) == nullptr, "the plan is illegal for this op");
  using G = Gemv<op, plan>;
  constexpr int rows = plan.rows, split = plan.split, tokens = plan.tokens;

  AC_DYNAMIC_SHARED(shared);
  AC_SHARED(float, warp_squares, plan.warps() * tokens);
  AC_SHARED(float, partial_sums, 2 * (split > 1 ? plan.warps() * rows * tokens : 1));
  AC_SHARED(CopyBarrier, x_ready, G::pieces);  // if x comes in pieces
  unsigned char* const shared_x = shared;

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int part = warp % split;
  const int n = G::total_rows(p), groups = (n + G::outputs - 1) / G::outputs;
  const int stride = gridDim.x * plan.groups_per_block();
  const int first = blockIdx.x * plan.groups_per_block() + warp / split;
  const int used = p.k / G::vector;  // vectors in a row
  const int steps = plan.steps(op, p.k), padded = plan.padded_vectors(op, p.k);
  const int part_begin = part * steps * 32 * plan.chunks;
  const int x_bytes = plan.x_bytes(op, p.k);
  const BlockTokens of = block_tokens<tokens>(p);

  if constexpr (plan.signal == Signal::entry) launch_dependents();

  float sums[tokens][rows][2];
  float norm_scale = 1;
  unsigned long long best = 0;

  // Everything between the ring's first loads and its first use.
  const auto prepare = [&] {
    if constexpr (G::x_in_pieces) {
      if (threadIdx.x == 0) {
        for (int i = 0; i < G::pieces; ++i) barrier_init(x_ready + i);
        barrier_init_visible();
      }
    }
    G::stage_before_x(p, shared_x, x_bytes);
    if constexpr (G::x_in_pieces) __syncthreads();
    wait_for_dependency();
    const typename G::X* x[tokens];
    float squares[tokens] = {};
    G::point_to_x(p, of, x);
    if constexpr (G::x_in_pieces) {
      G::ask_for_x(x, shared_x, x_bytes, steps, used, x_ready);
      return;
    }
    G::stage_x(p, x, shared_x, x_bytes, squares);
    if constexpr (op.norm) G::template share_squares<plan.warps()>(squares, warp_squares);
    __syncthreads();
    if constexpr (op.norm) {
      const int own = G::own_of_lane(of).token, mine = own < tokens ? own : 0;
      float total = 0;
      AC_UNROLL
      for (int i = 0; i < plan.warps(); ++i) total += warp_squares[mine * plan.warps() + i];
      norm_scale = rsqrtf(total / static_cast<float>(p.k) + p.norm_eps);
    }
  };

  // Waits for the piece of x that begins at this step, in the first group.
  [[maybe_unused]] int piece = 0;
  const auto need_x = [&]([[maybe_unused]] int step) {
    if constexpr (G::x_in_pieces)
      if (piece < G::pieces && step == piece * G::steps_of_piece(steps))
        barrier_wait(x_ready + piece++, 0);
  };

  // A block's warps go through their groups together if they share rows, each alone otherwise.
  const int last_of_block = split == 1 ? first : blockIdx.x * plan.groups_per_block();
  int buffer = 0;
  const auto finish = [&](int group, float residual) {
    float own[tokens][rows];
    AC_UNROLL
    for (int t = 0; t < tokens; ++t) {
      AC_UNROLL
      for (int r = 0; r < rows; ++r) own[t][r] = sums[t][r][0] + sums[t][r][1];
    }
    // Two buffers in turn: nobody can be two groups ahead of the barrier.
    [[maybe_unused]] float* const partial = partial_sums + buffer * plan.warps() * rows * tokens;
    buffer ^= 1;
    const auto place = [&](int warp, int i) { return warp * rows * tokens + i; };
    if constexpr (tokens == 1) {
      warp_sum(own);
      if constexpr (split > 1) {
        AC_UNROLL
        for (int r = 0; r < rows; ++r)
          if (lane == r) partial[place(warp, r)] = own[0][r];
        __syncthreads();
        if (part != 0) return;
        AC_UNROLL
        for (int r = 0; r < rows; ++r) {
          own[0][r] = 0;
          for (int i = 0; i < split; ++i) own[0][r] += partial[place(warp + i, r)];
        }
      }
      if (group < groups) G::write(p, of, n, group, own, norm_scale, residual, best);
    } else {
      float sum = G::Sums::of(own);
      if constexpr (split > 1) {
        const int mine = G::Sums::mine();
        if (G::Sums::is_first() && mine < tokens * rows) partial[place(warp, mine)] = sum;
        __syncthreads();
        if (part != 0) return;
        sum = 0;
        if (mine < tokens * rows)
          for (int i = 0; i < split; ++i) sum += partial[place(warp + i, mine)];
      }
      if (group < groups) G::write(p, of, n, group, sum, norm_scale, residual, best);
    }
  };
  const auto clear = [&] {
    AC_UNROLL
    for (int t = 0; t < tokens; ++t) {
      AC_UNROLL
      for (int r = 0; r < rows; ++r) sums[t][r][0] = sums[t][r][1] = 0;
    }
  };
  const auto signal = [&](int group) {
    if constexpr (plan.signal == Signal::last_group)
      if (group + stride >= groups) launch_dependents();
  };
  typename G::Scales scales, ahead;     // of the group that is computed, and
  const typename G::Stored* row[rows];  // of the group that is loaded next
  const auto point_to = [&](int group) {
    AC_UNROLL
    for (int r = 0; r < rows; ++r) row[r] = G::weight_row(p, n, group, r);
    if constexpr (op.format.many_scales()) ahead.point_to(p, n, group);
  };
  // Those that vector i of each row will want.
  [[maybe_unused]] const auto bring_scales = [&]([[maybe_unused]] int i) {
    if constexpr (op.format.many_scales()) {
      AC_UNROLL
      for (int r = 0; r < rows; ++r) bring_to_l1(ahead.of_row[r], i * G::vector);
    }
  };
  point_to(first);

  if constexpr (plan.ring == Ring::registers) {
    uint4 slot[plan.depth][rows];
    const auto fill = [&](int u, int step, bool valid) {
      const int i = part_begin + step * 32 + lane;
      AC_UNROLL
      for (int r = 0; r < rows; ++r)
        load_weights<plan.cache>(slot[u][r], row[r] + i * G::stored, valid && i < used);
      if (valid && i < used) bring_scales(i);
    };
    const auto fill_all = [&] {
      AC_UNROLL
      for (int u = 0; u < plan.depth; ++u) fill(u, u, first < groups && u < steps);
    };
    fill_all();
    prepare();
    const int turns = (steps + plan.depth - 1) / plan.depth;
    int group = first;
    for (int lead = last_of_block; lead < groups; lead += stride, group += stride) {
      signal(group);
      const float residual = G::load_residual(p, of, n, group);
      scales.point_to(p, n, group);
      clear();
      for (int turn = 0; turn < turns; ++turn) {
        // A freed slot takes what it will hold one turn later, be it of the next group.
        const bool last = turn + 1 == turns;
        need_x(turn * plan.depth);
        if (last) point_to(group + stride);
        const int next = last ? 0 : (turn + 1) * plan.depth;
        const int limit = last && group + stride >= groups ? 0 : steps;
        AC_UNROLL
        for (int u = 0; u < plan.depth; ++u) {
          const int i = part_begin + (turn * plan.depth + u) * 32 + lane;
          G::multiply(shared_x, x_bytes, padded, i, used, slot[u], scales, sums);
          fill(u, next + u, next + u < limit);
        }
      }
      finish(group, residual);
    }
  } else if constexpr (plan.ring == Ring::none) {
    prepare();
    int group = first;
    for (int lead = last_of_block; lead < groups; lead += stride, group += stride) {
      signal(group);
      const float residual = G::load_residual(p, of, n, group);
      clear();
      if (group < groups) {
        point_to(group);
        scales.point_to(p, n, group);
        for (int i = part * 32 + lane; i < p.k; i += split * 32) {
          AC_UNROLL
          for (int r = 0; r < rows; ++r) {
            float w;
            if constexpr (G::Reader::scaled) {
              const auto& of_row = scales.of_row[r];
              w = G::Reader::element(row[r], i, of_row.zero_at(i)) + of_row.high_at(i);
              w = fmaf(w, of_row.scale_at(i), -of_row.minimum_at(i));
            } else {
              w = to_float(row[r][i]);
            }
            AC_UNROLL
            for (int t = 0; t < tokens; ++t) {
              const float x = reinterpret_cast<const float*>(shared_x + t * x_bytes)[i];
              sums[t][r][0] = fmaf(w, x, sums[t][r][0]);
            }
          }
        }
      }
      finish(group, residual);
    }
  } else {
    const SharedRing<op, plan> ring(shared + tokens * plan.x_bytes(op, p.k));
    int next_group = first, next_step = 0;
    const auto fill = [&](int slot) {
      const int begin = part_begin + next_step * 32 * plan.chunks;
      ring.fill(slot, row, begin, used, next_group < groups);
      AC_UNROLL
      for (int c = 0; c < plan.chunks; ++c)
        if (next_group < groups && begin + c * 32 + lane < used)
          bring_scales(begin + c * 32 + lane);
      if (++next_step == steps) next_step = 0, next_group += stride, point_to(next_group);
    };
    const auto fill_all = [&] {
      for (int u = 0; u < plan.depth; ++u) fill(u);
    };
    fill_all();
    prepare();
    int slot = 0, group = first;
    unsigned parity = 0;
    for (int lead = last_of_block; lead < groups; lead += stride, group += stride) {
      signal(group);
      const float residual = G::load_residual(p, of, n, group);
      scales.point_to(p, n, group);
      clear();
      for (int step = 0; step < steps && group < groups; ++step) {
        need_x(step);
        ring.wait(slot, parity);
        AC_UNROLL
        for (int c = 0; c < plan.chunks; ++c) {
          const int i = part_begin + (step * plan.chunks + c) * 32 + lane;
          uint4 w[rows];
          AC_UNROLL
          for (int r = 0; r < rows; ++r)
            w[r] = i < used ? ring.read(slot, r, c) : make_uint4(0, 0, 0, 0);
          G::multiply(shared_x, x_bytes, padded, i, used, w, scales, sums);
        }
        if constexpr (plan.ring == Ring::bulk_copy) __syncwarp();
        fill(slot);
        if (++slot == plan.depth) slot = 0, parity ^= 1;
      }
      finish(group, residual);
    }
  }
  if constexpr (op.argmax)
    combine_argmax<plan.warps()>(best, p.block_best, p.finished_blocks, p.best_row);
}

}  // namespace ac::kernels

// Put op and plan in parentheses if they hold commas.
#define AC_GEMV_KERNEL(name, op, plan)                                           \
  using name##_params = ::ac::kernels::GemvParamsOf<(op).format, (plan).tokens>; \
  AC_KERNEL_ENTRY(name, name##_params, (plan).threads, (plan).blocks_per_sm(),   \
                  ::ac::kernels::gemv<op, plan>(p))
