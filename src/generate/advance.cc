// The launch that ends every step of a package.
#include <fmt/format.h>

#include "generate/endings.h"
#include "generate/params.h"
#include "generate/source.h"
#include "kernels/advance_plan.h"

namespace ac {

void add_advance(const StepGraph& step, Generated& out, NodeId ids, std::int64_t positions,
                 const Dim& tokens) {
  const bool wide = step.graph.type(ids).dtype == DType::i64;
  const kernels::AdvanceOp op{wide};
  const std::string entry = wide ? "advance_i64" : "advance_i32";
  out.sources.push_back({entry, fmt::format("#include \"kernels/advance.cuh\"\n\n"
                                            "namespace ac::kernels {{\n"
                                            "constexpr AdvanceOp {0}_op{{{1}}};\n"
                                            "AC_ADVANCE_KERNEL({0}, {0}_op)\n"
                                            "}}  // namespace ac::kernels\n",
                                            entry, op.wide_ids)});
  ParamsOf<kernels::AdvanceParams> of(step, out);
  of.point(of.params.token, {.role = Buffer::Role::token});
  of.point(of.params.ids, ids);
  of.point(of.params.log, {.role = Buffer::Role::log});
  of.point(of.params.position, {.role = Buffer::Role::position});
  of.point(of.params.until, {.role = Buffer::Role::until});
  of.count(of.params.tokens, tokens);
  of.params.positions = static_cast<int>(positions);
  Launch launch = of.finish();
  launch.kernel = entry;
  launch.threads = kernels::advance_threads;
  out.launches.push_back(std::move(launch));
}

Generated generate_advance(const StepGraph& step, NodeId ids, std::int64_t positions) {
  Generated out;
  add_advance(step, out, ids, positions, product(step.graph.type(ids).shape));
  return out;
}

}  // namespace ac
