// Embedding on the host device: ids of both widths, inside and outside the table.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/embedding.cuh"
#include "tests/unit/tensors.h"

namespace ac::kernels {
namespace {

constexpr EmbeddingOp f16_narrow{};
constexpr EmbeddingOp bf16_wide{.table = Type::bf16, .y = Type::bf16, .wide_ids = true};
constexpr EmbeddingOp f32_to_f16{.table = Type::f32, .y = Type::f16};

constexpr EmbeddingPlan wide{.threads = 64, .vector = 8};
constexpr EmbeddingPlan resident{.threads = 32, .vector = 4, .resident = 32, .persistent = true};
constexpr EmbeddingPlan single{.threads = 96, .vector = 1, .resident = 96, .persistent = true};

#define EMBEDDING_TEST_KERNELS(op)                         \
  AC_EMBEDDING_KERNEL(embed_##op##_wide, op, wide)         \
  AC_EMBEDDING_KERNEL(embed_##op##_resident, op, resident) \
  AC_EMBEDDING_KERNEL(embed_##op##_single, op, single)
EMBEDDING_TEST_KERNELS(f16_narrow)
EMBEDDING_TEST_KERNELS(bf16_wide)
EMBEDDING_TEST_KERNELS(f32_to_f16)

struct Case {
  const char* name;
  EmbeddingOp op;
  EmbeddingPlan plan;
  void (*kernel)(EmbeddingParams);
};
#define CASE(op, plan) \
  Case { #op "_" #plan, op, plan, embed_##op##_##plan }
#define CASES(op) CASE(op, wide), CASE(op, resident), CASE(op, single)
const std::vector<Case> cases = {CASES(f16_narrow), CASES(bf16_wide), CASES(f32_to_f16)};

std::string run(const Case& c, std::vector<long long> ids, int entries, int width,
                std::size_t skip = 0, float scale = 1) {
  std::mt19937 random(9);
  const auto n = static_cast<std::size_t>(width);
  Input table(c.op.table, static_cast<std::size_t>(entries) * n, skip, random, -3, 3);
  const std::vector<int> narrow(ids.begin(), ids.end());
  Output y(c.op.y, ids.size() * n, skip);
  EmbeddingParams p{};
  p.table = table.data(), p.y = y.data();
  p.ids = c.op.wide_ids ? static_cast<const void*>(ids.data()) : narrow.data();
  p.entries = entries, p.width = width, p.count = static_cast<int>(ids.size()), p.scale = scale;
  const LaunchReport report =
      host_launch({.name = c.name,
                   .grid = {static_cast<unsigned>(c.plan.grid(p.count, width, 2))},
                   .block = {static_cast<unsigned>(c.plan.threads)},
                   .schedule = Schedule::shuffled},
                  c.kernel, p);
  if (!report.ok()) return report.error;
  for (std::size_t row = 0; row < ids.size(); ++row)
    for (std::size_t i = 0; i < n; ++i) {
      const bool inside = ids[row] >= 0 && ids[row] < entries;
      const double got = y.get(row * n + i);
      const double want =
          inside ? scale * table.get(static_cast<std::size_t>(ids[row]) * n + i) : NAN;
      // Without a scale, and in the table's own type, a row is a copy.
      const double error = scale == 1 ? 0 : 1e-7 * std::fabs(want);
      if (!is_close(c.op.y, got, want, error))
        return fmt::format("{}: ({}, {}) is {} instead of {}", c.name, row, i, got, want);
    }
  if (!table.unchanged()) return fmt::format("{}: the table changed", c.name);
  return y.intact() ? "" : fmt::format("{}: wrote outside its output", c.name);
}

TEST_CASE("embedding: rows, scales, unaligned tables") {
  for (const Case& c : cases)
    for (int width : {1, 7, 64, 333, 1024})
      for (std::size_t skip : {0, 1}) {
        CHECK(run(c, {4}, 5, width, skip) == "");
        CHECK(run(c, {0, 16, 3, 3, 15, 1, 0}, 17, width, skip, 45.25f) == "");
      }
}

TEST_CASE("embedding: ids outside the table read nothing") {
  constexpr long long int32_min = std::numeric_limits<int>::min(),
                      int32_max = std::numeric_limits<int>::max();
  for (const Case& c : cases) {
    CHECK(run(c, {-1, 5, 0, 4, int32_min, int32_max}, 5, 40) == "");
    if (c.op.wide_ids)
      CHECK(run(c, {1LL << 32, (1LL << 32) + 1, INT64_MIN, INT64_MAX, 1}, 5, 40) == "");
  }
}

TEST_CASE("embedding: no ids") {
  for (const Case& c : cases) CHECK(run(c, {}, 5, 40) == "");
}

TEST_CASE("embedding: illegal plans say why") {
  CHECK(wide.why_illegal(f16_narrow, 1 << 16, 1 << 13) == nullptr);
  CHECK(says(EmbeddingPlan{.threads = 31}.why_illegal(f16_narrow), "threads"));
  CHECK(says(EmbeddingPlan{.vector = 7}.why_illegal(f16_narrow), "vector"));
  CHECK(says(EmbeddingPlan{.resident = 3000}.why_illegal(f16_narrow), "resident"));
  CHECK(says(wide.why_illegal(f16_narrow, 1, -1), "negative"));
  CHECK(says(single.why_illegal(f16_narrow, 1 << 20, 1 << 13), "too many"));
}

}  // namespace
}  // namespace ac::kernels
