// Kernels that are built ahead: who asks for some waits for those, and for no others.
#include "lab/ahead_builds.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "base/error.h"
#include "small_compilation.h"

using namespace ac;
using namespace ac::test;

namespace {

KernelSource kernel(int number, const char* statement = "") {
  return {fmt::format("ahead_{}", number),
          fmt::format("#include \"kernels/ptx.cuh\"\nstruct Params {{ float* y; }};\n"
                      "AC_KERNEL_ENTRY(ahead_{}, Params, 32, 1, p.y[threadIdx.x] = {};{})\n",
                      number, number, statement)};
}

bool is_built(FreshBuilder& f, const KernelSource& source) {
  const BuildResult built = f.builder.build(source, {});
  const auto* artifact = std::get_if<Artifact>(&built);
  return artifact ? artifact->from_cache : std::get<CompileFailure>(built).from_cache;
}

}  // namespace

TEST_CASE("ahead builds: what is asked for comes first, and is built then") {
  FreshBuilder f;
  Timeline timeline;
  AheadBuilds ahead(f.builder, {}, 1, &timeline);
  std::vector<KernelSource> all;
  for (int i = 0; i < 6; ++i) all.push_back(kernel(i));
  ahead.add(all);
  ahead.add({all[0], all[5]});  // each once
  ahead.finish({all[5]});
  CHECK(is_built(f, all[5]));
  // One job at a time: at most the first one, which may have begun before.
  std::vector<Timeline::Span> spans = timeline.spans();
  REQUIRE(!spans.empty());
  CHECK(spans.size() <= 2);
  CHECK(spans.back().what == "ahead_5");
  ahead.finish(all);
  for (const KernelSource& source : all) CHECK(is_built(f, source));
  CHECK(timeline.spans().size() == 6);
  ahead.finish({kernel(7)});  // was not added: nothing to wait for
}

TEST_CASE("ahead builds: one that does not compile is done, too") {
  FreshBuilder f;
  AheadBuilds ahead(f.builder, {}, 2, nullptr);
  const KernelSource broken = kernel(1, " nonsense;");
  ahead.add({broken, kernel(2)});
  ahead.finish({broken});
  CHECK(is_built(f, broken));
  CHECK(std::holds_alternative<CompileFailure>(f.builder.build(broken, {})));
}

TEST_CASE("ahead builds: nothing is built during a rest, and all of it after") {
  FreshBuilder f;
  Timeline timeline;
  AheadBuilds ahead(f.builder, {}, 2, &timeline);
  {
    const AheadBuilds::Rest rest(ahead);
    ahead.add({kernel(1), kernel(2), kernel(3)});
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    CHECK(timeline.spans().empty());
  }
  ahead.finish({kernel(1), kernel(2), kernel(3)});
  CHECK(timeline.spans().size() == 3);
}

TEST_CASE("ahead builds: what goes wrong is thrown, and what was not begun is left") {
  FreshBuilder f;
  BuilderOptions options = f.builder.options();
  options.host_compiler = "/no/such/compiler";
  KernelBuilder builder(options);
  AheadBuilds ahead(builder, {}, 2, nullptr);
  ahead.add({kernel(1), kernel(2)});
  CHECK_THROWS_AS(ahead.finish({kernel(1)}), Error);
  FreshBuilder other;
  AheadBuilds many(other.builder, {}, 1, nullptr);
  std::vector<KernelSource> all;
  for (int i = 0; i < 50; ++i) all.push_back(kernel(i));
  many.add(all);
}  // soon
