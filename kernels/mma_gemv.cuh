// Products with one token or a few by tensor cores; mma_gemv_plan.h says what the plan means.
//
// Each warp streams 16 weight rows, packed, through a ring of its own, which is filled before the
// kernel waits for its predecessor. A multiply-accumulate sums over the 4 lanes that have a row, so
// that what shares a scale must be in all 4: lanes read a word each of one 16-byte vector after the
// other. In tiles of 8 rows the second 8 of the 16 are the next 128 bytes of the same rows, and
// meet columns of their own; in tiles of 4 rows there are 4 such pieces. RMSNorm's scale is applied
// to the finished sums. A column's sums do not depend on the other columns: a token has the same
// bits, whatever is computed with it.
//
// One token leaves columns free. Up to 4 groups meet x in columns of their own, each beside zeros
// for the others: their sums end in one set of accumulators, of which a lane scales one.
#pragma once

#include "kernels/code_pairs.cuh"
#include "kernels/gemv_rows.cuh"
#include "kernels/mma_gemv_plan.h"
#include "kernels/ptx.cuh"
#include "kernels/vectors.cuh"

namespace ac::kernels {

// Calls visit(0), visit(1) and so on with numbers that are constants: what it indexes stays in
// registers before any loop is unrolled, as if there were no array.
template <int number>
struct Constant {
  constexpr operator int() const { return number; }
};
template <int count, class Visit>
AC_DEVICE void each(const Visit& visit) {
  if constexpr (count > 0) {
    each<count - 1>(visit);
    visit(Constant<count - 1>{});
  }
}

template <GemvOp op, MmaGemvPlan plan>
struct MmaGemv : GemvRows<op> {
  using Rows = GemvRows<op>;
  using typename Rows::Params;
  using typename Rows::W;
  using typename Rows::X;
  using typename Rows::Y;
  using Pairs = CodePairs<op.format, op.weight>;
  using Scales = RowScales<op.format>;
  static constexpr Format format = op.format;
  static constexpr int vector = op.vector(), vectors = plan.row_vectors;
  // The pitch counts these.
  static constexpr int element_bytes = format.is_plain() ? bytes_of(op.weight) : 1;
  static constexpr int outputs = plan.outputs_per_tile(op), columns = plan.columns(op);
  static constexpr int pieces = plan.pieces();  // of a row, in a slot
  static constexpr int high_bytes = plan.high_bytes(op), high_chunks = high_bytes / 16;
  static constexpr int staged = plan.staged_bytes(op), slot_bytes = plan.slot_bytes(op);
  // Scales of a vector: 1, or 2, which a half of the lanes each meets in columns of its own.
  static constexpr int scales_each = format.scales_of(vector), of_scale = 4 / scales_each;
  static constexpr int group = plan.group(op), groups = vectors / group,
                       apart = plan.groups_apart(op);
  static constexpr bool in_columns = plan.in_columns(op);
  // A slot's products are made in rounds of so many groups.
  static constexpr int of_round = in_columns ? apart : 1, rounds = groups / of_round;
  // Right matrices that hold the columns of all tokens (MmaGemvPlan::pairs_of_token()).
  static constexpr int tokens = plan.tokens, matrices = plan.matrices(op),
                       of_matrix = plan.tokens_of_matrix(op), of_token = plan.pairs_of_token(op),
                       of_pair = plan.tokens_of_pair(op);
  // A lane's sums: of each right matrix its pair's tokens, of groups that stay apart, for two rows
  // each.
  using Sums = float[matrices][of_pair][apart / of_round][2];

  // The first token that pair `pair` of a right matrix belongs to, or the second.
  AC_DEVICE static int token_of(int matrix, int pair, int second) {
    return matrix * of_matrix + pair / of_token * of_pair + second;
  }
  // The token that has a column of a right matrix.
  AC_DEVICE static int token_of_column(int matrix, int column) {
    return token_of(matrix, column / 2, of_pair == 2 ? column % 2 : 0);
  }

  // A norm may divide by far less than 1: what comes before that must not be too small to round.
  static constexpr float enlarged = op.norm ? 0x1p32f : 1;

  // Row r of a tile's 16; those past the end repeat the last one.
  struct Row {
    int matrix, number;
  };
  AC_DEVICE static Row row_of(const Params& p, int n, int tile, int r) {
    int number = tile * outputs + r % outputs;
    number = number < n ? number : n - 1;
    const int matrix = op.pair == Pair::none ? Rows::matrix_of(p, number) : r % plan.rows / outputs;
    return {matrix, number};
  }
  AC_DEVICE static Scales scales_of(const Params& p, int n, int tile, int r) {
    const auto [matrix, number] = row_of(p, n, tile, r);
    Scales scales;
    scales.point_to(p, matrix, number);
    scales.scale = in_place(scales.scale);
    return scales;
  }
  // The first vector of what row r of a tile has in a slot.
  AC_DEVICE static int first_vector(int slot, int r) {
    return slot * plan.slot_vectors() + r / plan.rows * vectors;
  }
  // Where a slot has vector v of row r: no two lanes meet in a bank, be it that they write a vector
  // each or read a word each.
  AC_DEVICE static int place_in_slot(int r, int v) { return r * plan.row_bytes + (v ^ r % 8) * 16; }

  // The same of 16 bytes of a row's high bits, of which two vectors or four have theirs.
  AC_DEVICE static int place_of_high(int r, int chunk) {
    return 16 * (plan.row_bytes + staged) + r * high_bytes +
           (high_chunks == 4 ? chunk ^ r / 2 % 4 : chunk) * 16;
  }

  // High bits of a word of each of a row's vectors.
  struct VectorHighs {
    static constexpr int bits = 8 * Pairs::high_bits;
    unsigned words[bits > 0 ? vectors* bits / 32 : 1] = {};
    AC_DEVICE void set(int v, unsigned of_word) {
      words[v * bits / 32] |= of_word << v * bits % 32;
    }
    AC_DEVICE unsigned of_word(int v) const { return words[v * bits / 32] >> v * bits % 32; }
  };

  // What a lane copies: a vector of rows lane / 8, 4 + lane / 8 and so on, and the scales of row
  // lane.
  struct Source {
    const unsigned char* row[4];
    const unsigned char* high[high_bytes > 0 ? high_chunks / 2 : 1];
    Scales scales;

    AC_DEVICE void point_to(const Params& p, int n, int tile) {
      const int lane = threadIdx.x % 32;
      AC_UNROLL
      for (int i = 0; i < 4; ++i) {
        const auto [matrix, number] = row_of(p, n, tile, lane / 8 + 4 * i);
        row[i] = in_place(static_cast<const unsigned char*>(p.matrix[matrix].weight) +
                          static_cast<long long>(number) * p.pitch * element_bytes);
      }
      if constexpr (high_bytes > 0) {
        AC_UNROLL
        for (int i = 0; i < high_chunks / 2; ++i)
          high[i] = in_place(scales_of(p, n, tile, lane / high_chunks + i * 32 / high_chunks).high);
      }
      if constexpr (format.many_scales()) scales = scales_of(p, n, tile, lane % 16);
    }
    AC_DEVICE void copy(unsigned char* to, int slot, int used, bool valid) const {
      const int lane = threadIdx.x % 32;
      AC_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int r = lane / 8 + 4 * i, v = first_vector(slot, r) + lane % 8;
        copy_weights_async<plan.cache>(to + place_in_slot(r, lane % 8), row[i] + v * 16,
                                       valid && v < used);
      }
      if constexpr (high_bytes > 0) {
        AC_UNROLL
        for (int i = 0; i < high_chunks / 2; ++i) {
          // Chunks that two lanes of a row take, or four.
          const int r = lane / high_chunks + i * 32 / high_chunks, chunk = lane % high_chunks;
          const int v = first_vector(slot, r) + chunk * vectors / high_chunks;
          copy_weights_async<plan.cache>(to + place_of_high(r, chunk),
                                         high[i] + v * vector * Pairs::high_bits / 8,
                                         valid && v < used);
        }
      }
      if constexpr (format.many_scales()) {
        const int v = first_vector(slot, lane % 16);
        if constexpr (staged > 0) {
          if (lane < 16)
            copy_async<staged>(to + 16 * plan.row_bytes + lane * staged,
                               scales.scale + v / group * scales_each * Scales::each,
                               valid && v < used);
          if (valid && v < used) bring_outer_to_l1(scales, v * vector);
        } else if (valid && v < used) {
          bring_to_l1(scales, v * vector);
        }
      }
    }
  };

  // ---- x in shared memory: a column that is rounded, and one of what rounding left

  AC_DEVICE static void stage_norm_weight(const GemvParams& p, unsigned char* shared_x) {
    const int used = p.k / 8;
    for (int i = threadIdx.x + (op.norm ? 0 : used); i < plan.padded(op, p.k) / 8;
         i += plan.threads) {
      const uint4 v =
          i < used ? static_cast<const uint4*>(p.norm_weight)[i] : make_uint4(0, 0, 0, 0);
      AC_UNROLL
      for (int c = 0; c < columns; ++c)
        *reinterpret_cast<uint4*>(shared_x + c * plan.column_bytes(op, p.k) +
                                  plan.place_of_x(op, i)) = v;
    }
  }
  // x of all tokens; adds this thread's shares of the sums of squares. It touches the vectors that
  // it touched above. Loads of all tokens are under way at once.
  AC_DEVICE static void stage_x(const GemvParams& p, const X* const (&from)[tokens],
                                unsigned char* shared_x, float (&squares)[tokens]) {
    constexpr int at_once = tokens < 4 ? 4 / tokens : 1;
    const int used = p.k / 8;
    for (int first = threadIdx.x; first < used; first += at_once * plan.threads) {
      Packed<X, 8> packed[at_once][tokens];
      AC_UNROLL
      for (int u = 0; u < at_once; ++u) {
        if (first + u * plan.threads >= used) break;
        AC_UNROLL
        for (int t = 0; t < tokens; ++t)
          packed[u][t].load(from[t] + (first + u * plan.threads) * 8);
      }
      AC_UNROLL
      for (int u = 0; u < at_once; ++u) {
        const int i = first + u * plan.threads;
        if (i >= used) break;
        AC_UNROLL
        for (int t = 0; t < tokens; ++t)
          store_x(p, packed[u][t],
                  shared_x + t * plan.token_bytes(op, p.k) + plan.place_of_x(op, i), squares[t]);
      }
    }
  }
  // A vector of a token's x, where the norm's weights are.
  AC_DEVICE static void store_x(const GemvParams& p, const Packed<X, 8>& packed, unsigned char* to,
                                float& squares) {
    float x[8];
    packed.unpack(x);
    if constexpr (op.norm) {
      float w[8];
      unpack_as<W>(*reinterpret_cast<const uint4*>(to), w);
      AC_UNROLL
      for (int e = 0; e < 8; ++e) {
        squares += x[e] * x[e];
        x[e] *= (w[e] + p.norm_offset) * enlarged;
      }
    }
    *reinterpret_cast<uint4*>(to) = Pairs::arranged(x);
    if constexpr (columns == 2) {
      float rest[8];
      AC_UNROLL
      for (int e = 0; e < 8; ++e) rest[e] = x[e] - to_float(from_float<X>(x[e]));
      *reinterpret_cast<uint4*>(to + plan.column_bytes(op, p.k)) = Pairs::arranged(rest);
    }
  }

  // ---- sums

  // What a lane multiplies with: rows lane / 4 and 8 + lane / 4 of a tile.
  struct Factors {
    Scales of_row[2];
    float scale[2], minimum[2];
    typename Pairs::Zero zero[2];

    AC_DEVICE void point_to(const Params& p, int n, int tile) {
      AC_UNROLL
      for (int h = 0; h < 2; ++h) {
        zero[h] = Pairs::zero_of(static_cast<float>(format.usual_zero()));
        if constexpr (!format.is_plain() && (staged == 0 || Scales::has_units))
          of_row[h] = scales_of(p, n, tile, threadIdx.x % 32 / 4 + 8 * h);
      }
      if constexpr (!format.is_plain() && format.columns == 0) look_up(0, 0);
    }
    // Loads the scales and minima of the groups that hold these columns, or the zero points.
    AC_DEVICE void look_up(int first, int second) {
      scale[0] = of_row[0].scale_at(first), scale[1] = of_row[1].scale_at(second);
      if constexpr (format.minima)
        minimum[0] = of_row[0].minimum_at(first), minimum[1] = of_row[1].minimum_at(second);
    }
    AC_DEVICE void look_up_zeros(int first, int second) {
      zero[0] = Pairs::zero_of(of_row[0].zero_at(first));
      zero[1] = Pairs::zero_of(of_row[1].zero_at(second));
    }
  };

  // Where a lane finds its columns of x.
  struct Columns {
    const unsigned char* x;  // of the first right matrix
    int next_matrix;         // bytes
    bool is_any[matrices];   // whether the lane has one
    // In a round of several groups: the one whose column it is. The others meet zeros.
    int of_group;
    const unsigned char* zeros;
  };
  // Vectors of a slot that are multiplied at once: two have 16 elements of a plain row.
  static constexpr int at_once = Pairs::count == 1 ? 2 : 1, pairs = at_once * Pairs::count;
  AC_DEVICE static void load_b(const unsigned char* at, unsigned (&b)[pairs]) {
    if constexpr (at_once == 2) {
      b[0] = *reinterpret_cast<const unsigned*>(at);
      b[1] = *reinterpret_cast<const unsigned*>(at + vector * 2);
    } else if constexpr (pairs == 4) {
      const uint4 v = *reinterpret_cast<const uint4*>(at);
      b[0] = v.x, b[1] = v.y, b[2] = v.z, b[3] = v.w;
    } else {
      const uint2 v = *reinterpret_cast<const uint2*>(at);
      b[0] = v.x, b[1] = v.y;
    }
  }

  // Sums of columns, before they are multiplied by scales.
  struct Products {
    float c[matrices][2][4] = {};  // in turn, so that one need not wait for the other
    float of_x[format.minima ? matrices : 1][4] = {};  // of x's columns, which minima are times
  };
  // Adds the products of vector j of a slot, and of the next ones. `load(m, b)` gives the columns
  // of a right matrix.
  template <class Load>
  AC_DEVICE static void multiply(const unsigned (&words)[2][vectors], const VectorHighs (&high)[2],
                                 int j, const Factors& factors, Products& sums, const Load& load) {
    unsigned a[2][at_once][Pairs::count];
    AC_UNROLL
    for (int h = 0; h < 2; ++h) AC_UNROLL
    for (int v = 0; v < at_once; ++v)
      Pairs::unpack(words[h][j + v], high[h].of_word(j + v), factors.zero[h], a[h][v]);
    const auto pair = [&](int h, int i) { return a[h][i / Pairs::count][i % Pairs::count]; };
    each<matrices>([&](auto m) {
      unsigned b[pairs] = {};
      load(m, b);
      AC_UNROLL
      for (int i = 0; i < pairs; i += 2)
        mma_16x8x16<typename Pairs::T>(sums.c[m][(j * Pairs::count + i) / 2 % 2],
                                       {pair(0, i), pair(1, i), pair(0, i + 1), pair(1, i + 1)},
                                       {b[i], b[i + 1]});
      if constexpr (format.minima) {
        constexpr unsigned one = op.weight == Type::bf16 ? 0x3f803f80u : 0x3c003c00u;
        AC_UNROLL
        for (int i = 0; i < pairs; i += 2)
          mma_16x8x16<typename Pairs::T>(sums.of_x[m], {one, one, one, one}, {b[i], b[i + 1]});
      }
    });
  }
  // Adds them, scaled, to those of groups that have the number `which` of those apart.
  AC_DEVICE static void add_scaled(const Products& of, const Factors& factors, int which,
                                   Sums& sums) {
    each<matrices>([&](auto m) {
      each<of_pair>([&](auto t) {
        const float(&even)[4] = of.c[m][0], (&odd)[4] = of.c[m][1];
        float(&sum)[2] = sums[m][t][which];
        AC_UNROLL
        for (int h = 0; h < 2; ++h) {
          const float added =
              (even[2 * h + t] + odd[2 * h + t]) + rest(even[2 * h + 1] + odd[2 * h + 1]);
          if constexpr (format.is_plain())
            sum[h] += added;
          else
            sum[h] = fmaf(factors.scale[h], added, sum[h]);
        }
        if constexpr (format.minima) {
          AC_UNROLL
          for (int h = 0; h < 2; ++h)
            sum[h] = fmaf(-factors.minimum[h], of.of_x[m][2 * h + t] + rest(of.of_x[m][2 * h + 1]),
                          sum[h]);
        }
      });
    });
  }
  // What the second column of a pair adds to the first one's sum.
  AC_DEVICE static float rest(float sum) { return columns == 2 ? sum : 0; }

  // Adds the products of slot number `slot` of the rows. Its place is given back as soon as it has
  // been read.
  template <class GiveBack>
  AC_DEVICE static void add_slot(const unsigned char* in, int slot, int k, const Columns& columns,
                                 Factors& factors, Sums& sums, const GiveBack& give_back) {
    const int lane = threadIdx.x % 32, quad = lane / 4;
    // Which of a vector's scales the lane's sums have, and which group's of a round.
    const int mine_of_vector = lane % scales_each;
    const int mine_of_round = in_columns ? lane % 4 / of_token % apart : 0;
    unsigned words[2][vectors];
    VectorHighs high[2];
    // Staged scales of a byte stay packed, a minimum behind its scale; others are factors already.
    constexpr bool in_bytes = staged > 0 && format.scale == ScaleType::i8;
    [[maybe_unused]] float staged_scale[2][rounds], unit[2][Scales::each + format.is_plain()];
    [[maybe_unused]] unsigned staged_bytes[2][rounds];
    AC_UNROLL
    for (int h = 0; h < 2; ++h) {
      AC_UNROLL
      for (int v = 0; v < vectors; ++v)
        words[h][v] =
            *reinterpret_cast<const unsigned*>(in + place_in_slot(quad + 8 * h, v) + lane % 4 * 4);
      if constexpr (high_bytes > 0) {
        constexpr int in_chunk = vectors / high_chunks;
        AC_UNROLL
        for (int v = 0; v < vectors; ++v) {
          const unsigned char* const of_chunk = in + place_of_high(quad + 8 * h, v / in_chunk);
          const int word = v % in_chunk * 4 + lane % 4;
          if constexpr (Pairs::high_bits == 1)
            high[h].set(v, of_chunk[word]);
          else
            high[h].set(v, reinterpret_cast<const unsigned short*>(of_chunk)[word]);
        }
      }
      if constexpr (staged > 0) {
        const unsigned char* const of = in + 16 * plan.row_bytes + (quad + 8 * h) * staged;
        const int column = first_vector(slot, quad + 8 * h) * vector;
        AC_UNROLL
        for (int which = 0; which < (in_bytes ? Scales::each : 0); ++which)
          unit[h][which] = factors.of_row[h].unit(column < k ? column : 0, which);
        AC_UNROLL
        for (int r = 0; r < rounds; ++r) {
          const int at = (r * of_round + mine_of_round) * scales_each + mine_of_vector;
          if constexpr (!in_bytes)
            staged_scale[h][r] =
                Scales::in_units(reinterpret_cast<const typename Scales::Scale*>(of)[at],
                                 factors.of_row[h].unit(0, 0));
          else if constexpr (format.minima)
            staged_bytes[h][r] = reinterpret_cast<const unsigned short*>(of)[at];
          else
            staged_bytes[h][r] = of[at];
        }
      }
    }
    __syncwarp();
    give_back();
    const unsigned char* const x =
        columns.x + slot * pieces * (plan.piece_bytes(op) + plan.gap(op));
    // The first column of group g of a slot for one half of the rows, if it is not behind the end.
    // There x is 0: any scale will do.
    const auto column_of = [&](int h, int g, int of_vector) {
      const int column =
          (first_vector(slot, quad + 8 * h) + g * group) * vector + of_vector * format.columns;
      return column < k ? column : 0;
    };
    AC_UNROLL
    for (int r = 0; r < rounds; ++r) {
      if constexpr (in_bytes) {
        AC_UNROLL
        for (int h = 0; h < 2; ++h) {
          const unsigned of = staged_bytes[h][r];
          factors.scale[h] = Scales::in_units(static_cast<signed char>(of), unit[h][0]);
          if constexpr (format.minima)
            factors.minimum[h] = Scales::in_units(static_cast<signed char>(of >> 8), unit[h][1]);
        }
      } else if constexpr (staged > 0) {
        factors.scale[0] = staged_scale[0][r], factors.scale[1] = staged_scale[1][r];
      } else if constexpr (format.columns > 0) {
        const int g = r * of_round + mine_of_round;
        factors.look_up(column_of(0, g, mine_of_vector), column_of(1, g, mine_of_vector));
      }
      Products products;
      AC_UNROLL
      for (int i = 0; i < of_round; ++i) {
        const int g = r * of_round + i;
        if constexpr (format.zeros) factors.look_up_zeros(column_of(0, g, 0), column_of(1, g, 0));
        const unsigned char* const of_one = i == columns.of_group ? x : columns.zeros;
        AC_UNROLL
        for (int j = g * group; j < (g + 1) * group; j += at_once)
          multiply(words, high, j, factors, products, [&](auto m, unsigned(&b)[pairs]) {
            if constexpr (in_columns)
              load_b(of_one + j * vector * 2, b);
            else if (columns.is_any[m])
              load_b(x + m * columns.next_matrix + j * vector * 2, b);
          });
      }
      add_scaled(products, factors, r % (apart / of_round), sums);
    }
  }
  // Adds up what was kept apart: in the first of a token's lanes, or of its sums.
  AC_DEVICE static void join(float (&sums)[apart / of_round][2]) {
    AC_UNROLL
    for (int h = 0; h < 2; ++h) {
      if constexpr (in_columns) {
        AC_UNROLL
        for (int step = 1; step < apart; step *= 2)
          sums[0][h] += __shfl_xor_sync(full_warp, sums[0][h], step * of_token);
      } else if constexpr (apart == 4) {
        sums[0][h] = (sums[0][h] + sums[1][h]) + (sums[2][h] + sums[3][h]);
      } else if constexpr (apart == 2) {
        sums[0][h] += sums[1][h];
      }
    }
  }
};

template <GemvOp op, MmaGemvPlan plan>
AC_DEVICE void mma_gemv(const GemvParamsOf<op.format, plan.tokens>& p) {
  static_assert(plan.why_illegal(op) == nullptr, "the plan is illegal for this op");
  using G = MmaGemv<op, plan>;
  constexpr int split = plan.split, tokens = plan.tokens;
  // Outputs of all tokens that a lane finishes.
  constexpr int turns = divide_up(G::outputs * tokens, 32);

  AC_DYNAMIC_SHARED(shared);
  AC_SHARED(float, warp_squares, plan.warps() * tokens);
  AC_SHARED(float, partial_sums, 2 * plan.warps() * 16 * tokens);

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, quad = lane / 4, part = warp % split;
  const int n = G::total_rows(p), tiles = (n + G::outputs - 1) / G::outputs;
  const int stride = gridDim.x * plan.tiles_per_block();
  const int first = blockIdx.x * plan.tiles_per_block() + warp / split;
  const int used = p.k / G::vector, steps = plan.steps(op, p.k);
  unsigned char* const ring = shared + plan.x_bytes(op, p.k) + warp * plan.depth * G::slot_bytes;
  const BlockTokens of = block_tokens<tokens>(p);
  // Columns of a token: of the first piece rounded and rest, then of the second. Each is two where
  // a vector has two scales, with x where the lanes' words have the first one, or the second. All
  // of them are there for each group of a round.
  constexpr int parts = G::scales_each;
  const int pair = quad / 2, of_piece = pair % G::of_token;
  const int first_token = tokens == 1 ? 0 : G::token_of_column(0, quad);
  typename G::Columns columns;
  columns.next_matrix = G::of_matrix * plan.token_bytes(op, p.k);
  each<G::matrices>([&](auto m) {
    columns.is_any[m] =
        (tokens == 1 ? pair < G::of_token * G::of_round : G::token_of_column(m, quad) < tokens) &&
        (G::of_pair == 2 || quad % 2 < G::columns) && lane % 4 / G::of_scale == of_piece % parts;
  });
  columns.x = shared + first_token * plan.token_bytes(op, p.k) +
              (G::of_pair == 2 ? 0 : quad % 2) * plan.column_bytes(op, p.k) +
              of_piece / parts * (plan.piece_bytes(op) + plan.gap(op)) + lane % 4 * (G::vector / 2);
  unsigned char* const zeros = shared + plan.x_bytes(op, p.k) - plan.zeros_bytes(op);
  columns.of_group = columns.is_any[0] ? pair / G::of_token : -1;
  columns.zeros = zeros + lane % 4 * (G::vector / 2);

  if constexpr (plan.signal == Signal::entry) launch_dependents();

  typename G::Source ahead;  // of the tile that is loaded next
  ahead.point_to(p, n, first);
  int next_tile = first, next_step = 0;
  const auto fill = [&](int u) {
    ahead.copy(ring + u * G::slot_bytes, next_step * split + part, used, next_tile < tiles);
    commit_copies();
    if (++next_step == steps) {
      next_step = 0, next_tile += stride;
      ahead.point_to(p, n, next_tile);
    }
  };
  for (int u = 0; u < plan.depth; ++u) fill(u);

  // ---- x
  for (int t = 0; t < tokens; ++t) G::stage_norm_weight(p, shared + t * plan.token_bytes(op, p.k));
  if constexpr (G::in_columns) {
    if (threadIdx.x < plan.zeros_bytes(op) / 16)
      reinterpret_cast<uint4*>(zeros)[threadIdx.x] = make_uint4(0, 0, 0, 0);
  }
  wait_for_dependency();
  const typename G::X* x[tokens];
  float squares[tokens] = {};
  G::point_to_x(p, of, x);
  G::stage_x(p, x, shared, squares);
  if constexpr (op.norm) G::template share_squares<plan.warps()>(squares, warp_squares);
  __syncthreads();
  const auto token_of_turn = [&](int u) { return tokens == 1 ? 0 : (u * 32 + lane) / G::outputs; };
  float norm_scale[turns];
  each<turns>([&](auto u) {
    norm_scale[u] = 1;
    if constexpr (op.norm) {
      const int token = token_of_turn(u) < tokens ? token_of_turn(u) : 0;
      float total = 0;
      AC_UNROLL
      for (int i = 0; i < plan.warps(); ++i) total += warp_squares[token * plan.warps() + i];
      norm_scale[u] = rsqrtf(total / static_cast<float>(p.k) + p.norm_eps) / G::enlarged;
    }
  });

  // A block's warps go through their tiles together if they share rows, each alone otherwise.
  const int last_of_block = split == 1 ? first : blockIdx.x * plan.tiles_per_block();
  int tile = first, slot = 0, buffer = 0;
  for (int lead = last_of_block; lead < tiles; lead += stride, tile += stride) {
    if constexpr (plan.signal == Signal::last_group)
      if (tile + stride >= tiles) launch_dependents();
    // What this lane finishes: output row of a token, if it writes.
    int row[turns];
    bool writes[turns];
    float residual[turns];
    each<turns>([&](auto u) {
      row[u] = tile * G::outputs + (tokens == 1 ? lane : (u * 32 + lane) % G::outputs);
      writes[u] = part == 0 && u * 32 + lane < of.count * G::outputs && row[u] < n;
      residual[u] = 0;
      if constexpr (op.residual)
        if (writes[u]) residual[u] = G::residual_of(p, of.first + token_of_turn(u), n, row[u]);
    });
    typename G::Factors factors;
    factors.point_to(p, n, tile);
    typename G::Sums sums = {};
    for (int step = 0; step < steps; ++step) {
      wait_for_copies<plan.depth - 1>();
      __syncwarp();
      G::add_slot(ring + slot * G::slot_bytes, step * split + part, p.k, columns, factors, sums,
                  [&] { fill(slot); });
      slot = slot + 1 == plan.depth ? 0 : slot + 1;
    }
    // The lanes whose columns are a token's have its sums: each piece's a lane, the first one the
    // first piece's; with two scales a vector, two lanes each.
    each<G::matrices>([&](auto m) {
      each<G::of_pair>([&](auto t) {
        G::join(sums[m][t]);
        auto& of_rows = sums[m][t][0];
        if constexpr (parts == 2) {
          AC_UNROLL
          for (float& sum : of_rows) sum += __shfl_xor_sync(full_warp, sum, 1);
        }
        if constexpr (G::pieces == 2) {
          of_rows[0] += __shfl_xor_sync(full_warp, of_rows[1], parts);
        } else if constexpr (G::pieces == 4) {
          // Two pieces are in a lane's first row or second, of lanes that are 4 rows apart.
          of_rows[0] = lane % 4 < 2 ? of_rows[0] : of_rows[1];
          of_rows[0] += __shfl_xor_sync(full_warp, of_rows[0], 2);
          of_rows[0] += __shfl_xor_sync(full_warp, of_rows[0], 4 * 4 + 1);
        }
      });
    });
    // Two buffers in turn: nobody can be two tiles ahead of the barrier.
    float* const partial = partial_sums + buffer * plan.warps() * 16 * tokens;
    buffer ^= 1;
    each<G::matrices>([&](auto m) {
      each<G::of_pair>([&](auto t) {
        const int token = tokens == 1 ? 0 : G::token_of(m, lane % 4, t);
        if (lane % (tokens == 1 ? 4 : G::of_token) == 0 && token < tokens) {
          const int at = (warp * tokens + token) * 16 + quad;
          partial[at] = sums[m][t][0][0];
          if constexpr (G::pieces == 1) partial[at + 8] = sums[m][t][0][1];
        }
      });
    });
    if constexpr (split > 1)
      __syncthreads();
    else
      __syncwarp();
    each<turns>([&](auto u) {
      if (writes[u]) {
        const int token = token_of_turn(u);
        const int output = tokens == 1 ? lane : (u * 32 + lane) % G::outputs;
        float value = 0, up = 0;
        for (int i = 0; i < split; ++i) {
          const int sums_at = ((warp + i) * tokens + token) * 16;
          value += partial[sums_at + output];
          if constexpr (op.pair != Pair::none) up += partial[sums_at + G::outputs + output];
        }
        unsigned long long no_argmax = 0;
        G::finish(p, of.first + token, row[u], value, up, norm_scale[u], residual[u], no_argmax);
      }
    });
  }
}

}  // namespace ac::kernels

// Put op and plan in parentheses if they hold commas.
#define AC_MMA_GEMV_KERNEL(name, op, plan)                                       \
  using name##_params = ::ac::kernels::GemvParamsOf<(op).format, (plan).tokens>; \
  AC_KERNEL_ENTRY(name, name##_params, (plan).threads, (plan).resident,          \
                  ::ac::kernels::mma_gemv<op, plan>(p))
