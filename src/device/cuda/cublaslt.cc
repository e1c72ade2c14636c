#include "device/cuda/cublaslt.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <memory>

#include "base/environment.h"
#include "base/error.h"
#include "base/symbols.h"
#include "build/cuda_folders.h"

namespace ac::cuda {
namespace {

constexpr std::size_t kOldest = 120000;  // the first for sm_90

std::string text_of(std::size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

bool find_all(void* library, CublasLt& b) {
  return find_symbol(library, "cublasLtGetVersion", b.version) &&
         find_symbol(library, "cublasLtGetStatusName", b.status_name) &&
         find_symbol(library, "cublasLtCreate", b.create) &&
         find_symbol(library, "cublasLtDestroy", b.destroy) &&
         find_symbol(library, "cublasLtMatmulDescCreate", b.create_product) &&
         find_symbol(library, "cublasLtMatmulDescDestroy", b.destroy_product) &&
         find_symbol(library, "cublasLtMatmulDescSetAttribute", b.set_product) &&
         find_symbol(library, "cublasLtMatrixLayoutCreate", b.create_layout) &&
         find_symbol(library, "cublasLtMatrixLayoutDestroy", b.destroy_layout) &&
         find_symbol(library, "cublasLtMatmulPreferenceCreate", b.create_preference) &&
         find_symbol(library, "cublasLtMatmulPreferenceDestroy", b.destroy_preference) &&
         find_symbol(library, "cublasLtMatmulPreferenceSetAttribute", b.set_preference) &&
         find_symbol(library, "cublasLtMatmulAlgoGetHeuristic", b.propose) &&
         find_symbol(library, "cublasLtMatmulAlgoCheck", b.check) &&
         find_symbol(library, "cublasLtMatmul", b.multiply);
}

// Why the file is none that can be used, or nothing.
std::string why_not(const std::string& file, CublasLt& b) {
  // Never closed: kernels of it may still be in recordings.
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = dlerror();
    return reason != nullptr ? reason : "it cannot be loaded";
  }
  if (!find_symbol(library, "cublasLtGetVersion", b.version)) return file + " is no cuBLASLt";
  if (b.version() < kOldest || !find_all(library, b))
    return fmt::format("{} is version {}, and {} or later is needed", file, text_of(b.version()),
                       text_of(kOldest));
  b.file = file;
  return {};
}

std::unique_ptr<CublasLt> load() {
  const Environment environment = read_environment();
  auto found = std::make_unique<CublasLt>();
  if (!environment.cublaslt.empty()) {
    const std::string why = why_not(environment.cublaslt.string(), *found);
    if (!why.empty()) job_failed("AC_CUBLASLT: {}", why);
    return found;
  }
  std::string unfit;
  for (const auto& file : cublaslt_candidates(environment.cuda_home, environment.path)) {
    const std::string why = why_not(file.string(), *found);
    if (why.empty()) return found;
    // A bare name that the loader does not know says nothing.
    if (file.has_parent_path()) unfit += "; " + why;
  }
  job_failed(
      "no cuBLASLt (libcublasLt.so) in $CUDA_HOME, Python's packages, the loader's path or "
      "/usr/local/cuda*{}: install it (pip install nvidia-cublas), or name the file in AC_CUBLASLT",
      unfit);
}

}  // namespace

std::string CublasLt::version_text() const { return text_of(version()); }

void CublasLt::require(int status, const std::string& doing) const {
  if (status == 0) return;
  const char* const name = status_name(status);
  job_failed("{}: cuBLASLt {} gave {}", doing, version_text(),
             name != nullptr ? name : fmt::format("error {}", status));
}

const CublasLt& cublaslt() {
  static const CublasLt* const library = load().release();
  return *library;
}

}  // namespace ac::cuda
