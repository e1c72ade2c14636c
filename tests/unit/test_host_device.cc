// The host device itself: what it runs, and that it catches what a GPU would hang or go wrong on.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "kernels/cluster.cuh"
#include "kernels/layers_machine.cuh"
#include "kernels/shim/host_launch.h"
#include "tests/unit/contains.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sys/wait.h>
#include <unistd.h>
#endif

namespace ac::kernels {
namespace {

using test::contains;

__global__ void indices(unsigned* out) {
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] += block * 1000 + thread;
}

TEST_CASE("host device: grids and blocks of three dimensions run every thread once") {
  std::vector<unsigned> out(2 * 3 * 2 * 24);
  for (Schedule schedule : {Schedule::forward, Schedule::reverse, Schedule::shuffled}) {
    std::fill(out.begin(), out.end(), 0);
    const HostLaunch launch{.grid = {2, 3, 2}, .block = {4, 3, 2}, .schedule = schedule};
    CHECK(host_launch(launch, indices, out.data()).ok());
    for (unsigned block = 0; block < 12; ++block)
      for (unsigned thread = 0; thread < 24; ++thread)
        REQUIRE(out[block * 24 + thread] == block * 1000 + thread);
  }
}

__global__ void block_sum(const float* in, float* out) {
  AC_SHARED(float, sums, 4);
  AC_DYNAMIC_SHARED(memory);
  auto* all = reinterpret_cast<float*>(memory);
  all[threadIdx.x] = in[threadIdx.x];
  const float sum = warp_sum(in[threadIdx.x]);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) out[0] = sums[0] + sums[1] + sums[2] + sums[3];
  if (threadIdx.x == 1)
    for (unsigned i = 0; i < blockDim.x; ++i) out[1] += all[i];
  out[2 + threadIdx.x] = __shfl_sync(full_warp, in[threadIdx.x], 5);
  if (threadIdx.x < 32 && __any_sync(full_warp, threadIdx.x == 7)) out[2] = 100;
  if (threadIdx.x < 32 && __ballot_sync(full_warp, threadIdx.x < 4) != 15) out[2] = -1;
  if (threadIdx.x < 16) {
    const auto other = __shfl_xor_sync(0xffff, static_cast<float>(threadIdx.x), 15);
    if (threadIdx.x == 1) out[3] = other;
  }
}

TEST_CASE("host device: shared memory, barriers, shuffles and votes") {
  std::vector<float> in(128), out(130);
  float total = 0;
  for (unsigned i = 0; i < 128; ++i) in[i] = static_cast<float>(i), total += in[i];
  CHECK(host_launch({.grid = {}, .block = {128}, .shared_bytes = 512}, block_sum, in.data(),
                    out.data())
            .error == "");
  CHECK(out[0] == total);
  CHECK(out[1] == total);
  CHECK(out[2] == 100);
  CHECK(out[3] == 14);
  CHECK(out[2 + 40] == 37);
}

__global__ void read_unwritten_shared(float* out) {
  AC_SHARED(float, value, 1);
  AC_DYNAMIC_SHARED(memory);
  out[0] = *value;
  out[1] = reinterpret_cast<float*>(memory)[0];
}

// In one switch of lanes, and by the shuffles that a GPU does. No lane's result is another's.
__global__ void lanes_at_once(const float* in, float* at_once, float* by_shuffles) {
  const float mine = in[threadIdx.x];
  const auto combine = [](float a, float b) { return fmaf(3, a, b); };
  float reduced = mine, sums[2][3];
  for (int lanes = 16; lanes > 0; lanes /= 2)
    reduced = combine(reduced, __shfl_xor_sync(full_warp, reduced, lanes));
  const OfLanes<float> all(mine);
  for (int i = 0; i < 6; ++i) sums[i / 3][i % 3] = mine * static_cast<float>(i + 1);
  warp_sum(sums);
  float* const ours = at_once + threadIdx.x * 39;
  float* const theirs = by_shuffles + threadIdx.x * 39;
  ours[0] = warp_reduce(mine, combine), theirs[0] = reduced;
  for (int lane = 0; lane < 32; ++lane) {
    ours[1 + lane] = all[lane];
    theirs[1 + lane] = __shfl_sync(full_warp, mine, lane);
  }
  for (int i = 0; i < 6; ++i) {
    float sum = mine * static_cast<float>(i + 1);
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(full_warp, sum, lanes);
    ours[33 + i] = sums[i / 3][i % 3], theirs[33 + i] = sum;
  }
}

TEST_CASE("host device: what lanes do at once is what shuffles do, bit for bit") {
  std::vector<float> in(64);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = std::sin(static_cast<float>(i + 1));
  for (Schedule schedule : {Schedule::forward, Schedule::reverse, Schedule::shuffled}) {
    std::vector<float> at_once(64 * 39, NAN), by_shuffles(64 * 39);
    CHECK(host_launch({.grid = {}, .block = {64}, .schedule = schedule}, lanes_at_once, in.data(),
                      at_once.data(), by_shuffles.data())
              .error == "");
    CHECK(at_once == by_shuffles);
    CHECK(at_once[0] != at_once[39]);
  }
}

TEST_CASE("host device: shared memory starts as NaN") {
  float out[2] = {};
  CHECK(host_launch({.shared_bytes = 4}, read_unwritten_shared, out).ok());
  CHECK(std::isnan(out[0]));
  CHECK(std::isnan(out[1]));
}

__global__ void barrier_after_exit(int* out) {
  if (threadIdx.x >= 32) return;
  __syncthreads();
  out[threadIdx.x] = 1;
}
__global__ void barriers_at_two_places() {
  if (threadIdx.x < 32)
    __syncthreads();
  else
    __syncthreads();
}
__global__ void shuffle_by_half_a_warp(float* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_xor_sync(full_warp, 1.f, 1);
}
__global__ void shuffle_against_vote(float* out) {
  if (threadIdx.x < 16)
    out[threadIdx.x] = __shfl_xor_sync(full_warp, 1.f, 1);
  else
    out[threadIdx.x] = static_cast<float>(__any_sync(full_warp, 1));
}
__global__ void shuffle_outside_the_mask(float* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffff, 1.f, 20);
}
__global__ void wait_for_a_copy_that_nobody_starts() {
  AC_SHARED(CopyBarrier, barrier, 1);
  if (threadIdx.x == 0) barrier_init(barrier);
  __syncthreads();
  barrier_wait(barrier, 0);
}

// The first warps hand values around while the last one does not wait.
__global__ void first_warps_meet(int* out, unsigned come) {
  AC_SHARED(int, values, 96);
  const unsigned i = threadIdx.x;
  if (i >= come) return;
  values[i] = static_cast<int>(i);
  meet_first<64>();
  out[i] = values[i ^ 32];
}

TEST_CASE("host device: a block's first threads meet without the others") {
  std::vector<int> out(96, -1);
  const HostLaunch launch{.name = "first", .block = {96}};
  CHECK(host_launch(launch, first_warps_meet, out.data(), 64u).ok());
  for (int i = 0; i < 96; ++i) CHECK(out[i] == (i < 64 ? i ^ 32 : -1));
  CHECK(contains(host_launch(launch, first_warps_meet, out.data(), 32u).error,
                 "32 threads (first 0) wait in a barrier of the block's first threads"));
  CHECK(contains(host_launch(launch, first_warps_meet, out.data(), 96u).error,
                 "a thread comes to a barrier of others"));
}

TEST_CASE("host device: divergence and deadlock are errors that say where") {
  std::vector<int> ints(64);
  std::vector<float> floats(64);
  const HostLaunch launch{.name = "planted", .block = {64}};
  std::string error = host_launch(launch, barrier_after_exit, ints.data()).error;
  CHECK(contains(error, "deadlock"));
  CHECK(contains(error, "kernel planted, block (0, 0, 0)"));
  CHECK(contains(error, "32 threads (first 32) returned"));
  CHECK(contains(error, "32 threads (first 0) wait in __syncthreads at test_host_device.cc:"));

  error = host_launch(launch, barriers_at_two_places).error;
  CHECK(contains(error, "divergent barrier"));
  error = host_launch(launch, shuffle_by_half_a_warp, floats.data()).error;
  CHECK(contains(error, "16 threads (first 0) wait in shuffle"));
  error = host_launch(launch, shuffle_against_vote, floats.data()).error;
  CHECK(contains(error, "diverges from thread"));
  error = host_launch(launch, shuffle_outside_the_mask, floats.data()).error;
  CHECK(contains(error, "outside its mask"));
  error = host_launch(launch, wait_for_a_copy_that_nobody_starts).error;
  CHECK(contains(error, "deadlock"));
  CHECK(contains(error, "a wait for bulk copies"));

  // The next launch is not disturbed.
  CHECK(host_launch({.block = {64}}, indices, std::vector<unsigned>(64).data()).ok());
  CHECK(contains(host_launch({.block = {2000}}, barriers_at_two_places).error, "2000 threads"));
  CHECK(contains(host_launch({.grid = {0}}, barriers_at_two_places).error, "empty grid"));
}

__global__ void copies(const float* in, float* out, bool wait) {
  AC_DYNAMIC_SHARED(memory);
  auto* target = reinterpret_cast<float*>(memory);
  AC_SHARED(CopyBarrier, barrier, 1);
  if (threadIdx.x == 0) barrier_init(barrier);
  __syncthreads();
  copy_async16(target + 4 * threadIdx.x, in + 4 * threadIdx.x, threadIdx.x != 3);
  commit_copies();
  if (threadIdx.x == 0) {
    barrier_expect(barrier, 64);
    copy_bulk(target + 256, in, 64, barrier);
  }
  if (wait) wait_for_copies<0>();
  out[threadIdx.x] = target[4 * threadIdx.x];
  if (wait) barrier_wait(barrier, 0);
  if (threadIdx.x < 16) out[64 + threadIdx.x] = target[256 + threadIdx.x];
}

TEST_CASE("host device: asynchronous copies land at their wait and read as NaN before") {
  alignas(16) float in[256];
  float out[80];
  for (int i = 0; i < 256; ++i) in[i] = static_cast<float>(i);
  const HostLaunch launch{.block = {64}, .shared_bytes = 256 * 4 + 64};
  CHECK(host_launch(launch, copies, in, out, true).error == "");
  for (int i = 0; i < 64; ++i) CHECK(out[i] == (i == 3 ? 0 : static_cast<float>(4 * i)));
  for (int i = 0; i < 16; ++i) CHECK(out[64 + i] == static_cast<float>(i));
  CHECK(host_launch(launch, copies, in, out, false).ok());
  for (int i = 0; i < 80; ++i) CHECK(std::isnan(out[i]));
  CHECK(contains(host_launch(launch, copies, in + 1, out, true).error, "16 bytes"));
}

template <class T>
__global__ void multiply_16x8x16(const float* a, const float* b, float* c) {
  const int lane = static_cast<int>(threadIdx.x), row = lane / 4, pair = lane % 4 * 2;
  const auto pack_a = [&](int r, int k) { return pack_pair<T>(a[r * 16 + k], a[r * 16 + k + 1]); };
  const auto pack_b = [&](int k) { return pack_pair<T>(b[k * 8 + row], b[(k + 1) * 8 + row]); };
  const unsigned fa[4] = {pack_a(row, pair), pack_a(row + 8, pair), pack_a(row, pair + 8),
                          pack_a(row + 8, pair + 8)};
  const unsigned fb[2] = {pack_b(pair), pack_b(pair + 8)};
  float sums[4] = {1, 1, 1, 1};
  mma_16x8x16<T>(sums, fa, fb);
  c[row * 8 + pair] = sums[0], c[row * 8 + pair + 1] = sums[1];
  c[(row + 8) * 8 + pair] = sums[2], c[(row + 8) * 8 + pair + 1] = sums[3];
}

TEST_CASE("host device: mma multiplies matrices") {
  float a[256], b[128], c[128];
  for (int i = 0; i < 256; ++i) a[i] = static_cast<float>(i % 7 - 3);
  for (int i = 0; i < 128; ++i) b[i] = static_cast<float>(i % 5 - 2);
  for (auto kernel : {multiply_16x8x16<f16>, multiply_16x8x16<bf16>}) {
    CHECK(host_launch({.block = {32}}, kernel, a, b, c).error == "");
    for (int row = 0; row < 16; ++row)
      for (int column = 0; column < 8; ++column) {
        float sum = 1;
        for (int k = 0; k < 16; ++k) sum += a[row * 16 + k] * b[k * 8 + column];
        CHECK(c[row * 8 + column] == sum);
      }
  }
}

TEST_CASE("host device: float16 and bfloat16 convert exactly and round to nearest even") {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<unsigned short>(bits);
    const double f = load_element(DType::f16, &half), b = load_element(DType::bf16, &half);
    if (std::isnan(f))
      REQUIRE(std::isnan(to_float(f16{half})));
    else
      REQUIRE(to_float(f16{half}) == f);
    if (!std::isnan(f)) REQUIRE(from_float<f16>(static_cast<float>(f)).bits == half);
    if (!std::isnan(b)) REQUIRE(to_float(bf16{half}) == b);
    if (!std::isnan(b)) REQUIRE(from_float<bf16>(static_cast<float>(b)).bits == half);
  }
  unsigned state = 1;
  for (int i = 0; i < 200000; ++i) {
    state = state * 1664525u + 1013904223u;
    const float x = __uint_as_float(state);
    if (std::isnan(x)) {
      REQUIRE(std::isnan(to_float(from_float<f16>(x))));
      REQUIRE(std::isnan(to_float(from_float<bf16>(x))));
      continue;
    }
    REQUIRE(to_float(from_float<f16>(x)) == round_to(DType::f16, x));
    REQUIRE(to_float(from_float<bf16>(x)) == round_to(DType::bf16, x));
  }
}

__global__ void count_blocks(unsigned* counter, float* sum, int* last) {
  atomicAdd(sum, 0.5f);
  __syncthreads();
  if (threadIdx.x == 0 && atomicInc(counter, gridDim.x - 1) == gridDim.x - 1)
    *last = static_cast<int>(blockIdx.x);
}

TEST_CASE("host device: atomics, and blocks in another order for another seed") {
  unsigned counter = 0;
  std::vector<int> last_blocks;
  for (unsigned seed = 1; seed < 10; ++seed) {
    float sum = 0;
    int last = -1;
    CHECK(
        host_launch({.grid = {5}, .block = {32}, .seed = seed}, count_blocks, &counter, &sum, &last)
            .ok());
    CHECK(counter == 0);
    CHECK(sum == 80);
    last_blocks.push_back(last);
  }
  CHECK(std::count(last_blocks.begin(), last_blocks.end(), last_blocks[0]) < 9);
}

// Threads of all the cluster's blocks count themselves; afterwards each sees all of them.
__global__ void meet_and_count(int* counts, int* seen) {
  AC_SHARED(int, mine, 1);
  const unsigned cluster = blockIdx.y * 2 + blockIdx.x / 4;
  if (threadIdx.x == 0) *mine = static_cast<int>(blockIdx.x);
  for (int round = 0; round < 3; ++round) {
    atomicAdd(counts + cluster, 1);
    meet_cluster<4>();
    if (counts[cluster] != (round + 1) * 4 * 64) atomicAdd(seen, 1000);
    meet_cluster<4>();
  }
  if (*mine != static_cast<int>(blockIdx.x)) atomicAdd(seen, 1000000);
  if (threadIdx.x == 0) atomicAdd(seen, 1);
}

// Each block sends to the next of its cluster, and then tells the one before that it has read.
__global__ void pass_on(float* out, bool wait) {
  AC_DYNAMIC_SHARED(memory);
  AC_SHARED(CopyBarrier, landed, 1);
  AC_SHARED(CopyBarrier, read, 1);
  const int rank = static_cast<int>(blockIdx.x % 4), thread = static_cast<int>(threadIdx.x);
  if (thread == 0) barrier_init(landed, 1), barrier_init(read, 2);
  meet_cluster<4>();
  if (thread == 0) barrier_expect(landed, 64 * 16);
  const auto value = static_cast<float>(blockIdx.x * 100) + static_cast<float>(thread);
  store_async16(cluster_address(memory + thread * 16, (rank + 1) % 4), make_float4(value, 1, 2, 3),
                cluster_address(landed, (rank + 1) % 4));
  if (wait) barrier_wait_for_cluster(landed, 0);
  const auto got = reinterpret_cast<const float4*>(memory)[thread];
  out[blockIdx.x * 64 + threadIdx.x] = got.x + got.y + got.z + got.w;
  __syncwarp();
  if (thread % 32 == 0) barrier_arrive(read, (rank + 3) % 4);
  barrier_wait(read, 0);
}

TEST_CASE("host device: blocks of a cluster meet, and store to each other") {
  std::vector<float> out(8 * 64);
  for (Schedule schedule : {Schedule::forward, Schedule::reverse, Schedule::shuffled}) {
    HostLaunch launch{.grid = {8, 2}, .block = {64}, .cluster = 4, .schedule = schedule, .seed = 3};
    int counts[4] = {}, seen = 0;
    CHECK(host_launch(launch, meet_and_count, counts, &seen).error == "");
    CHECK(seen == 16);
    launch.grid = {8}, launch.shared_bytes = 64 * 16;
    CHECK(host_launch(launch, pass_on, out.data(), true).error == "");
    for (unsigned i = 0; i < 8 * 64; ++i) {
      const unsigned block = i / 64, from = block / 4 * 4 + (block + 3) % 4;
      REQUIRE(out[i] == static_cast<float>(from * 100 + i % 64 + 6));
    }
    CHECK(host_launch(launch, pass_on, out.data(), false).error == "");
    CHECK(std::all_of(out.begin(), out.end(), [](float x) { return std::isnan(x); }));
  }
}

enum class ClusterFault { stays_away, another_place, no_block, no_shared_memory, early, late };

__global__ void misuse_cluster(ClusterFault fault, const float* in) {
  AC_SHARED(CopyBarrier, barrier, 1);
  if (threadIdx.x == 0) barrier_init(barrier);
  if (fault == ClusterFault::early) barrier_arrive(barrier, 3);
  if (fault == ClusterFault::stays_away && blockIdx.x % 4 == 2) return;
  if (fault == ClusterFault::another_place && blockIdx.x % 4 == 2)
    meet_cluster<4>();
  else
    meet_cluster<4>();
  if (fault == ClusterFault::no_block) barrier_arrive(barrier, 4);
  if (fault == ClusterFault::no_shared_memory) (void)cluster_address(in, 1);
  if (fault == ClusterFault::late && blockIdx.x % 4 == 0) {
    barrier_wait(barrier, 0);  // of which block 1 tells at its end
    barrier_arrive(barrier, 1);
  } else if (blockIdx.x % 4 == 1 && threadIdx.x == 0) {
    barrier_arrive(barrier, 0);
  }
}

TEST_CASE("host device: a cluster's faults are errors that name the block") {
  HostLaunch launch{.name = "planted", .grid = {4}, .block = {64}, .cluster = 4};
  const float in = 0;
  const auto error = [&](ClusterFault fault) {
    return host_launch(launch, misuse_cluster, fault, &in).error;
  };
  const std::string deadlock = error(ClusterFault::stays_away);
  CHECK(contains(deadlock,
                 "deadlock: kernel planted, block (0, 0, 0); 64 threads (first 0) wait "
                 "in a cluster's barrier at test_host_device.cc:"));
  CHECK(contains(deadlock, "block (2, 0, 0); 64 threads (first 0) returned, block (3"));
  CHECK(
      contains(error(ClusterFault::another_place), "divergent barrier: kernel planted, block (2"));
  CHECK(contains(error(ClusterFault::no_block), "that is not there"));
  CHECK(contains(error(ClusterFault::no_shared_memory), "not of shared memory"));
  CHECK(contains(error(ClusterFault::early), "before its start or after its end: kernel planted"));
  CHECK(contains(error(ClusterFault::late), "after its end: kernel planted, block (0, 0, 0)"));

  launch.grid = {6};
  CHECK(contains(error(ClusterFault::late), "a grid of 6 blocks in clusters of 4"));
  launch.grid = {9}, launch.cluster = 9;
  CHECK(contains(error(ClusterFault::late), "clusters of 9"));
}

#if defined(__SANITIZE_ADDRESS__)

__global__ void overrun_shared(int count) {
  AC_DYNAMIC_SHARED(memory);
  AC_SHARED(float, fixed, 4);
  auto* values = reinterpret_cast<float*>(memory);
  if (threadIdx.x == 33) (count < 0 ? fixed : values)[count < 0 ? -count : count] = 1;
}
__global__ void overrun_global(const float* in, float* out, int count) {
  out[threadIdx.x] = in[threadIdx.x + static_cast<unsigned>(count)];
}

// Runs `body` in a child and returns what AddressSanitizer said on the way out.
template <class Body>
std::string dying_words(Body body) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 2);
    body();
    _exit(0);
  }
  close(ends[1]);
  std::string words;
  char buffer[4096];
  for (ssize_t got; (got = read(ends[0], buffer, sizeof buffer)) > 0;)
    words.append(buffer, static_cast<std::size_t>(got));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(!(WIFEXITED(status) && WEXITSTATUS(status) == 0));
  return words;
}

TEST_CASE("host device: AddressSanitizer sees one element past shared and global memory") {
  const HostLaunch launch{.block = {64}, .shared_bytes = 100 * 4};
  CHECK(host_launch(launch, overrun_shared, 99).ok());
  for (int index : {100, -4}) {
    const std::string words =
        dying_words([&] { (void)host_launch(launch, overrun_shared, index); });
    CHECK(contains(words, "use-after-poison"));
    CHECK(contains(words, "overrun_shared"));
  }
  const std::unique_ptr<float[]> in(new float[70]()), out(new float[64]());
  CHECK(host_launch(launch, overrun_global, in.get(), out.get(), 6).ok());
  const std::string words =
      dying_words([&] { (void)host_launch(launch, overrun_global, in.get(), out.get(), 7); });
  CHECK(contains(words, "heap-buffer-overflow"));
  CHECK(contains(words, "overrun_global"));
}

#endif

}  // namespace
}  // namespace ac::kernels
