#include "tests/device/device_cases.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "base/files.h"
#include "base/temporary_folder.h"
#include "device/best_rates.h"
#include "kernels/measure_plan.h"
#include "tests/unit/expect_error.h"

namespace ac::test {
namespace {

struct StepParams {
  const void* from;
  void* to;
  unsigned count, shift, add, rounds;
};

struct LargeParams {
  void* to;
  unsigned values[8000];
};

struct ReverseParams {
  const void* from;
  void* to;
  unsigned count;
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

using Words = std::vector<unsigned>;

// Words in the device's memory.
struct DeviceWords {
  Device& device;
  std::unique_ptr<Device::Memory> memory;

  DeviceWords(Device& d, std::size_t count) : device(d), memory(d.allocate(count * 4)) {}
  DeviceWords(Device& d, const Words& words) : DeviceWords(d, words.size()) { write(words); }
  void* at() const { return memory->address(); }
  void write(const Words& words) const {
    device.upload(memory->address(), std::as_bytes(std::span(words)));
  }
  Words read() const {
    Words words(memory->bytes() / 4);
    device.download(std::as_writable_bytes(std::span(words)), memory->address());
    return words;
  }
};

Words numbers(std::size_t count) {
  Words words(count);
  std::iota(words.begin(), words.end(), 17u);
  return words;
}

// Every word becomes that of `shift` places further on, times 3, plus `add`, from one buffer to the
// other and back. The first block then works on for `rounds`, long after its neighbours are done: a
// step that does not wait for the one before it shows.
constexpr unsigned kBlock = 128;
struct Chain {
  const DeviceUnderTest& d;
  unsigned rounds = 0;
  bool at_once = false;
  std::unique_ptr<Device::Kernel> kernel = d.load("step");
  unsigned count = d.is_large ? 1u << 20 : 300u;
  DeviceWords a{d.device, numbers(count)}, b{d.device, count};

  StepParams params(unsigned step) const {
    const DeviceWords &from = step % 2 == 0 ? a : b, &to = step % 2 == 0 ? b : a;
    return {from.at(), to.at(), count, 1237 % count + step, step, rounds};
  }
  void enqueue(unsigned steps, bool overlaps = true) const {
    for (unsigned step = 0; step < steps; ++step)
      d.launch(*kernel,
               {.grid = {(count + kBlock - 1) / kBlock, 1, 1},
                .threads = kBlock,
                .overlaps = overlaps,
                .at_once = at_once},
               params(step));
  }
  Words expected(Words words, unsigned steps) const {
    for (unsigned step = 0; step < steps; ++step) {
      Words next(count);
      for (unsigned i = 0; i < count; ++i)
        next[i] = words[(i + params(step).shift) % count] * 3 + step;
      for (unsigned i = 0; i < std::min(count, kBlock); ++i)
        for (unsigned round = 0; round < rounds; ++round) next[i] = next[i] * next[i] + round;
      words.swap(next);
    }
    return words;
  }
};

}  // namespace

KernelSource device_test_source() {
  return {"device_test", R"(#include "kernels/ptx.cuh"
namespace ac::kernels {
struct StepParams { const unsigned* from; unsigned* to; unsigned count, shift, add, rounds; };
AC_DEVICE void step_body(const StepParams& p) {
  launch_dependents();
  wait_for_dependency();
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= p.count) return;
  unsigned value = load_fresh(p.from + (i + p.shift) % p.count) * 3 + p.add;
  if (blockIdx.x == 0)
    for (unsigned round = 0; round < p.rounds; ++round) value = value * value + round;
  p.to[i] = value;
}
AC_KERNEL_ENTRY(step, StepParams, 1024, 1, step_body(p))

struct LargeParams { unsigned* to; unsigned values[8000]; };
AC_DEVICE void large_body(const LargeParams& p) {
  for (unsigned i = threadIdx.x; i < 8000; i += blockDim.x) p.to[i] = p.values[i] + 1;
}
AC_KERNEL_ENTRY(large, LargeParams, 64, 1, large_body(p))

struct ReverseParams { const unsigned* from; unsigned* to; unsigned count; };
AC_DEVICE void reverse_body(const ReverseParams& p) {
  AC_DYNAMIC_SHARED(memory);
  AC_SHARED(unsigned, extra, 64);
  auto* words = reinterpret_cast<unsigned*>(memory);
  extra[threadIdx.x] = threadIdx.x;
  for (unsigned i = threadIdx.x; i < p.count; i += blockDim.x) words[i] = p.from[i];
  __syncthreads();
  const unsigned far = extra[63 - threadIdx.x];
  for (unsigned i = threadIdx.x; i < p.count; i += blockDim.x)
    p.to[i] = words[p.count - 1 - i] + far;
}
AC_KERNEL_ENTRY(reverse, ReverseParams, 64, 1, reverse_body(p))

struct PokeParams { unsigned* at; unsigned value; };
AC_DEVICE void poke_body(const PokeParams& p) { *p.at = p.value; }
AC_KERNEL_ENTRY(poke, PokeParams, 32, 1, poke_body(p))
}
)"};
}

void check_memory(const DeviceUnderTest& d) {
  const std::size_t free = d.device.free_bytes();
  CHECK(free > 1 << 20);
  const auto memory = d.device.allocate(1000), nothing = d.device.allocate(0);
  CHECK(memory->bytes() == 1000);
  CHECK(nothing->bytes() == 0);
  CHECK(reinterpret_cast<std::uintptr_t>(memory->address()) % 256 == 0);
  CHECK(nothing->address() != memory->address());

  std::vector<std::byte> bytes(1000), back(1000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7);
  d.device.upload(memory->address(), bytes);
  auto* const middle = static_cast<std::byte*>(memory->address()) + 100;
  d.device.fill(middle, 3, 0xee);
  d.device.upload(middle + 10, std::span(bytes).first(1));
  d.device.upload(middle + 20, {});
  d.device.fill(middle + 20, 0, 1);
  d.device.download(back, memory->address());
  d.device.download({}, memory->address());
  // Within the device, after what was asked for before.
  const auto other = d.device.allocate(memory->bytes());
  d.device.fill(other->address(), other->bytes(), 0x5a);
  auto* const inside = static_cast<std::byte*>(other->address()) + 8;
  d.device.copy(inside, memory->address(), 100);
  d.device.copy(inside, memory->address(), 0);
  std::vector<std::byte> copied(109);
  d.device.download(copied, other->address());
  for (std::size_t i = 0; i < copied.size(); ++i)
    CHECK(copied[i] == (i >= 8 && i < 108 ? back[i - 8] : std::byte{0x5a}));
  std::fill_n(bytes.begin() + 100, 3, std::byte{0xee});
  bytes[110] = bytes[0];
  CHECK(back == bytes);
}

void check_staging(const DeviceUnderTest& d) {
  const Chain chain{d, 100};
  const std::size_t bytes = chain.count * sizeof(unsigned);
  const auto staging = d.device.allocate_staging(2 * bytes);
  auto* const words = static_cast<unsigned*>(staging->address());
  const auto never = d.device.make_mark(), begin = d.device.make_mark(), end = d.device.make_mark();
  never->wait();
  // In order with launches, before and after.
  Words start = numbers(chain.count);
  for (unsigned& word : start) word ^= 0x5a5a;
  std::copy(start.begin(), start.end(), words);
  begin->set();
  d.device.upload_later(chain.a.at(), words, bytes);
  chain.enqueue(40);
  d.device.download_later(words + chain.count, chain.a.at(), bytes);
  d.device.download_later(nullptr, nullptr, 0);
  end->set();
  CHECK(end->seconds_since(*begin) > 0);
  CHECK(Words(words + chain.count, words + 2 * chain.count) == chain.expected(start, 40));
  end->set();  // again
  end->wait();
}

void check_large_parameters(const DeviceUnderTest& d) {
  const DeviceWords to(d.device, 8000);
  LargeParams params{to.at(), {}};
  for (unsigned i = 0; i < 8000; ++i) params.values[i] = i * i;
  const auto kernel = d.load("large");
  d.launch(*kernel, {.threads = 64}, params);
  std::memset(&params, 0, sizeof params);  // they were copied
  const Words result = to.read();
  for (unsigned i = 0; i < 8000; ++i) REQUIRE(result[i] == i * i + 1);
}

void check_chain(const DeviceUnderTest& d) {
  const Chain chain{d, 5000};
  chain.enqueue(40);
  CHECK(chain.a.read() == chain.expected(numbers(chain.count), 40));
}

void check_replays(const DeviceUnderTest& d, bool at_once) {
  Chain chain{d, 7, at_once};
  if (d.is_large) chain.count = 5000, chain.a.write(numbers(chain.a.memory->bytes() / 4));
  const unsigned steps = 10, replays = d.is_large ? 1000 : 3;
  const Words start = chain.a.read();
  const auto recording = d.device.record([&] { chain.enqueue(steps); });
  CHECK(chain.a.read() == start);  // nothing ran
  Words expected(start.begin(), start.begin() + chain.count);
  for (unsigned i = 0; i < replays; ++i) {
    recording->replay();
    expected = chain.expected(std::move(expected), steps);
  }
  Words result = chain.a.read();
  result.resize(chain.count);
  CHECK(result == expected);
}

void check_recording_outlives_kernels(const DeviceUnderTest& d) {
  const DeviceWords words(d.device, numbers(8));
  std::unique_ptr<Device::Recording> recording;
  {
    const auto kernel = d.load("poke");
    recording = d.device.record([&] {
      d.device.fill(words.at(), 32, 1);
      d.launch(*kernel, {}, PokeParams{words.at(), 5});
    });
  }
  recording->replay();
  CHECK(words.read() == Words{5, 0x01010101, 0x01010101, 0x01010101, 0x01010101, 0x01010101,
                              0x01010101, 0x01010101});

  // One that fails leaves a device that works.
  CHECK_THROWS_AS(d.device.record([] { throw std::runtime_error("no"); }), std::runtime_error);
  d.device.record([] {})->replay();
  d.device.fill(words.at(), 4, 2);
  recording->replay();
  CHECK(words.read()[0] == 5);
}

void check_dynamic_shared_memory(const DeviceUnderTest& d) {
  const auto kernel = d.load("reverse");
  const auto most = static_cast<unsigned>(d.device.info().max_shared_bytes) - 64 * 4;
  REQUIRE(most > 48 << 10);
  for (const unsigned bytes : {4096u, most}) {
    const unsigned count = bytes / 4;
    const DeviceWords from(d.device, numbers(count)), to(d.device, count);
    d.launch(*kernel, {.threads = 64, .shared_bytes = bytes},
             ReverseParams{from.at(), to.at(), count});
    const Words result = to.read();
    for (unsigned i = 0; i < count; ++i) REQUIRE(result[i] == 17 + count - 1 - i + 63 - i % 64);
  }
}

void check_time(const DeviceUnderTest& d) {
  const Chain chain{d};
  // The least of several: something else may run meanwhile.
  const auto seconds = [&](unsigned steps) {
    double least = d.device.time([&] { chain.enqueue(steps); });
    for (int i = 0; i < 4; ++i)
      least = std::min(least, d.device.time([&] { chain.enqueue(steps); }));
    return least;
  };
  seconds(1);
  const double few = seconds(10), many = seconds(400);
  CHECK(few > 0);
  CHECK(many > 5 * few);
  CHECK(many < 60);
}

void check_overlap(const DeviceUnderTest& d) {
  Chain chain{d};
  chain.count = std::min(chain.count, 20000u);
  const unsigned steps = 200;
  const auto seconds = [&](bool overlaps) {
    const auto recording = d.device.record([&] { chain.enqueue(steps, overlaps); });
    double best = 1;
    for (int i = 0; i < 5; ++i)
      best = std::min(best, d.device.time([&] { recording->replay(); }) / steps);
    return best;
  };
  const double apart = seconds(false), overlapped = seconds(true);
  MESSAGE("a launch in a recording: " << apart * 1e6 << " us, overlapped " << overlapped * 1e6
                                      << " us");
  if (d.device.info().sm >= 90) CHECK(overlapped < 0.9 * apart);
}

void check_refused_launches(const DeviceUnderTest& d) {
  const auto kernel = d.load("poke");
  const DeviceWords word(d.device, Words{7});
  const PokeParams params{word.at(), 8};
  const auto error = [&](const LaunchShape& shape, std::span<const std::byte> bytes) {
    return error_of(Fault::job_failed, [&] {
      d.device.launch(*kernel, shape, bytes);
      d.device.synchronize();
    });
  };
  const std::span<const std::byte> bytes = std::as_bytes(std::span(&params, 1));
  const std::string few = error({}, bytes.first(12));
  CHECK(contains(few, "kernel poke"));
  CHECK(contains(few, "12 bytes of parameters instead of 16"));
  CHECK(contains(error({.threads = 2048}, bytes), "kernel poke"));
  CHECK(contains(error({.grid = {0, 1, 1}}, bytes), "kernel poke"));
  CHECK(contains(error({.shared_bytes = 300 << 10}, bytes), "kernel poke"));
  if (d.device.info().sm > 0)  // the host has room for all
    CHECK(contains(error({.grid = {1u << 20, 1, 1}, .at_once = true}, bytes), "kernel poke"));
  CHECK(word.read() == Words{7});  // and the device still works
  d.device.launch(*kernel, {}, bytes);
  CHECK(word.read() == Words{8});
}

void check_refused_files(const DeviceUnderTest& d) {
  CHECK(contains(error_of(Fault::job_failed, [&] { d.load("absent"); }), "absent"));
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "kernel";
  for (const char* content : {"", "no kernel"}) {
    write_file(file, content);
    CHECK(
        contains(error_of(Fault::job_failed, [&] { d.device.load(file, "step"); }), file.string()));
  }
  CHECK_THROWS_AS(d.device.load(folder.path() / "absent", "step"), Error);
}

void check_maps(Device& device) {
  const auto memory = device.allocate(64 * 128 * 2);
  const kernels::MatrixView matrix{.base = memory->address(),
                                   .rows = 64,
                                   .columns = 100,
                                   .pitch = 128,
                                   .box_rows = 32,
                                   .bf16 = 1};
  const auto map_of = [&](const kernels::MatrixView& view) {
    kernels::TensorMap map;
    std::memset(map.bytes, 0xcd, sizeof map.bytes);
    device.encode_map(view, map);
    return std::string(reinterpret_cast<const char*>(map.bytes), sizeof map.bytes);
  };
  if (device.info().sm > 0 && device.info().sm < 90) {
    CHECK(contains(error_of(Fault::job_failed, [&] { map_of(matrix); }), "tensor maps"));
    return;
  }
  const std::string map = map_of(matrix);
  CHECK(map == map_of(matrix));  // nothing of what was there before
  kernels::MatrixView other = matrix;
  other.box_rows = 64;
  CHECK(map != map_of(other));
  other = matrix, other.bf16 = 0;
  CHECK(map != map_of(other));
  other = matrix, other.rows = 63;
  CHECK(map != map_of(other));
  other = matrix, other.columns = 128, other.box_panels = 2;
  const std::string panels = map_of(other);
  other.box_panels = 1;
  CHECK(panels != map_of(other));
  if (device.info().sm == 0) {
    std::string view(128, 0);
    std::memcpy(view.data(), &matrix, sizeof matrix);
    CHECK(map == view);
    return;
  }
  for (const auto& harm : std::initializer_list<void (*)(kernels::MatrixView&)>{
           [](kernels::MatrixView& m) { m.base = static_cast<const char*>(m.base) + 8; },
           [](kernels::MatrixView& m) { m.pitch = 100; },
           [](kernels::MatrixView& m) { m.box_rows = 257; },
           [](kernels::MatrixView& m) { m.rows = 0; },
           [](kernels::MatrixView& m) { m.columns = 128, m.box_panels = 257; }}) {
    other = matrix;
    harm(other);
    CHECK(contains(error_of(Fault::job_failed, [&] { map_of(other); }), "tensor map"));
  }
  CHECK(map == map_of(matrix));  // and the device still works
}

void check_too_much_memory(const DeviceUnderTest& d) {
  for (const std::size_t bytes : {std::size_t{1} << 46, ~std::size_t{0}}) {
    const std::string text = error_of(Fault::job_failed, [&] { d.device.allocate(bytes); });
    CHECK(contains(text, std::to_string(bytes)));
    CHECK(contains(text, "GiB"));
    CHECK(contains(text, "free"));
  }
  CHECK(d.device.allocate(1)->bytes() == 1);
}

void check_measure(const DeviceUnderTest& d) {
  using namespace kernels;
  const auto launch = [&](const char* entry, unsigned blocks, int threads, const auto& params) {
    d.launch(*d.device.load(d.measures, entry),
             {.grid = {blocks, 1, 1}, .threads = static_cast<unsigned>(threads)}, params);
    d.device.synchronize();
  };
  // In the last round, some threads have one piece left and others none.
  const unsigned blocks = 2, pieces = 8 * blocks * measure_threads + 300;
  const DeviceWords from(d.device, pieces * 4), to(d.device, pieces * 4);
  const DeviceWords sums(d.device, blocks * measure_threads);
  launch("measure_fill_kernel", blocks, measure_threads,
         MeasureFillParams{.to = from.at(), .count = pieces * 4, .clear = 2, .set = 1});
  const Words words = from.read();
  CHECK(std::ranges::all_of(words, [](unsigned word) { return word % 4 == 1; }));
  const auto fold = [](const Words& w) {
    return std::accumulate(w.begin(), w.end(), 0u, std::bit_xor<>());
  };
  const MeasureMemoryParams params{from.at(), sums.at(), pieces};
  launch("measure_read_kernel", blocks, measure_threads, params);
  CHECK(fold(sums.read()) == fold(words));
  launch("measure_copy_kernel", blocks, measure_threads,
         MeasureMemoryParams{from.at(), to.at(), pieces});
  CHECK(to.read() == words);

  // Ones times ones.
  const DeviceWords ones(d.device, Words(measure_mma_operand_words, 0x3c003c00));
  const DeviceWords tiles(d.device, 2 * measure_mma_threads);
  launch("measure_mma_kernel", 2, measure_mma_threads, MeasureMmaParams{ones.at(), tiles.at(), 3});
  const float a_thread = 3 * 16 * measure_mma_tile * measure_mma_tile / 32.f;
  for (const unsigned bits : tiles.read()) REQUIRE(std::bit_cast<float>(bits) == a_thread);

  const MeasureSizes sizes = d.is_large ? MeasureSizes{} : MeasureSizes{32 << 10, 1, 1};
  const Measured measured = measure(d.device, d.measures, sizes);
  CHECK(measured.read > 0);
  CHECK(measured.copy > 0);
  CHECK(measured.tensor_flops > 0);
  if (!d.is_large) return;
  CHECK(measured.read < 1.1 * d.device.info().bandwidth);
  CHECK(measured.read > 0.5 * d.device.info().bandwidth);
  CHECK(measured.tensor_flops < d.device.info().tensor_flops);
  CHECK(measured.tensor_flops > 0.2 * d.device.info().tensor_flops);
}

}  // namespace ac::test
