// A package that is searched for faster kernels of its decode step, and compiled anew with them:
// what `tune` and `compile --proposals` have in common.
#pragma once

#include <string>

#include "base/json.h"
#include "cli/source_arguments.h"
#include "emit/package.h"
#include "tune/tune_step.h"

namespace ac {

class TunedPackage {
 public:
  explicit TunedPackage(const std::string& package);

  const Program& program() const { return program_; }
  // An error (wrong_usage) if the package was made of another model, or for another device or
  // type.
  void check(const SourceArguments& source) const;
  void check(const DeviceInfo& device) const;
  void check(const Model& model) const;
  // Sets what the package decides: type, states, and no more context than it has room for.
  void complete(TuneOptions& options) const;
  // Options with which compile() makes the same package again.
  CompileOptions compile_options(const TuneOptions& options) const;
  Compiled rewrite(const Model& model, const CompileOptions& options,
                   const std::filesystem::path& sources, KernelBuilder& builder,
                   Progress& progress);
  // The search over whole steps. The package has what it finds.
  TunedStep tune_step(const Model& model, const StepTuneOptions& options, KernelBuilder& builder,
                      Progress& progress);
  // The name of the phase that makes one token after `context` others.
  std::string phase_after(std::int64_t context) const;

 private:
  const std::string package_, origin_;
  const Program program_;
  const Json plan_;
  PackageDraft draft_;
};

Json to_json(const TunedStep& tuned);
void print(const TunedStep& tuned, const std::string& package, const StepTuneOptions& options);

}  // namespace ac
