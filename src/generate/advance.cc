// The launch that ends every step of a package.
#include <fmt/format.h>

#include "generate/generate.h"
#include "generate/params.h"
#include "generate/source.h"
#include "kernels/advance_plan.h"

namespace ac {

Generated generate_advance(const StepGraph& step, NodeId ids, std::int64_t positions) {
  const bool wide = step.graph.type(ids).dtype == DType::i64;
  const kernels::AdvanceOp op{wide};
  Generated out;
  const std::string entry = wide ? "advance_i64" : "advance_i32";
  out.sources = {{entry, fmt::format("#include \"kernels/advance.cuh\"\n"
                                     "constexpr ac::kernels::AdvanceOp {0}_op{{{1}}};\n"
                                     "AC_ADVANCE_KERNEL({0}, {0}_op)\n",
                                     entry, op.wide_ids)}};
  ParamsOf<kernels::AdvanceParams> of(step, out);
  of.point(of.params.token, {.role = Buffer::Role::token});
  of.point(of.params.ids, ids);
  of.point(of.params.log, {.role = Buffer::Role::log});
  of.point(of.params.position, {.role = Buffer::Role::position});
  of.point(of.params.until, {.role = Buffer::Role::until});
  of.count(of.params.tokens, product(step.graph.type(ids).shape));
  of.params.positions = static_cast<int>(positions);
  Launch launch = of.finish();
  launch.kernel = entry;
  launch.threads = kernels::advance_threads;
  out.launches = {std::move(launch)};
  return out;
}

}  // namespace ac
