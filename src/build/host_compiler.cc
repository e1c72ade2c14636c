#include <fmt/ranges.h>

#include "base/cpu.h"
#include "base/error.h"
#include "base/process.h"
#include "build/compiler.h"

namespace ac {
namespace {

// The visibility keeps a kernel's templates from binding to those of another kernel, or of the
// program; -Bsymbolic the kernel itself to a function of its name (the C library has a step()).
// Undefined symbols are those of the host device, met when the kernel is loaded; with no
// default libraries, -fsanitize=thread does not bring libtsan (race_check.h). -O1: a kernel runs
// six times as fast as with -O0 for a third more time to compile; -O2 gains little on that. Indices
// of threads are thread-local variables of the host device, which the program has from its start.
const std::vector<std::string> kFlags = {
    "-std=c++20",       "-O1",      "-fPIC", "-shared", "-fvisibility=hidden",
    "-Wl,-Bsymbolic",   "-DNDEBUG", "-pipe", "-w",      "-ftls-model=initial-exec",
    "-ffp-contract=off"};

std::vector<std::string> flags_for(HostChecks checks) {
  std::vector<std::string> flags = kFlags;
  flags.push_back("-DAC_HOST_DEVICE");
  // Else each fmaf() is a call of the C library. The shim marks such kernels (ac_uses_fma).
  if (cpu_has_fma()) flags.push_back("-mfma");
  if (checks == HostChecks::addresses) {
    for (const char* flag : {"-fsanitize=address,undefined", "-fno-sanitize-recover=all",
                             "-fno-omit-frame-pointer", "-g1"})
      flags.push_back(flag);
    return flags;
  }
  // What a GPU faults at must not pass here, nor an index outside of an array, which nobody else
  // sees where the array is in registers. A trap needs no library.
  flags.push_back("-fsanitize-undefined-trap-on-error");
  flags.push_back(checks == HostChecks::races ? "-fsanitize=thread,bounds"
                                              : "-fsanitize=alignment");
  flags.push_back("-nodefaultlibs");
  return flags;
}

class HostCompiler : public Compiler {
 public:
  HostCompiler(std::string program, std::string version, HostChecks checks)
      : program_(std::move(program)), version_(std::move(version)), checks_(checks) {}

  std::string name() const override { return program_; }
  std::string identity() const override {
    return fmt::format("{}\n{}", version_, fmt::join(flags_for(checks_), " "));
  }
  const char* artifact_name() const override { return "kernel.so"; }

  CompilerOutput compile(const Compilation& compilation) const override {
    std::vector<std::string> command = {program_};
    const std::vector<std::string> flags = flags_for(checks_);
    command.insert(command.end(), flags.begin(), flags.end());
    const std::string folder = compilation.folder;
    for (const std::string& argument : {"-I" + folder, "-ffile-prefix-map=" + folder + "/=",
                                        write_sources(compilation, ".cc").string(),
                                        std::string("-o"), compilation.artifact.string()})
      command.push_back(argument);
    if (checks_ != HostChecks::addresses)
      for (const char* library : {"-lm", "-lc"}) command.push_back(library);
    return run_compiler(compilation, std::move(command));
  }

 private:
  std::string program_, version_;
  HostChecks checks_;
};

// What the compiler says of itself, its target and its library: how it was configured, and every
// macro that it defines. Empty if it does not run or lacks what the shim of CUDA needs.
std::string identity_of(const std::string& program) {
  try {
    const ProcessResult result =
        run_process({"env", "LC_ALL=C", program, "-v", "-std=c++20", "-E", "-dM", "-include",
                     "version", "-x", "c++", "/dev/null"},
                    ChildOutput::captured);
    const bool fits = result.output.find("__cpp_lib_source_location") != std::string::npos;
    return result.ok() && fits ? result.output : "";
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

std::unique_ptr<Compiler> find_host_compiler(const std::string& wanted, HostChecks checks) {
  const std::vector<std::string> programs =
      wanted.empty() ? std::vector<std::string>{"c++", "g++"} : std::vector<std::string>{wanted};
  for (const std::string& program : programs)
    if (std::string identity = identity_of(program); !identity.empty())
      return std::make_unique<HostCompiler>(program, std::move(identity), checks);
  if (!wanted.empty())
    job_failed(
        "{}: no working C++20 compiler with <source_location>, such as g++ 12 or clang 16 "
        "(AGENTCOMPILE_CXX)",
        wanted);
  job_failed(
      "no C++ compiler for the host device: install g++ 12 or later, or point AGENTCOMPILE_CXX at "
      "one");
}

}  // namespace ac
