// nvcc, where there is no NVRTC: the same kernels and cubins, but slower by its own start and its
// search for a host compiler.
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/process.h"
#include "build/compiler.h"
#include "build/cuda_folders.h"

namespace ac {
namespace {

const std::vector<std::string> kNvccFlags = {
    "-std=c++20", "--expt-relaxed-constexpr", "-O3", "-DNDEBUG", "-Xptxas", "-v", "-cubin"};

class NvccCompiler : public Compiler {
 public:
  NvccCompiler(std::string program, std::string version)
      : program_(std::move(program)), version_(std::move(version)) {}

  std::string name() const override { return program_; }
  std::string identity() const override {
    return fmt::format("{}\n{}", version_, fmt::join(kNvccFlags, " "));
  }
  const char* artifact_name() const override { return "kernel.cubin"; }

  CompilerOutput compile(const Compilation& compilation) const override {
    std::vector<std::string> command = {program_};
    command.insert(command.end(), kNvccFlags.begin(), kNvccFlags.end());
    for (const std::string& argument :
         {"-arch=" + compilation.arch, "-I" + compilation.folder.string(),
          write_sources(compilation, ".cu").string(), std::string("-o"),
          compilation.artifact.string()})
      command.push_back(argument);
    CompilerOutput compiled = run_compiler(compilation, std::move(command));
    compiled.log = "compiled by nvcc, as no NVRTC was found\n" + compiled.log;
    read_resources(compiled);
    return compiled;
  }

 private:
  std::string program_, version_;
};

}  // namespace

std::unique_ptr<Compiler> find_nvcc(const std::filesystem::path& cuda_home) {
  for (const std::filesystem::path& candidate : nvcc_candidates(cuda_home)) {
    try {
      ProcessResult version = run_process({candidate, "--version"}, ChildOutput::captured);
      if (version.ok()) return std::make_unique<NvccCompiler>(candidate, std::move(version.output));
    } catch (const Error&) {
      // It is not there.
    }
  }
  return nullptr;
}

}  // namespace ac
