// What tests of the compiler's stages share: a step that is quick to compile, and a builder.
#pragma once

#include "base/environment.h"
#include "base/temporary_folder.h"
#include "build/compile.h"
#include "ir/builder.h"
#include "ir/step_graph.h"
#include "lab/lab.h"

namespace ac::test {

// A builder that knows no kernel yet, and leaves none behind.
struct FreshBuilder {
  TemporaryFolder folder;
  KernelBuilder builder{[&] {
    BuilderOptions options = builder_options(read_environment());
    options.cache = folder.path() / "kernels";
    return options;
  }()};

  // Of what is judged, and not timed.
  LabOptions unmeasured() const {
    LabOptions options;
    options.here = false;
    options.verdicts = folder.path() / "verdicts";
    return options;
  }
};

// One token through a norm and a product, as at a decoder's end.
inline StepGraph norm_and_product(DType dtype, std::int64_t rows) {
  StepGraph step;
  step.graph.name = "small";
  Builder b(step.graph);
  const NodeId x = b.input("x", {dtype, {Dim(1), Dim(64)}});
  const NodeId scale = b.weight("norm", {dtype, {Dim(64)}});
  const NodeId w = b.weight("w", {dtype, {Dim(rows), Dim(64)}});
  step.graph.outputs = {{"y", b.linear(b.rms_norm(x, scale, 1e-5, 0), w)}};
  return step;
}

}  // namespace ac::test
