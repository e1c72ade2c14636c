#include <doctest/doctest.h>

#include <algorithm>

#include "tests/mutants/mutate.h"

using namespace ac::mutants;

namespace {

// What the mutants of one kind make of the text.
std::vector<std::string> made(std::string_view text, std::string_view change) {
  std::vector<std::string> all;
  for (const Mutant& mutant : mutants_of("a.cuh", text))
    if (mutant.change == change) all.push_back(mutated(text, mutant));
  return all;
}
using Mutants = std::vector<std::string>;

}  // namespace

TEST_CASE("mutants turn comparisons, and no template brackets") {
  CHECK(made("f(as<T>(a) < b);", "boundary") == Mutants{"f(as<T>(a) <= b);"});
  CHECK(made("f(as<T>(a) < b);", "turned") == Mutants{"f(as<T>(a) > b);"});
  CHECK(made("template <int n>\nvoid f();", "boundary").empty());
  CHECK(made("static_assert(a < b);", "boundary").empty());
}

TEST_CASE("mutants leave comments, preprocessor lines and code under #if alone") {
  CHECK(mutants_of("a.cuh", "// a < b\n#define f(a) a + 1\n/* a < b */\n").empty());
  CHECK(mutants_of("a.cuh", "#ifdef A\nf(a < b);\n#else\nf(a > b);\n#endif\n").empty());
  CHECK(made("#ifdef A\nf(a < b);\n#endif\nf(a > b);\n", "boundary").size() == 1);
}

TEST_CASE("mutants leave out waits, resets and statements, and no declarations") {
  CHECK(made("{\n  __syncthreads();\n  int a = 1;\n}", "no wait") ==
        Mutants{"{\n  ;\n  int a = 1;\n}"});
  CHECK(made("{\n  slot = 0, parity ^= 1;\n}", "left out") ==
        Mutants{"{\n  (void)0, parity ^= 1;\n}", "{\n  slot = 0, (void)0;\n}"});
  CHECK(made("{\n  const int a = f(b);\n  W* c = d;\n}", "left out").empty());
  CHECK(made("{\n  if (a) return;\n}", "no end") == Mutants{"{\n  if (a) ;\n}"});
}

TEST_CASE("mutants leave hints alone, and what they depend on") {
  CHECK(
      mutants_of("a.cuh", "{\n  if constexpr (a < b)\n    if (c + 1 == d) launch_dependents();\n}")
          .empty());
  CHECK(made("{ if (a < b) f(); }", "boundary").size() == 1);
}

TEST_CASE("mutants move indices and constants by one, outside declarations") {
  CHECK(made("{ x = v[i]; }", "next index") == Mutants{"{ x = v[i + 1]; }"});
  CHECK(made("{ float v[n]; }", "next index").empty());
  CHECK(made("{ x = 32; }", "constant - 1") == Mutants{"{ x = (32 - 1); }"});
  CHECK(made("{ x = 0.5f; }", "constant x2") == Mutants{"{ x = (0.5f * 2); }"});
  CHECK(made("{ x = 1.f / y; }", "arithmetic") == Mutants{"{ x = 1.f * y; }"});
}

TEST_CASE("mutants swap arguments, narrow offsets and round sums") {
  CHECK(made("{ x = fmaf(a, b[c(1, 2)], d); }", "swapped") ==
        Mutants{"{ x = fmaf(a, d, b[c(1, 2)]); }", "{ x = fmaf(a, b[c(2, 1)], d); }"});
  CHECK(made("void f(int a, int b);", "swapped").empty());
  CHECK(made("{ x = static_cast<long long>(y); }", "narrow") ==
        Mutants{"{ x = static_cast<int>(y); }"});
  CHECK(made("{ x = fmaf(a, b, c); }", "rounded") ==
        Mutants{"{ x = to_float(from_float<f16>(fmaf(a, b, c))); }"});
  CHECK(made("{ x += a; }", "rounded").size() == 1);
}

TEST_CASE("mutants keep line numbers, and their names where other lines come and go") {
  constexpr const char* kText = "{\n  f(a,\n    b);\n  g(c < d);\n}\n";
  const std::vector<Mutant> before = mutants_of("a.cuh", kText);
  const std::vector<Mutant> after = mutants_of("a.cuh", std::string("int n;\n") + kText);
  REQUIRE(before.size() == after.size());
  for (std::size_t i = 0; i < before.size(); ++i) {
    CHECK(before[i].id == after[i].id);
    CHECK(before[i].line + 1 == after[i].line);
    const std::string text = mutated(kText, before[i]);
    CHECK(std::ranges::count(text, '\n') == 5);
    for (std::size_t j = 0; j < i; ++j) CHECK(before[i].id != before[j].id);
  }
}

TEST_CASE("mutants tell equal lines apart") {
  const std::vector<Mutant> all = mutants_of("a.cuh", "{\n  f(a < b);\n  f(a < b);\n}\n");
  REQUIRE(all.size() >= 2);
  CHECK(all[0].id != all[all.size() / 2].id);
}
