// Generated sources of real kernel families, built and run on the host device or built for GPUs.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "base/files.h"
#include "build/compiler.h"
#include "build/cuda_folders.h"
#include "device/host.h"
#include "tests/unit/attention_case.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/gemv_case.h"
#include "tests/unit/kernel_folder.h"

namespace ac::kernels {
// What the sources below say, for the direct call.
constexpr GemvOp built_gemv_op{.norm = true, .pair = Pair::swiglu, .matrices = 2};
constexpr GemvPlan built_gemv_plan{
    .threads = 64, .rows = 2, .depth = 3, .ring = Ring::async_copy, .resident = 64};
constexpr AttentionOp built_attention_op{.head_dim = 64, .group = 3, .qk_norm = true, .rotary = 64};
constexpr AttentionPlan built_attention_plan{.threads = 64, .splits = 3};
AC_GEMV_KERNEL(direct_gemv, built_gemv_op, built_gemv_plan)
}  // namespace ac::kernels

namespace ac::test {
namespace {

namespace fs = std::filesystem;
using namespace ac::kernels;

const std::string kGemv = R"(#include "kernels/gemv.cuh"
using namespace ac::kernels;
constexpr GemvOp op{.norm = true, .pair = Pair::swiglu, .matrices = 2};
constexpr GemvPlan plan{
    .threads = 64, .rows = ROWS, .depth = 3, .ring = Ring::async_copy, .resident = 64};
AC_GEMV_KERNEL(kernel, op, plan)
)";
const KernelSource kAttention{"kernel", R"(#include "kernels/attention.cuh"
using namespace ac::kernels;
constexpr AttentionOp op{.head_dim = 64, .group = 3, .qk_norm = true, .rotary = 64};
constexpr AttentionPlan plan{.threads = 64, .splits = 3};
AC_ATTENTION_KERNEL(kernel, op, plan)
)"};

KernelSource gemv(const char* rows) {
  std::string text = kGemv;
  return {"kernel", text.replace(text.find("ROWS"), 4, rows)};
}

// No barrier between the write and the neighbour's read; index as wished.
KernelSource planted(const char* index) {
  return {"kernel", fmt::format(R"(#include "kernels/ptx.cuh"
struct Params {{ float* y; }};
namespace ac::kernels {{
AC_DEVICE void exchange(const Params& p) {{
  AC_SHARED(float, values, 64);
  values[threadIdx.x] = 1;
  p.y[threadIdx.x] = values[{}];
}}
}}
AC_KERNEL_ENTRY(kernel, Params, 64, 1, ac::kernels::exchange(p))
)",
                                index)};
}

constexpr HostChecks kLoadable =
#ifdef __SANITIZE_ADDRESS__
    HostChecks::addresses;
#else
    HostChecks::none;
#endif

// With this program's own kernel headers.
struct RealKernels {
  TemporaryFolder folder;
  BuilderOptions options = [this] {
    BuilderOptions o = builder_options(read_environment());
    o.cache = folder.path();
    o.checks = kLoadable;
    return o;
  }();
  BuildResult build(const KernelSource& source, const Target& target = {}) const {
    return KernelBuilder(options).build(source, target);
  }
};

template <class Params>
auto launcher(const HostKernel& kernel) {
  return [&kernel](const HostLaunch& launch, const Params& params) {
    return kernel.launch(launch, std::as_bytes(std::span(&params, 1)));
  };
}

TEST_CASE("build: a GEMV for the host device gives what the direct call gives") {
  const RealKernels real;
  const BuildResult result = real.build(gemv("2"));
  const HostKernel kernel(built(result).file, "kernel");
  CHECK(kernel.params_bytes() == sizeof(GemvParams));
  GemvCase c{.name = "gemv", .op = built_gemv_op, .plan = built_gemv_plan, .kernel = direct_gemv};
  c.rows = {40}, c.k = 520;
  std::string direct, through_file;
  CHECK(run_gemv(c, &direct) == "");
  c.launcher = launcher<GemvParams>(kernel);
  CHECK(run_gemv(c, &through_file) == "");
  CHECK(direct == through_file);
  MESSAGE("a GEMV for the host device: " << built(result).seconds << " s");
}

TEST_CASE("build: attention for the host device is right") {
  const RealKernels real;
  const BuildResult result = real.build(kAttention);
  const HostKernel kernel(built(result).file, "kernel");
  AttentionCase c{.name = "attention", .op = built_attention_op, .plan = built_attention_plan};
  c.position = 70, c.launcher = launcher<AttentionParams>(kernel);
  CHECK(run_attention(c) == "");
  MESSAGE("attention for the host device: " << built(result).seconds << " s");
}

TEST_CASE("build: what the kernel does wrong on the host device is reported by its name") {
  const RealKernels real;
  const BuildResult result = real.build(gemv("2"));
  const HostKernel kernel(built(result).file, "kernel");
  const std::byte few[8] = {};
  CHECK(kernel.launch({.block = {64}}, few).error ==
        fmt::format("kernel kernel: 8 bytes of parameters instead of {}", sizeof(GemvParams)));
  const GemvParams params{};
  CHECK(contains(launcher<GemvParams>(kernel)({.block = {2000}}, params).error, "kernel kernel"));

  CHECK(contains(error_of(Fault::job_failed, [&] { HostKernel(built(result).file, "other"); }),
                 "other_on_host"));
  const fs::path text = real.folder.path() / "text";
  write_file(text, "no shared object");
  CHECK(contains(error_of(Fault::job_failed, [&] { HostKernel(text, "kernel"); }), "text"));
}

TEST_CASE("build: a kernel's cluster is known to who launches it") {
  const RealKernels real;
  const BuildResult result = real.build({"kernel", R"(#include "kernels/cluster.cuh"
struct Params { float* y; };
namespace ac::kernels {
AC_DEVICE void pass_on(const Params& p) {
  AC_SHARED(CopyBarrier, told, 1);
  if (threadIdx.x == 0) barrier_init(told, 1);
  meet_cluster<2>();
  if (threadIdx.x == 0) barrier_arrive(told, blockIdx.x % 2 ^ 1);
  barrier_wait(told, 0);
  p.y[blockIdx.x] = 1;
}
}
AC_CLUSTER_KERNEL_ENTRY(kernel, Params, 32, 2, ac::kernels::pass_on(p))
)"});
  const HostKernel kernel(built(result).file, "kernel");
  float y[4] = {};
  float* params[] = {y};
  const auto error = [&](unsigned blocks) {
    return kernel.launch({.grid = {blocks}, .block = {32}}, std::as_bytes(std::span(params))).error;
  };
  CHECK(error(4) == "");
  CHECK(std::count(y, y + 4, 1.f) == 4);
  CHECK(contains(error(3), "kernel kernel: a grid of 3 blocks in clusters of 2"));
}

TEST_CASE("build: a kernel built for the race checker shows its races") {
  RealKernels real;
  real.options.checks = HostChecks::races;
  const BuildResult racing = real.build(planted("threadIdx.x ^ 33"));
  const HostKernel kernel(built(racing).file, "kernel");
  std::vector<float> y(64);
  float* params[] = {y.data()};
  const HostLaunch launch{.block = {64}, .check_races = true};
  const std::string error = kernel.launch(launch, std::as_bytes(std::span(params))).error;
  CHECK(contains(error, "race: kernel kernel"));

  const BuildResult clean = real.build(gemv("2"));
  const HostKernel gemv_kernel(built(clean).file, "kernel");
  GemvCase c{.name = "gemv", .op = built_gemv_op, .plan = built_gemv_plan};
  c.rows = {40}, c.k = 520, c.check_races = true, c.launcher = launcher<GemvParams>(gemv_kernel);
  CHECK(run_gemv(c) == "");
}

#ifdef __SANITIZE_ADDRESS__
TEST_CASE("build: AddressSanitizer looks into built kernels") {
  const RealKernels real;
  const BuildResult result = real.build(planted("threadIdx.x + 1"));
  const HostKernel kernel(built(result).file, "kernel");
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 2);
    std::vector<float> y(64);
    float* params[] = {y.data()};
    (void)kernel.launch({.block = {64}}, std::as_bytes(std::span(params)));
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
  CHECK(contains(words, "use-after-poison"));  // what lies around shared memory
  CHECK(contains(words, " of size 4"));
}
#endif

TEST_CASE("build: a failure's log names the error and the plan") {
  const RealKernels real;
  const BuildResult illegal = real.build(gemv("3"));
  CHECK(contains(failed(illegal).log, "the plan is illegal for this op"));
  CHECK(contains(failed(illegal).log, "GemvPlan{64, 3, 3"));
  const BuildResult misspelt = real.build({"kernel",
                                           "#include \"kernels/gemv.cuh\"\n"
                                           "constexpr ac::kernels::GemvPlan p{.row = 2};"});
  CHECK(contains(failed(misspelt).log, "kernel.cc:2:"));
  CHECK(contains(failed(misspelt).log, "row"));
}

TEST_CASE("build: a missing compiler is an error that says what to do") {
  RealKernels real;
  real.options.host_compiler = "/no/such/compiler";
  const std::string error = error_of(Fault::job_failed, [&] { real.build(gemv("2")); });
  CHECK(contains(error, "/no/such/compiler"));
  CHECK(contains(error, "AGENTCOMPILE_CXX"));
  real.options.host_compiler = "true";  // runs, but is no compiler
  CHECK(contains(error_of(Fault::job_failed, [&] { real.build(gemv("2")); }), "true: no working"));
  KernelBuilder builder(real.options);
  for (const char* arch : {"", "sm_", "90", "sm_90x", "sm_90ab", "sm_90 -I/"})
    error_of(Fault::wrong_usage, [&] { builder.build(gemv("2"), {Target::cuda, arch}); });
}

void check_cubin(const fs::path& file, int registers, int spill_bytes, int static_shared) {
  const std::string cubin = read_file(file, 1u << 24);
  CHECK(
      cubin.starts_with("\x7f"
                        "ELF"));
  CHECK(contains(cubin, ".text.kernel"));
  CHECK(registers > 15);
  CHECK(registers <= 255);
  CHECK(spill_bytes == 0);
  CHECK(static_shared > 0);
}

TEST_CASE("build: NVRTC and nvcc make cubins, where they are found") {
  const RealKernels real;
  const fs::path home = real.options.cuda_home;
  for (const auto& [name, compiler] :
       {std::pair("NVRTC", find_nvrtc(home).release()), {"nvcc", find_nvcc(home).release()}}) {
    if (compiler == nullptr) {
      MESSAGE(fmt::format("skipped, as {} is not here: sm_80, sm_90a, sm_100", name));
      continue;
    }
    const std::unique_ptr<Compiler> owner(compiler);
    Headers headers(real.options.sources);
    for (const char* arch : {"sm_80", "sm_90a", "sm_100"}) {
      INFO(name, " ", std::string(arch));
      const TemporaryFolder folder;
      const KernelSource source = gemv("2");
      const std::vector<const Header*> reached = headers.reached_by(source.text);
      const auto start = std::chrono::steady_clock::now();
      const CompilerOutput compiled =
          compiler->compile({source, reached, arch, folder.path(), folder.path() / "k"});
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      INFO(compiled.log);
      REQUIRE(compiled.ok);
      check_cubin(folder.path() / "k", compiled.registers, compiled.spill_bytes,
                  compiled.static_shared);
      CHECK(contains(compiled.log, "as no NVRTC was found") == (name == std::string("nvcc")));
      MESSAGE(fmt::format("{} {}: {:.2f} s", name, arch, taken.count()));
    }
  }
}

TEST_CASE("build: cubins for GPUs come from the cache too, and failures say why") {
  const RealKernels real;
  KernelBuilder builder(real.options);
  const Target target{Target::cuda, "sm_90a"};
  try {
    builder.compiler(target);
  } catch (const Error& error) {
    CHECK(contains(error.what(), "pip install"));
    MESSAGE("skipped: " << error.what());
    return;
  }
  const auto results = builder.build_all({gemv("2"), kAttention}, target);
  for (const BuildResult& result : results) {
    const Artifact& a = built(result);
    check_cubin(a.file, a.registers, a.spill_bytes, a.static_shared);
  }
  const BuildResult again = builder.build(gemv("2"), target);
  CHECK(built(again).from_cache);
  CHECK(built(again).registers == built(results[0]).registers);
  CHECK(built(builder.build(gemv("2"), {Target::cuda, "sm_80"})).key != built(again).key);
  const BuildResult illegal = builder.build(gemv("3"), target);
  CHECK(contains(failed(illegal).log, "the plan is illegal for this op"));
  CHECK(contains(failed(illegal).log, "GemvPlan{64, 3, 3"));
  CHECK(contains(
      error_of(Fault::job_failed, [&] { builder.build(gemv("2"), {Target::cuda, "sm_999"}); }),
      "sm_999"));
}

TEST_CASE("build: CUDA is looked for in the named toolkit, Python environments, /usr/local") {
  const TemporaryFolder folder;
  const fs::path home = folder.path();
  for (const char* name : {"lib64/libnvrtc.so.13", "lib64/libnvrtc.so.12", "lib64/libcudart.so"}) {
    fs::create_directories((home / name).parent_path());
    write_file(home / name, "");
  }
  const std::vector<fs::path> found = nvrtc_candidates(home);
  REQUIRE(found.size() >= 2);
  CHECK(found[0] == home / "lib64/libnvrtc.so.13");
  CHECK(found[1] == home / "lib64/libnvrtc.so.12");
  CHECK(std::ranges::find(found, home / "lib64/libcudart.so") == found.end());
  CHECK(std::ranges::find(found, "libnvrtc.so.13") != found.end());
  CHECK(nvcc_candidates(home)[0] == home / "bin/nvcc");
  // An empty file is no library: the search goes on, and ends well or with nothing.
  const auto compiler = find_nvrtc(home);
  CHECK((compiler == nullptr || contains(compiler->name(), "NVRTC")));

  const fs::path packages = home / ".venv/lib/python3.11/site-packages/nvidia/cu13/lib";
  fs::create_directories(packages);
  write_file(packages / "libnvrtc.so.13", "");
  const fs::path before = fs::current_path();
  fs::current_path(home);
  const std::vector<fs::path> here = nvrtc_candidates({});
  fs::current_path(before);
  CHECK(here[0].lexically_normal() ==
        ".venv/lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
}

}  // namespace
}  // namespace ac::test
