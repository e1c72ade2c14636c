// What the builder needs of a compiler. Each is found and identified when it is constructed.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "build/compile.h"
#include "build/headers.h"

namespace ac {

struct Compilation {
  const KernelSource& source;
  const std::vector<const Header*>& headers;
  std::string arch;
  std::filesystem::path folder;    // empty, for whatever the compiler writes
  std::filesystem::path artifact;  // what it shall make
};

struct CompilerOutput {
  bool ok = false;
  // A failure that the compiler's own crash may explain is not worth remembering.
  bool conclusive = true;
  std::string log;
  int registers = 0, spill_bytes = 0, static_shared = 0;
};

class Compiler {
 public:
  virtual ~Compiler() = default;
  virtual std::string name() const = 0;  // for people
  // Version and flags: all that affects the result besides sources and architecture.
  virtual std::string identity() const = 0;
  virtual const char* artifact_name() const = 0;
  // Called by several threads at once. Throws for what is no fault of the kernel.
  virtual CompilerOutput compile(const Compilation& compilation) const = 0;
};

std::unique_ptr<Compiler> find_host_compiler(const std::string& wanted, HostChecks checks);
// Null where there is none.
std::unique_ptr<Compiler> find_nvrtc(const std::filesystem::path& cuda_home);
std::unique_ptr<Compiler> find_nvcc(const std::filesystem::path& cuda_home);

// ---- shared by compilers that are programs

// Puts headers and source into the compilation's folder; gives the source's path.
std::filesystem::path write_sources(const Compilation& compilation, const char* extension);
// Runs a compiler with no environment variable that changes what it does.
CompilerOutput run_compiler(const Compilation& compilation, std::vector<std::string> arguments);
// Fills in what ptxas -v reported.
void read_resources(CompilerOutput& compiled);

}  // namespace ac
