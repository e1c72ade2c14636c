#include "build/compile.h"

#include <atomic>
#include <chrono>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/own_file.h"
#include "build/cache.h"
#include "build/compiler.h"
#include "build/digest.h"
#include "build/headers.h"

namespace ac {
namespace {

namespace fs = std::filesystem;

fs::path find_sources() {
  std::vector<fs::path> folders;
  std::error_code error;
  if (const fs::path file = own_file(); !file.empty()) {
    folders.push_back(file.parent_path() / "../share/agentcompile");  // installed
    folders.push_back(file.parent_path() / "../..");                  // build/release
  }
  folders.push_back(AC_SOURCE_FOLDER);
  for (const fs::path& folder : folders)
    if (fs::exists(folder / "kernels/plan.h", error)) return folder.lexically_normal();
  job_failed("the kernels' sources are missing: they belong in {}",
             (folders[0] / "kernels").lexically_normal().string());
}

bool is_identifier(const std::string& name) {
  if (name.empty() || (name[0] >= '0' && name[0] <= '9')) return false;
  return name.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") ==
         std::string::npos;
}

// sm_ and a number, with a letter for features of that one architecture or its family.
bool is_architecture(const std::string& name) {
  if (!name.starts_with("sm_")) return false;
  const std::size_t digits = name.find_first_not_of("0123456789", 3);
  if (digits == std::string::npos) return name.size() > 3;
  return digits > 3 && digits + 1 == name.size() && (name[digits] == 'a' || name[digits] == 'f');
}

// Everything that affects the result. Each part with its length: no two inputs read the same.
std::string key_of(const KernelSource& source, const Target& target,
                   const std::vector<const Header*>& headers, const Compiler& compiler) {
  std::string all = "agentcompile kernel 1\n";
  const auto add = [&](const std::string& part) {
    all += fmt::format("{}:{}\n", part.size(), part);
  };
  add(target.kind == Target::host ? "host" : "cuda");
  add(target.arch);
  add(compiler.identity());
  add(source.entry);
  add(source.text);
  for (const Header* header : headers) add(header->name), add(header->digest);
  return sha256(all);
}

std::unique_ptr<Compiler> find_cuda_compiler(const fs::path& cuda_home) {
  if (auto nvrtc = find_nvrtc(cuda_home)) return nvrtc;
  if (auto nvcc = find_nvcc(cuda_home)) return nvcc;
  job_failed(
      "no compiler for GPUs: install NVRTC (.venv/bin/pip install 'nvidia-cuda-nvrtc>=13.0,<13.1') "
      "or the CUDA toolkit, or point CUDA_HOME at one");
}

}  // namespace

struct KernelBuilder::State {
  BuilderOptions options;
  KernelCache cache;
  Headers headers;
  std::mutex mutex;  // of what follows
  std::unique_ptr<Compiler> host, cuda;

  explicit State(BuilderOptions o)
      : options(std::move(o)), cache(options.cache), headers(options.sources) {}

  const Compiler& compiler(const Target& target) {
    if (target.kind == Target::cuda && !is_architecture(target.arch))
      wrong_usage("{}: not an architecture of GPUs (such as sm_90a)", target.arch);
    const std::lock_guard lock(mutex);
    std::unique_ptr<Compiler>& compiler = target.kind == Target::host ? host : cuda;
    if (!compiler)
      compiler = target.kind == Target::host
                     ? find_host_compiler(options.host_compiler, options.checks)
                     : find_cuda_compiler(options.cuda_home);
    return *compiler;
  }
};

BuilderOptions builder_options(const Environment& environment) {
  if (environment.cache.empty())
    wrong_usage("there is no folder for built kernels: set HOME or XDG_CACHE_HOME");
  return {.cache = environment.cache / "agentcompile/kernels",
          .sources = find_sources(),
          .host_compiler = environment.host_compiler,
          .cuda_home = environment.cuda_home};
}

KernelBuilder::KernelBuilder(BuilderOptions options)
    : state_(std::make_unique<State>(std::move(options))) {}
KernelBuilder::~KernelBuilder() = default;

const BuilderOptions& KernelBuilder::options() const { return state_->options; }

std::string KernelBuilder::compiler(const Target& target) {
  return state_->compiler(target).name();
}

BuildResult KernelBuilder::build(const KernelSource& source, const Target& target) {
  AC_ASSERT(is_identifier(source.entry));
  const Compiler& compiler = state_->compiler(target);
  const std::vector<const Header*> headers = state_->headers.reached_by(source.text);
  const std::string key = key_of(source, target, headers, compiler);
  if (auto known = state_->cache.find(key)) return *known;

  const KernelCache::Workspace workspace = state_->cache.workspace();
  const auto start = std::chrono::steady_clock::now();
  CompilerOutput compiled =
      compiler.compile({.source = source,
                        .headers = headers,
                        .arch = target.arch,
                        .folder = workspace.scratch(),
                        .artifact = workspace.entry() / compiler.artifact_name()});
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  if (!compiled.ok && !compiled.conclusive)
    return CompileFailure{key, std::move(compiled.log), taken.count(), false};
  return state_->cache.keep(key, workspace,
                            {.artifact_name = compiled.ok ? compiler.artifact_name() : "",
                             .log = std::move(compiled.log),
                             .seconds = taken.count(),
                             .registers = compiled.registers,
                             .spill_bytes = compiled.spill_bytes,
                             .static_shared = compiled.static_shared});
}

std::vector<BuildResult> KernelBuilder::build_all(
    const std::vector<KernelSource>& sources, const Target& target,
    const std::function<void(std::size_t, const BuildResult&)>& on_done) {
  std::vector<BuildResult> results(sources.size());
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;  // of on_done and the error
  std::exception_ptr error;
  const auto work = [&] {
    try {
      for (std::size_t i; (i = next++) < sources.size();) {
        results[i] = build(sources[i], target);
        const std::lock_guard lock(mutex);
        if (on_done && !error) on_done(i, results[i]);
      }
    } catch (...) {
      next = sources.size();  // the others finish what they have begun
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  };
  const std::size_t wanted =
      state_->options.jobs != 0 ? state_->options.jobs : std::thread::hardware_concurrency();
  {
    std::vector<std::jthread> workers;
    for (std::size_t i = 1; i < std::min(wanted, sources.size()); ++i) workers.emplace_back(work);
    work();
  }
  if (error) std::rethrow_exception(error);
  return results;
}

}  // namespace ac
