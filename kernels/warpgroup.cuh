// Products of four warps on tensor cores, straight from shared memory (wgmma; sm_90a alone): PTX,
// as in ptx.cuh, and what it means on the host device. Products are asynchronous: what is added to
// holds its sum after products_wait() and no earlier, and what is multiplied may not change before.
#pragma once

#include "kernels/ptx.cuh"

namespace ac::kernels {

// Where chunk c (16 bytes) of row r lies, of `rows` rows of 16-bit elements in shared memory:
// panels of 64 elements, each row of a panel 128 bytes that are swizzled by its number. The memory
// starts at a multiple of 1024 bytes, and `rows` are whole eights.
template <int rows>
struct PanelRows {
  static constexpr int alignment = 1024, row_bytes = 128, panel_bytes = rows * row_bytes;
  static constexpr int bytes(int elements) { return elements / 64 * panel_bytes; }
  AC_DEVICE static int offset(int row, int chunk) {
    return chunk / 8 * panel_bytes + row * 128 + (chunk % 8 ^ row % 8) * 16;
  }
};

#ifdef AC_HOST_DEVICE

// Rows and columns of such panels, from an element on.
struct SharedTile {
  const unsigned char* at;
  int panel_bytes;
};
template <int rows>
SharedTile shared_tile(const unsigned char* panels) {
  return {panels, PanelRows<rows>::panel_bytes};
}
inline SharedTile moved(SharedTile tile, int bytes) { return {tile.at + bytes, tile.panel_bytes}; }

// Addresses are swizzled, not offsets.
template <class T>
float element(SharedTile tile, int row, int column) {
  auto address = reinterpret_cast<std::uintptr_t>(tile.at + column / 64 * tile.panel_bytes +
                                                  row * 128 + column % 64 * 2);
  address ^= address >> 3 & 0x70;
  return to_float(*reinterpret_cast<const T*>(address));
}

// Sixteen elements of a row, from a multiple of 8 on: two chunks, which stay whole.
template <class T>
void load_sixteen(float (&to)[16], SharedTile tile, int row) {
  for (int chunk = 0; chunk < 2; ++chunk) {
    auto address = reinterpret_cast<std::uintptr_t>(tile.at + row * 128 + chunk * 16);
    address ^= address >> 3 & 0x70;
    for (int i = 0; i < 8; ++i)
      to[chunk * 8 + i] = to_float(reinterpret_cast<const T*>(address)[i]);
  }
}

inline void products_begin() {}
inline void products_commit() { host::commit_deferred(); }
template <int groups_left>
void products_wait(host::Place place = host::Place::current()) {
  host::wait_for_deferred(groups_left, place);
}
template <int count>
void hold(float (&)[count][4]) {}
inline void publish_to_products() { host::note_publication(); }
template <int count>
void take_registers() {}
template <int count>
void give_registers() {}

// c[64, n] += a[64, 16] b[n, 16] transposed; c begins at 0 unless `add`. Of c, a thread holds what
// it holds of an mma's: its warp has 16 rows.
template <class T, int n>
void multiply_shared(float (&c)[n / 8][4], SharedTile a, SharedTile b, bool add) {
  const int lane = threadIdx.x % 32, first_row = threadIdx.x / 32 % 4 * 16 + lane / 4;
  host::defer([&c, a, b, add, lane, first_row] {
    // Most of what a whole product costs on the host is here: four sums at once.
    using Four = float __attribute__((vector_size(16)));
    float rows[2][16], columns[2][16];
    for (int half = 0; half < 2; ++half) load_sixteen<T>(rows[half], a, first_row + half * 8);
    Four row[16];
    for (int k = 0; k < 16; ++k) row[k] = Four{rows[0][k], rows[0][k], rows[1][k], rows[1][k]};
    for (int j = 0; j < n / 8; ++j) {
      for (int i = 0; i < 2; ++i) load_sixteen<T>(columns[i], b, 8 * j + lane % 4 * 2 + i);
      Four sums = {};
      if (add) sums = Four{c[j][0], c[j][1], c[j][2], c[j][3]};
      for (int k = 0; k < 16; ++k)
        sums += row[k] * Four{columns[0][k], columns[1][k], columns[0][k], columns[1][k]};
      for (int i = 0; i < 4; ++i) c[j][i] = sums[i];
    }
  });
}

// c[64, n] += a[64, 16] b[16, n], where a is in registers as an mma's left operand; of b[n, 16] its
// transpose if `transposed`.
template <class T, int n, bool transposed>
void multiply_held(float (&c)[n / 8][4], const unsigned (&a)[4], SharedTile b, bool add,
                   host::Place place = host::Place::current()) {
  struct Rows {
    unsigned part[4];
    float row[2][16];
  } mine;
  for (int i = 0; i < 4; ++i) mine.part[i] = a[i];
  host::warp_collective(
      "multiply_held", full_warp, &mine,
      [](void* const payloads[32], host::Place) {
        for (int lane = 0; lane < 32; ++lane)
          for (int k = 0; k < 16; ++k)
            for (int half = 0; half < 2; ++half) {
              const auto* from = static_cast<Rows*>(payloads[lane / 4 * 4 + k % 8 / 2]);
              const float2 pair = unpack_pair<T>(from->part[half + 2 * (k / 8)]);
              static_cast<Rows*>(payloads[lane])->row[half][k] = k % 2 ? pair.y : pair.x;
            }
      },
      place);
  host::defer([&c, mine, b, add, lane = static_cast<int>(threadIdx.x % 32)] {
    float columns[2][16];
    for (int j = 0; j < n / 8; ++j) {
      for (int i = 0; i < 2; ++i)
        for (int k = 0; k < 16; ++k) {
          const int column = 8 * j + lane % 4 * 2 + i;
          columns[i][k] = transposed ? element<T>(b, column, k) : element<T>(b, k, column);
        }
      for (int i = 0; i < 4; ++i) {
        if (!add) c[j][i] = 0;
        for (int k = 0; k < 16; ++k) c[j][i] += mine.row[i / 2][k] * columns[i % 2][k];
      }
    }
  });
}

#else

// A matrix descriptor: address, bytes from panel to panel and between eights of rows (each in
// units of 16), and the swizzle of 128 bytes.
using SharedTile = unsigned long long;
template <int rows>
AC_DEVICE SharedTile shared_tile(const unsigned char* panels) {
  return static_cast<unsigned long long>((shared_address(panels) & 0x3ffff) >> 4) |
         static_cast<unsigned long long>(PanelRows<rows>::panel_bytes >> 4) << 16 |
         static_cast<unsigned long long>(1024 >> 4) << 32 | 1ull << 62;
}
AC_DEVICE SharedTile moved(SharedTile tile, int bytes) { return tile + (bytes >> 4); }

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define AC_WARPGROUP(...) asm volatile(__VA_ARGS__)
#else  // such a plan is not for this GPU
#define AC_WARPGROUP(...) __trap()
#endif

// Before products of registers that other instructions wrote.
AC_DEVICE void products_begin() { AC_WARPGROUP("wgmma.fence.sync.aligned;" :: : "memory"); }
AC_DEVICE void products_commit() { AC_WARPGROUP("wgmma.commit_group.sync.aligned;" :: : "memory"); }
template <int groups_left>
AC_DEVICE void products_wait() {
  AC_WARPGROUP("wgmma.wait_group.sync.aligned %0;" ::"n"(groups_left) : "memory");
}
// Sums are neither read nor written by what the compiler might move over a wait.
template <int count>
AC_DEVICE void hold(float (&sums)[count][4]) {
  AC_UNROLL
  for (auto& part : sums)
    asm volatile("" : "+f"(part[0]), "+f"(part[1]), "+f"(part[2]), "+f"(part[3])::"memory");
}
// What this thread wrote to shared memory becomes visible to products after the next barrier.
AC_DEVICE void publish_to_products() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// Four warps that need many registers take those that four others of the block give. No __trap()
// may be in such a kernel: with one, ptxas takes nothing.
template <int count>
AC_DEVICE void take_registers() {
  AC_WARPGROUP("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}
template <int count>
AC_DEVICE void give_registers() {
  AC_WARPGROUP("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}

template <class T>
constexpr bool is_f16 = false;
template <>
constexpr bool is_f16<f16> = true;

#define AC_SUM(c, i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define AC_SUMS_8(c, i)                                                                 \
  AC_SUM(c, i), AC_SUM(c, i + 1), AC_SUM(c, i + 2), AC_SUM(c, i + 3), AC_SUM(c, i + 4), \
      AC_SUM(c, i + 5), AC_SUM(c, i + 6), AC_SUM(c, i + 7)
#define AC_SUM_NAMES_64                                                                         \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24," \
  "%25,%26,%27,%28,%29,%30,%31}"
#define AC_SUM_NAMES_128                                                                        \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24," \
  "%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,"    \
  "%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}"
#define AC_SUM_NAMES_256                                                                        \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24," \
  "%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,"    \
  "%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,%68,"    \
  "%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,"    \
  "%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,"      \
  "%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127}"
#define AC_MULTIPLY_SHARED(type, n, names, a, b, add, ...)                                     \
  AC_WARPGROUP("{ .reg .pred p; setp.ne.b32 p, " add                                           \
               ", 0;\n\t"                                                                      \
               "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " " names ", " a \
               ", " b ", p, 1, 1, 0, 0; }" : __VA_ARGS__)
#define AC_MULTIPLY_HELD(type, n, names, a, b, add, stored, ...)                               \
  AC_WARPGROUP("{ .reg .pred p; setp.ne.b32 p, " add                                           \
               ", 0;\n\t"                                                                      \
               "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " " names ", " a \
               ", " b ", p, 1, 1, " stored "; }" : __VA_ARGS__)

template <class T, int n>
AC_DEVICE void multiply_shared(float (&c)[n / 8][4], SharedTile a, SharedTile b, bool add) {
  static_assert(n == 64 || n == 128 || n == 256, "no such instruction here");
#define AC_OPERANDS "l"(a), "l"(b), "r"(static_cast<int>(add))
#define AC_SUMS_256 AC_SUMS_8(c, 0), AC_SUMS_8(c, 8), AC_SUMS_8(c, 16), AC_SUMS_8(c, 24)
  if constexpr (n == 64 && is_f16<T>)
    AC_MULTIPLY_SHARED("f16", "64", AC_SUM_NAMES_64, "%32", "%33", "%34",
                       AC_SUMS_8(c, 0) : AC_OPERANDS);
  else if constexpr (n == 64)
    AC_MULTIPLY_SHARED("bf16", "64", AC_SUM_NAMES_64, "%32", "%33", "%34",
                       AC_SUMS_8(c, 0) : AC_OPERANDS);
  else if constexpr (n == 128 && is_f16<T>)
    AC_MULTIPLY_SHARED("f16", "128", AC_SUM_NAMES_128, "%64", "%65", "%66", AC_SUMS_8(c, 0),
                       AC_SUMS_8(c, 8) : AC_OPERANDS);
  else if constexpr (n == 128)
    AC_MULTIPLY_SHARED("bf16", "128", AC_SUM_NAMES_128, "%64", "%65", "%66", AC_SUMS_8(c, 0),
                       AC_SUMS_8(c, 8) : AC_OPERANDS);
  else if constexpr (is_f16<T>)
    AC_MULTIPLY_SHARED("f16", "256", AC_SUM_NAMES_256, "%128", "%129", "%130",
                       AC_SUMS_256 : AC_OPERANDS);
  else
    AC_MULTIPLY_SHARED("bf16", "256", AC_SUM_NAMES_256, "%128", "%129", "%130",
                       AC_SUMS_256 : AC_OPERANDS);
#undef AC_SUMS_256
#undef AC_OPERANDS
}

template <class T, int n, bool transposed>
AC_DEVICE void multiply_held(float (&c)[n / 8][4], const unsigned (&a)[4], SharedTile b, bool add) {
  static_assert(n == 64 || n == 128, "no such instruction here");
#define AC_OPERANDS \
  "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)), "n"(!transposed)
  if constexpr (n == 64 && is_f16<T>)
    AC_MULTIPLY_HELD("f16", "64", AC_SUM_NAMES_64, "{%32,%33,%34,%35}", "%36", "%37", "%38",
                     AC_SUMS_8(c, 0) : AC_OPERANDS);
  else if constexpr (n == 64)
    AC_MULTIPLY_HELD("bf16", "64", AC_SUM_NAMES_64, "{%32,%33,%34,%35}", "%36", "%37", "%38",
                     AC_SUMS_8(c, 0) : AC_OPERANDS);
  else if constexpr (is_f16<T>)
    AC_MULTIPLY_HELD("f16", "128", AC_SUM_NAMES_128, "{%64,%65,%66,%67}", "%68", "%69", "%70",
                     AC_SUMS_8(c, 0), AC_SUMS_8(c, 8) : AC_OPERANDS);
  else
    AC_MULTIPLY_HELD("bf16", "128", AC_SUM_NAMES_128, "{%64,%65,%66,%67}", "%68", "%69", "%70",
                     AC_SUMS_8(c, 0), AC_SUMS_8(c, 8) : AC_OPERANDS);
#undef AC_OPERANDS
}

#endif

}  // namespace ac::kernels
