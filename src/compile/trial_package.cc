#include "compile/trial_package.h"

#include "base/files.h"
#include "runtime/package_files.h"

namespace ac {

namespace fs = std::filesystem;

Json to_json(Span span) { return {span.begin, span.end}; }

Span span_of(const Json& json) { return {json.at(0), json.at(1)}; }

TrialPackage::TrialPackage(const StepGraph& step, const Program& program, std::int64_t tokens,
                           const std::vector<Implemented>& parts, const Realiser& realiser) {
  std::size_t at = 0;
  for (const Implemented& part : parts) {
    const std::size_t begin = at;
    at += part.made.launches.size();
    spans_.push_back({begin, at});
  }
  Program trial = program;
  trial.buffers.clear(), trial.kernels.clear();
  trial.prefill = {}, trial.decode = {}, trial.decode_later.clear();
  trial.prefill_short.clear();
  Assembler assembler(trial);
  trial.decode = assembler.phase(step, tokens, parts, {});
  trial.prefill = trial.decode;
  plan_memory(trial);
  for (const Launch& launch : trial.decode.launches) {
    if (launch.product || !trial.kernels.emplace(launch.kernel, launch.kernel).second) continue;
    fs::copy_file(realiser.kernels().at(launch.kernel).artifact, folder_.path() / launch.kernel);
  }
  write_file(folder_.path() / "program.json", to_json(trial).dump());
  const std::vector<std::byte>& constants = assembler.constants();
  write_file(folder_.path() / "constants.bin",
             {reinterpret_cast<const char*>(constants.data()), constants.size()});
  write_digests(folder_.path());
}

}  // namespace ac
