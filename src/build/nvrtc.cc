// NVRTC, loaded at run time. It compiles in this process, from headers in memory.
#include <dlfcn.h>
#include <fmt/ranges.h>

#include <array>
#include <type_traits>

#include "base/error.h"
#include "base/files.h"
#include "base/symbols.h"
#include "build/compiler.h"
#include "build/cuda_folders.h"

namespace ac {
namespace {

namespace fs = std::filesystem;

constexpr int kOldestWithCxx20 = 12;

// nvrtcResult values, fixed by its ABI.
enum Status { success = 0, compilation_failed = 6, internal_error = 11 };

// Every function that NVRTC does not say is void gives a Status; a program is an opaque pointer.
struct Nvrtc {
  int (*version)(int*, int*);
  int (*create)(void**, const char*, const char*, int, const char* const*, const char* const*);
  int (*destroy)(void**);
  int (*compile)(void*, int, const char* const*);
  int (*log_size)(void*, std::size_t*);
  int (*log)(void*, char*);
  int (*cubin_size)(void*, std::size_t*);
  int (*cubin)(void*, char*);
  int (*ptx_size)(void*, std::size_t*);
  int (*ptx)(void*, char*);
  const char* (*describe)(int);
};

bool load_all(void* library, Nvrtc& n) {
  return find_symbol(library, "nvrtcVersion", n.version) &&
         find_symbol(library, "nvrtcCreateProgram", n.create) &&
         find_symbol(library, "nvrtcDestroyProgram", n.destroy) &&
         find_symbol(library, "nvrtcCompileProgram", n.compile) &&
         find_symbol(library, "nvrtcGetProgramLogSize", n.log_size) &&
         find_symbol(library, "nvrtcGetProgramLog", n.log) &&
         find_symbol(library, "nvrtcGetCUBINSize", n.cubin_size) &&
         find_symbol(library, "nvrtcGetCUBIN", n.cubin) &&
         find_symbol(library, "nvrtcGetPTXSize", n.ptx_size) &&
         find_symbol(library, "nvrtcGetPTX", n.ptx) &&
         find_symbol(library, "nvrtcGetErrorString", n.describe);
}

class NvrtcProgram {
 public:
  NvrtcProgram(const Nvrtc& nvrtc, const std::string& name, const std::string& text,
               const std::vector<const Header*>& headers)
      : nvrtc_(nvrtc) {
    std::vector<const char*> texts, names;
    for (const Header* header : headers) {
      texts.push_back(header->text.c_str());
      names.push_back(header->name.c_str());
    }
    check(nvrtc_.create(&program_, text.c_str(), name.c_str(), static_cast<int>(names.size()),
                        texts.data(), names.data()));
  }
  ~NvrtcProgram() { nvrtc_.destroy(&program_); }
  NvrtcProgram(const NvrtcProgram&) = delete;
  NvrtcProgram& operator=(const NvrtcProgram&) = delete;

  int compile(const std::vector<std::string>& options) {
    std::vector<const char*> pointers;
    for (const std::string& option : options) pointers.push_back(option.c_str());
    return nvrtc_.compile(program_, static_cast<int>(pointers.size()), pointers.data());
  }
  std::string log() const {
    std::string text = read(nvrtc_.log_size, nvrtc_.log);
    while (!text.empty() && text.back() == '\0') text.pop_back();
    return text;
  }
  std::string cubin() const { return read(nvrtc_.cubin_size, nvrtc_.cubin); }
  std::string ptx() const { return read(nvrtc_.ptx_size, nvrtc_.ptx); }

 private:
  std::string read(int (*size)(void*, std::size_t*), int (*content)(void*, char*)) const {
    std::size_t bytes = 0;
    check(size(program_, &bytes));
    std::string text(bytes, '\0');
    check(content(program_, text.data()));
    return text;
  }
  void check(int status) const {
    if (status != success) job_failed("NVRTC: {}", nvrtc_.describe(status));
  }

  const Nvrtc& nvrtc_;
  void* program_ = nullptr;
};

// Plain functions are for the device: the plans' constexpr functions are. Our cache is enough.
const std::vector<std::string> kNvrtcFlags = {"-std=c++20", "-default-device", "-DNDEBUG",
                                              "--ptxas-options=-v"};

class NvrtcCompiler : public Compiler {
 public:
  NvrtcCompiler(const Nvrtc& nvrtc, int major, int minor)
      : nvrtc_(nvrtc), major_(major), minor_(minor) {
    // Only PTX tells one build of a version from another, in the lines at its beginning.
    NvrtcProgram program(nvrtc_, "version.cu", "", {});
    const int status = program.compile({});
    if (status != success)
      job_failed("NVRTC {}.{} does not work: {}\n{}", major_, minor_, nvrtc_.describe(status),
                 program.log());
    version_ = program.ptx();
  }

  std::string name() const override { return fmt::format("NVRTC {}.{}", major_, minor_); }
  std::string identity() const override {
    return fmt::format("{}\n{}\n{}", name(), version_, fmt::join(kNvrtcFlags, " "));
  }
  const char* artifact_name() const override { return "kernel.cubin"; }

  CompilerOutput compile(const Compilation& compilation) const override {
    NvrtcProgram program(nvrtc_, compilation.source.entry + ".cu", compilation.source.text,
                         compilation.headers);
    std::vector<std::string> options = kNvrtcFlags;
    options.push_back("--gpu-architecture=" + compilation.arch);
    const int status = program.compile(options);
    std::string log = program.log();
    if (status == compilation_failed || status == internal_error)
      return {.conclusive = status == compilation_failed, .log = std::move(log)};
    if (status != success)
      job_failed("{} cannot compile {} for {}: {}\n{}", name(), compilation.source.entry,
                 compilation.arch, nvrtc_.describe(status), log);
    CompilerOutput compiled{.ok = true, .log = std::move(log)};
    read_resources(compiled);
    write_file(compilation.artifact, program.cubin());
    return compiled;
  }

 private:
  Nvrtc nvrtc_;
  int major_, minor_;
  std::string version_;
};

// NVRTC opens its builtins by name alone, which finds them only in the loader's path or, as here,
// among the libraries that are loaded already.
void load_builtins_beside(const fs::path& library) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(library.parent_path(), error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("libnvrtc-builtins.so")) dlopen(entry.path().c_str(), RTLD_NOW);
  }
}

}  // namespace

std::unique_ptr<Compiler> find_nvrtc(const fs::path& cuda_home) {
  for (const fs::path& candidate : nvrtc_candidates(cuda_home)) {
    if (candidate.has_parent_path()) load_builtins_beside(candidate);
    void* const library = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) continue;
    // Never closed: its threads and exit handlers may outlive the builder.
    Nvrtc nvrtc{};
    int major = 0, minor = 0;
    if (load_all(library, nvrtc) && nvrtc.version(&major, &minor) == success &&
        major >= kOldestWithCxx20)
      return std::make_unique<NvrtcCompiler>(nvrtc, major, minor);
  }
  return nullptr;
}

}  // namespace ac
