// Builds generated kernels: a shared object for the host device (device/host.h loads it), a cubin
// for a GPU. What was built once, also by another process, comes from a cache on disk.
//
// A kernel that does not compile is an expected outcome and a returned value; a missing compiler or
// a full disk is an Error.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/environment.h"

namespace ac {

struct KernelSource {
  std::string entry;  // the kernel's name, an identifier
  std::string text;   // includes such as "kernels/gemv.cuh", and AC_..._KERNEL(entry, ...)
};

struct Target {
  enum Kind { host, cuda };
  Kind kind = host;
  std::string arch;  // of cuda: "sm_90a"
};

struct Artifact {
  std::filesystem::path file;  // in the cache
  std::string key;             // of all that affects the result
  std::string digest;          // of the file
  std::string log;             // what the compiler said
  double seconds = 0;          // that compiling took, when it was compiled
  bool from_cache = false;
  // Of cuda, as ptxas counts them for one thread and one block.
  int registers = 0, spill_bytes = 0, static_shared = 0;
};

struct CompileFailure {
  std::string key;
  std::string log;
  double seconds = 0;
  bool from_cache = false;
};

using BuildResult = std::variant<Artifact, CompileFailure>;

// What a kernel for the host device tells besides its result.
enum class HostChecks {
  none,
  races,      // accesses to shared memory, for HostLaunch::check_races; indices outside of arrays
  addresses,  // out of bounds; only a program that has AddressSanitizer itself can load it
};

struct BuilderOptions {
  std::filesystem::path cache;
  std::filesystem::path sources;    // the folder that holds kernels/
  std::string host_compiler;        // empty: c++ or g++
  std::filesystem::path cuda_home;  // looked into first, if not empty
  HostChecks checks = HostChecks::none;
  unsigned jobs = 0;  // builds at once in build_all; 0: as many as there are processors
};

// The user's cache, and the kernel headers that belong to this program.
BuilderOptions builder_options(const Environment& environment);

// May be used from several threads, and on one cache by several processes. Headers are read when
// they are first needed; edits after that are not seen.
class KernelBuilder {
 public:
  explicit KernelBuilder(BuilderOptions options);
  ~KernelBuilder();

  const BuilderOptions& options() const;

  BuildResult build(const KernelSource& source, const Target& target);

  // Results in the order of the sources. `on_done` hears of each as it is ready, one at a time.
  std::vector<BuildResult> build_all(
      const std::vector<KernelSource>& sources, const Target& target,
      const std::function<void(std::size_t index, const BuildResult&)>& on_done = {});

  // Such as "NVRTC 13.0": for people. Throws if there is no compiler for the target.
  std::string compiler(const Target& target);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ac
