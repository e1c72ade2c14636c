// Tiles of 16-bit elements in shared memory, from asynchronous copies to tensor-core fragments.
#pragma once

#include "kernels/ptx.cuh"

namespace ac::kernels {

// Where chunk c (16 bytes) of row r lies. Copies write rows, load_matrices reads one chunk of eight
// rows; neither meets a bank twice: chunks of a power of two are swizzled by their row, others lie
// on an odd pitch (see tile_row_bytes).
template <int chunks>
struct TileRows {
  static constexpr bool swizzled = is_power_of_two(chunks);
  static constexpr int row_bytes = tile_row_bytes(chunks);
  static constexpr int rows_per_line = chunks < 8 ? 8 / chunks : 1;  // of all 32 banks
  static constexpr int mask = (chunks < 8 ? chunks : 8) - 1;

  AC_DEVICE static int offset(int row, int chunk) {
    if constexpr (swizzled) chunk ^= row / rows_per_line & mask;
    return row * row_bytes + chunk * 16;
  }
  // The offset `more` chunks further, where `offset` is of chunk 0 or 1 and `more` is even.
  AC_DEVICE static int advance(int offset, int more) {
    return swizzled ? offset ^ (more * 16) : offset + more * 16;
  }
};

// Starts a block's copies of `rows` rows of a tile to where Layout has them. row(r) points to the
// row's first element, always to valid memory; what lies at `end` and beyond, or is not valid(r),
// becomes 0.
template <class T, int rows, int chunks, int threads, class Layout = TileRows<chunks>, class Row,
          class Valid>
AC_DEVICE void copy_tile(unsigned char* shared, Row row, Valid valid, int begin, int end) {
  constexpr int count = rows * chunks;
  const int thread = in_place(threadIdx.x);
  AC_UNROLL
  for (int i = 0; i < (count + threads - 1) / threads; ++i) {
    const int at = thread + i * threads, r = at / chunks, chunk = at % chunks;
    if (count % threads != 0 && at >= count) break;
    const int first = begin + chunk * 8;
    const bool inside = first < end && valid(r);
    const T* from = row(r) + (inside ? first : 0);
    copy_async16(shared + Layout::offset(r, chunk), from, inside);
  }
}

// The same of tiles that lie one after another along the same rows, which lie a pitch apart: what a
// thread copies of each. It begins at `first`, the thread's first row, and goes `step` elements
// from one of its rows to the next; from the row `last` on it repeats that one.
template <class T, int rows, int chunks, int threads>
struct TileCopies {
  static constexpr int count = (rows * chunks + threads - 1) / threads;
  static constexpr int down = threads / chunks;  // rows from one of a thread's copies to the next
  // Else those of a thread would differ in their chunk, in how it is swizzled, or in their matrix.
  static constexpr bool fit = threads % chunks == 0 && down % 16 == 0;

  const T* from;
  int step, last, row, column, to;

  AC_DEVICE static int first_row() { return threadIdx.x / chunks; }
  AC_DEVICE TileCopies(const T* first, int step, int last)
      : from(first + threadIdx.x % chunks * 8),
        step(step),
        last(last),
        row(first_row()),
        column(threadIdx.x % chunks * 8),
        to(TileRows<chunks>::offset(row, threadIdx.x % chunks)) {}

  AC_DEVICE void start(unsigned char* shared, int begin, int end) const {
    const bool inside = begin + column < end;
    const T* const at = from + (inside ? begin : -column);
    AC_UNROLL
    for (int i = 0; i < count; ++i) {
      if (rows % down != 0 && row + i * down >= rows) break;
      copy_async16(shared + to + i * down * TileRows<chunks>::row_bytes,
                   at + (i < last ? i : last) * step, inside);
    }
  }
};

// The same of whole rows that lie one after the other: addresses need next to no arithmetic.
// Layouts repeat after eight rows.
template <class T, int rows, int chunks, int threads, class Layout = TileRows<chunks>>
AC_DEVICE void copy_whole_tile(unsigned char* shared, const T* from) {
  constexpr int count = rows * chunks, step = threads / chunks;
  constexpr bool repeats = threads % chunks == 0 && step % 8 == 0;
  const int thread = threadIdx.x;
  const T* const first = from + thread * 8;
  unsigned char* const to = shared + Layout::offset(thread / chunks, thread % chunks);
  AC_UNROLL
  for (int i = 0; i < (count + threads - 1) / threads; ++i) {
    const int at = thread + i * threads;
    if (count % threads != 0 && at >= count) break;
    copy_async16(repeats ? to + i * step * Layout::row_bytes
                         : shared + Layout::offset(at / chunks, at % chunks),
                 first + i * threads * 8);
  }
}

// A lane's place in fragments of rows from `first_row` on: of an mma's left operand (16 rows), of
// its right operand (two of 8 columns, stored as rows), and of one stored as it is multiplied.
template <int chunks>
AC_DEVICE int left_offset(int first_row) {
  const int lane = threadIdx.x % 32;
  return TileRows<chunks>::offset(first_row + lane % 16, lane / 16);
}
template <int chunks>
AC_DEVICE int right_offset(int first_row) {
  const int lane = threadIdx.x % 32;
  return TileRows<chunks>::offset(first_row + lane / 16 * 8 + lane % 8, lane / 8 % 2);
}

}  // namespace ac::kernels
