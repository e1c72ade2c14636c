// Every ring, prologue, epilogue and element type of the decode GEMV on the host device, at sizes
// with tails everywhere.
#include "tests/unit/gemv_case.h"

namespace ac::kernels {
namespace {

constexpr GemvOp plain{};
constexpr GemvOp plain_bf16{.weight = Type::bf16, .x = Type::bf16, .y = Type::bf16};
constexpr GemvOp plain_f32{.weight = Type::f32, .x = Type::f32, .y = Type::f32};
constexpr GemvOp mixed{.weight = Type::f16, .x = Type::f32, .y = Type::f32, .residual = true};
constexpr GemvOp wide_weights{.weight = Type::f32, .x = Type::f16, .y = Type::bf16, .norm = true};
constexpr GemvOp qkv{.norm = true, .bias = true, .matrices = 3};
constexpr GemvOp projection{.residual = true};
constexpr GemvOp swiglu{.norm = true, .pair = Pair::swiglu, .matrices = 2};
constexpr GemvOp geglu{.weight = Type::bf16,
                       .x = Type::f32,
                       .y = Type::bf16,
                       .norm = true,
                       .pair = Pair::geglu_tanh,
                       .bias = true,
                       .matrices = 2};
constexpr GemvOp geglu_erf{.y = Type::f32, .pair = Pair::geglu_erf, .matrices = 2};
constexpr GemvOp head{.y = Type::f32, .norm = true, .argmax = true};

// Few threads keep the fibers few; registers and occupancy mean nothing here.
constexpr GemvPlan r1{.threads = 64, .rows = 1, .depth = 4, .resident = 64};
constexpr GemvPlan r2{.threads = 96, .rows = 2, .depth = 3, .persistent = false};
constexpr GemvPlan r4_late{.threads = 32,
                           .rows = 4,
                           .depth = 2,
                           .resident = 32,
                           .signal = Signal::last_group,
                           .cache = Cache::no_allocate};
constexpr GemvPlan r_split{.threads = 128, .rows = 2, .depth = 2, .split = 2, .resident = 128};
constexpr GemvPlan s1{
    .threads = 64, .rows = 1, .depth = 5, .ring = Ring::async_copy, .resident = 64};
constexpr GemvPlan s2_split{
    .threads = 128, .rows = 2, .depth = 3, .ring = Ring::async_copy, .split = 4, .resident = 128};
constexpr GemvPlan b1{
    .threads = 64, .rows = 1, .depth = 3, .chunks = 2, .ring = Ring::bulk_copy, .resident = 64};
constexpr GemvPlan b2_split{.threads = 128,
                            .rows = 2,
                            .depth = 2,
                            .chunks = 1,
                            .ring = Ring::bulk_copy,
                            .split = 2,
                            .resident = 128,
                            .signal = Signal::last_group};
constexpr GemvPlan slow{.threads = 64, .rows = 2, .depth = 1, .ring = Ring::none, .resident = 64};
constexpr GemvPlan slow_split{
    .threads = 128, .rows = 1, .depth = 1, .ring = Ring::none, .split = 4, .resident = 128};

#define GEMV_TEST_KERNELS(op)               \
  AC_GEMV_KERNEL(op##_r1, op, r1)           \
  AC_GEMV_KERNEL(op##_r_split, op, r_split) \
  AC_GEMV_KERNEL(op##_s1, op, s1)           \
  AC_GEMV_KERNEL(op##_b1, op, b1)           \
  AC_GEMV_KERNEL(op##_slow_split, op, slow_split)
#define GEMV_TEST_PAIR_KERNELS(op)            \
  AC_GEMV_KERNEL(op##_r2, op, r2)             \
  AC_GEMV_KERNEL(op##_r4_late, op, r4_late)   \
  AC_GEMV_KERNEL(op##_r_split, op, r_split)   \
  AC_GEMV_KERNEL(op##_s2_split, op, s2_split) \
  AC_GEMV_KERNEL(op##_b2_split, op, b2_split) \
  AC_GEMV_KERNEL(op##_slow, op, slow)

GEMV_TEST_KERNELS(plain)
GEMV_TEST_KERNELS(plain_bf16)
GEMV_TEST_KERNELS(plain_f32)
GEMV_TEST_KERNELS(mixed)
GEMV_TEST_KERNELS(wide_weights)
GEMV_TEST_KERNELS(qkv)
GEMV_TEST_KERNELS(projection)
GEMV_TEST_KERNELS(head)
GEMV_TEST_PAIR_KERNELS(swiglu)
GEMV_TEST_PAIR_KERNELS(geglu)
GEMV_TEST_PAIR_KERNELS(geglu_erf)

#define CASE(op, plan) GemvCase{#op "_" #plan, op, plan, op##_##plan, {}, 0}
#define CASES(op) \
  {CASE(op, r1), CASE(op, r_split), CASE(op, s1), CASE(op, b1), CASE(op, slow_split)}
#define PAIR_CASES(op)                                        \
  {CASE(op, r2),       CASE(op, r4_late),  CASE(op, r_split), \
   CASE(op, s2_split), CASE(op, b2_split), CASE(op, slow)}

void check(std::vector<GemvCase> cases, std::vector<std::vector<int>> shapes, std::vector<int> ks,
           const GemvCase& as = {}) {
  unsigned seed = 1;
  for (GemvCase& c : cases)
    for (const auto& rows : shapes)
      for (int k : ks) {
        if (c.plan.why_illegal(c.op, k, 200 * 1024)) continue;
        c.rows = rows, c.k = k, c.seed = seed++;
        c.interleaved = as.interleaved, c.norm_offset = as.norm_offset;
        c.scale = as.scale, c.softcap = as.softcap;
        CAPTURE(rows[0]);
        CAPTURE(k);
        CHECK(run_gemv(c) == "");
      }
}

// One vector, a tail inside a warp's load, whole loads, more than a turn of every ring; odd sizes
// for the plan that takes them.
const std::vector<int> lengths = {8, 72, 256, 1048, 2560, 1, 333};

TEST_CASE("gemv: element types") {
  check(CASES(plain), {{1}, {37}}, lengths);
  check(CASES(plain_bf16), {{37}}, lengths);
  check(CASES(plain_f32), {{37}}, lengths);
  check(CASES(mixed), {{37}}, lengths);
  check(CASES(wide_weights), {{37}}, lengths);
}

TEST_CASE("gemv: matrices of one x, norm and bias") {
  check(CASES(qkv), {{32, 8, 8}, {5, 1, 3}}, lengths);
  check(CASES(qkv), {{7, 3, 2}}, {264}, {.norm_offset = 1});
}

TEST_CASE("gemv: residual and scale") {
  check(CASES(projection), {{50}}, lengths, {.scale = 0.22f});
}

TEST_CASE("gemv: argmax and soft cap") {
  check(CASES(head), {{301}, {1}}, {256, 72, 333});
  check(CASES(head), {{301}}, {256}, {.softcap = 30});
}

TEST_CASE("gemv: gate and up") {
  check(PAIR_CASES(swiglu), {{1}, {45}}, lengths);
  check(PAIR_CASES(swiglu), {{45}}, {256, 1048, 333}, {.interleaved = true});
  check(PAIR_CASES(geglu), {{45}}, {72, 1048, 333}, {.norm_offset = 1});
  check(PAIR_CASES(geglu_erf), {{45}}, {256, 333});
}

TEST_CASE("gemv: any thread schedule gives the same bits") {
  for (GemvCase c : std::vector<GemvCase> PAIR_CASES(swiglu)) {
    c.rows = {45}, c.k = 1048;
    if (c.plan.why_illegal(c.op, c.k, 200 * 1024)) continue;
    std::vector<std::string> outputs;
    for (Schedule schedule : {Schedule::forward, Schedule::reverse, Schedule::shuffled}) {
      c.schedule = schedule;
      outputs.emplace_back();
      CHECK(run_gemv(c, &outputs.back()) == "");
      CHECK(outputs.back() == outputs.front());
    }
  }
}

TEST_CASE("gemv: illegal plans say why") {
  using std::string;
  CHECK(r1.why_illegal(plain) == nullptr);
  CHECK(string(GemvPlan{.threads = 100}.why_illegal(plain)).find("threads") != string::npos);
  CHECK(string(GemvPlan{.rows = 1}.why_illegal(swiglu)).find("pair") != string::npos);
  CHECK(string(GemvPlan{.split = 3}.why_illegal(plain)).find("split") != string::npos);
  CHECK(string(GemvPlan{.rows = 8, .depth = 8}.why_illegal(plain)).find("registers") !=
        string::npos);
  CHECK(string(GemvPlan{.chunks = 2}.why_illegal(plain)).find("chunks") != string::npos);
  CHECK(string(GemvPlan{.depth = 1}.why_illegal(plain)).find("depth") != string::npos);
  CHECK(string(r1.why_illegal(plain, 100, 200 * 1024)).find("vectors") != string::npos);
  CHECK(string(b1.why_illegal(plain, 1 << 20, 200 * 1024)).find("shared") != string::npos);
}

}  // namespace
}  // namespace ac::kernels
