// What docs/adding.md says of a kernel family, shown by a small real one: its four files are here,
// and stand in no list.
#include <doctest/doctest.h>

#include "admit/judge.h"
#include "admit/trial_step.h"
#include "base/files.h"
#include "base/temporary_folder.h"
#include "families/list.h"
#include "ir/builder.h"
#include "tests/extend/lean_softmax.h"
#include "tests/tools/source_folder.h"

namespace fs = std::filesystem;

namespace ac::test {
namespace {

static_assert(RegionFamily<LeanSoftmaxTask>);

// The same without one of its members.
enum class Without {
  nothing,
  plans,
  why_illegal,
  footprint,
  cost,
  bytes,
  flops,
  extent,
  write_id,
  kind,
  lower,
  match
};
template <Without what>
struct Lacking {
  static constexpr bool has(Without member) { return what != member; }
  static constexpr std::string_view family = "lacking";
  using Plan = kernels::LeanSoftmaxPlan;
  using Operands = SoftmaxTask::Operands;
  kernels::LeanSoftmaxOp op;
  std::vector<Plan> plans() const
    requires(has(Without::plans));
  const char* why_illegal(const Plan&, const DeviceInfo&) const
    requires(has(Without::why_illegal));
  Footprint footprint(const Plan&, const DeviceInfo&) const
    requires(has(Without::footprint));
  Cost cost(const Plan&, const DeviceInfo&) const
    requires(has(Without::cost));
  double bytes() const
    requires(has(Without::bytes));
  double flops() const
    requires(has(Without::flops));
  Extent extent(const Plan&) const
    requires(has(Without::extent));
  static void write_id(const Plan&, IdText&)
    requires(has(Without::write_id));
  static std::string_view kind(const Plan&)
    requires(has(Without::kind));
  Generated lower(const Lowering&, const Plan&, const Operands&) const
    requires(has(Without::lower));
  static Match<Lacking> match(const Body&)
    requires(has(Without::match));
};
static_assert(RegionFamily<Lacking<Without::nothing>>);
static_assert(KernelFamily<Lacking<Without::match>> && !RegionFamily<Lacking<Without::match>>);
template <Without... members>
constexpr bool none_can_be_missing = (!KernelFamily<Lacking<members>> && ...);
static_assert(none_can_be_missing<Without::plans, Without::why_illegal, Without::footprint,
                                  Without::cost, Without::bytes, Without::flops, Without::extent,
                                  Without::write_id, Without::kind, Without::lower>);

// A plan with a field that AC_FIELDS forgets.
struct Forgetful {
  int threads = 128, forgotten = 1;
  AC_FIELDS(Forgetful, threads)
};
static_assert(lists_all_fields<kernels::LeanSoftmaxPlan>());
static_assert(lists_all_fields<kernels::ElementwiseOp>());
static_assert(lists_all_fields<kernels::QkvRopeOp>());
static_assert(!lists_all_fields<Forgetful>());

StepGraph softmax_of(DType dtype, std::int64_t columns) {
  StepGraph step;
  Builder b(step.graph);
  const NodeId scaled =
      b.binary(Op::mul, b.input("x", {dtype, {Dim(Symbol::T), columns}}), b.scalar(dtype, 0.5));
  step.graph.outputs = {{"y", b.softmax(scaled, 1)}};
  return step;
}

class WholeStep : public TrialStep {
 public:
  WholeStep(StepGraph step, std::int64_t tokens) : TrialStep(std::move(step), kTrialProcessors) {
    trial_.tokens = trial_.capacity = tokens;
    trial_.positions = {0};
    set_limits();
  }
};

// The gate's verdict on the family's kernel, with other text in its header.
std::string verdict(const std::string& from, const std::string& to) {
  const TemporaryFolder folder;
  BuilderOptions options = builder_options(read_environment());
  const fs::path own = source_folder() / "tests/extend/kernels";
  fs::copy(options.sources / "kernels", folder.path() / "kernels", fs::copy_options::recursive);
  for (const fs::directory_entry& file : fs::directory_iterator(own)) {
    std::string text = read_file(file.path(), 1 << 20);
    if (const std::size_t at = text.find(from); at != std::string::npos && !from.empty())
      text.replace(at, from.size(), to);
    write_file(folder.path() / "kernels" / file.path().filename(), text);
  }
  options.sources = folder.path();
  options.cache = folder.path() / "cache";
  KernelBuilder builder(options);

  WholeStep step(softmax_of(DType::bf16, 37), 300);
  const Region region = step.region();
  const auto match = LeanSoftmaxTask::match(Body(step.fragment(), region, step.bindings()));
  const auto& [task, operands] = std::get<Matched<LeanSoftmaxTask>>(match);
  const LeanSoftmaxTask::Plan plan = task.plans().at(0);
  REQUIRE(task.why_illegal(plan, device_info("sm_90")) == nullptr);
  const Setting setting = step.setting();
  const Request request =
      step.finish("lean", task.lower({step.fragment(), setting}, plan, operands));
  KernelFiles files;
  for (const KernelSource& source : request.sources) {
    const BuildResult built = builder.build(source, {});
    if (const auto* failure = std::get_if<CompileFailure>(&built)) FAIL(failure->log);
    files[source.entry] = std::get<Artifact>(built).file;
  }
  const auto rejection = judge(request.trial, files).rejection;
  return rejection ? rejection->reason : "";
}

}  // namespace

TEST_CASE("extend: a family's four files are enough for the gate to admit its kernel, or not") {
  CHECK(verdict("", "") == "");
  CHECK(verdict("i < p.columns; ++i) sum", "i < p.columns - 1; ++i) sum") != "");
}

TEST_CASE("extend: text, id and cost of a family follow from its members") {
  const LeanSoftmaxTask task{{kernels::Type::bf16}, 1000, 256};
  const LeanSoftmaxTask::Plan plan{256};
  CHECK(cpp_of(task.op) == "{.x = Type::bf16}");
  CHECK(cpp_of(plan) == "{.threads = 256}");
  IdText id;
  task.write_id(plan, id);
  CHECK(id.take() == "256");
  const Cost cost = task.cost(plan, device_info("sm_90"));
  CHECK(cost.bytes == 2.0 * 1000 * 256 * 2);
  CHECK(cost.microseconds > 0);
  // In a list, its matcher is asked with the others.
  std::vector<std::string_view> names;
  Families<SoftmaxTask, LeanSoftmaxTask>::each(
      [&]<class Task>() { names.push_back(Task::family); });
  CHECK(names == std::vector<std::string_view>{"softmax", "lean_softmax"});
}

}  // namespace ac::test
