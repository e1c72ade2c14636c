#include "base/environment.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "base/text.h"

namespace ac {
namespace {

constexpr std::array kVariables = std::to_array<EnvironmentVariable>({
    {"HF_HUB_CACHE", "where models of the HuggingFace hub are kept", "$HF_HOME/hub"},
    {"HF_HOME", "HuggingFace's folder: the cache and the token", "$XDG_CACHE_HOME/huggingface"},
    {"XDG_CACHE_HOME", "the user's cache folder", "~/.cache"},
    {"HOME", "the user's home folder", ""},
    {"HF_TOKEN", "access token for gated and private models", "the file $HF_HOME/token"},
    {"HF_HUB_OFFLINE", "1: never use the network, not even with --download", "0"},
    {"HF_ENDPOINT", "the hub to download from", "https://huggingface.co"},
    {"NO_COLOR", "any value: no colours on a terminal", ""},
    {"AGENTCOMPILE_PYTHON", "the Python interpreter that captures models",
     "one with PyTorch in .venv or venv, here or beside the program, else python3"},
    {"AGENTCOMPILE_CXX", "the C++ compiler that builds kernels for the host device",
     "c++, else g++"},
    {"CUDA_HOME", "the CUDA toolkit whose NVRTC or nvcc builds kernels for GPUs", "$CUDA_PATH"},
    {"CUDA_PATH", "the same, where CUDA_HOME is not set",
     "a Python package, the loader's path or /usr/local/cuda*"},
    {"AC_CUBLASLT", "the file of cuBLASLt, whose matrix products race with our kernels",
     "in $CUDA_HOME, a Python package, the loader's path or /usr/local/cuda*"},
    {"PATH", "where compilers, and Python with its packages, are looked for", ""},
    {"ANTHROPIC_API_KEY", "the key for --advisor anthropic:MODEL", ""},
    {"ANTHROPIC_BASE_URL", "where that model is asked", "https://api.anthropic.com"},
    {"OPENAI_API_KEY", "the key for --advisor openai:MODEL[@URL]", ""},
});

std::string value_of(std::string_view name) {
  const bool listed =
      std::ranges::any_of(kVariables, [&](const auto& entry) { return name == entry.name; });
  AC_ASSERT(listed);
  const char* value = std::getenv(std::string(name).c_str());
  return value ? value : "";
}

// The spellings of true are huggingface_hub's, which takes everything else for false; we do not.
bool is_true(std::string_view name) {
  std::string value = value_of(name);
  std::ranges::transform(value, value.begin(), [](unsigned char c) { return std::tolower(c); });
  if (value == "1" || value == "true" || value == "yes" || value == "on") return true;
  if (value.empty() || value == "0" || value == "false" || value == "no" || value == "off")
    return false;
  wrong_usage("{}={}: must be 1, true, yes or on, or 0, false, no or off", name, quote(value));
}

// The variable as a path, "~" expanded; `fallback` when it is not set.
std::filesystem::path folder(std::string_view name, std::filesystem::path fallback) {
  const std::string value = value_of(name);
  if (value.empty()) return fallback;
  if (value == "~" || value.starts_with("~/")) {
    const std::string home = value_of("HOME");
    if (home.empty()) wrong_usage("{}={}: HOME is not set", name, quote(value));
    return std::filesystem::path(home) / (value.size() > 2 ? value.substr(2) : "");
  }
  return value;
}

std::filesystem::path beneath(const std::filesystem::path& parent, std::string_view child) {
  return parent.empty() ? parent : parent / child;
}

// The value is never shown.
std::string secret(std::string_view name) {
  const std::string value = value_of(name);
  const bool clean = std::ranges::all_of(value, [](unsigned char c) { return std::isgraph(c); });
  if (!clean) wrong_usage("{}: holds spaces or characters that no token has", name);
  return value;
}

std::string endpoint(std::string_view name, std::string_view fallback) {
  std::string value = value_of(name);
  if (value.empty()) value = fallback;
  while (value.ends_with('/')) value.pop_back();
  if (!value.starts_with("https://") && !value.starts_with("http://"))
    wrong_usage("{}={}: must start with https://", name, quote(value));
  return value;
}

}  // namespace

std::span<const EnvironmentVariable> environment_variables() { return kVariables; }

Environment read_environment() {
  Environment result;
  const std::filesystem::path home_cache = beneath(value_of("HOME"), ".cache");
  const std::filesystem::path cache = folder("XDG_CACHE_HOME", home_cache);
  result.hf_home = folder("HF_HOME", beneath(cache, "huggingface"));
  result.hub_cache = folder("HF_HUB_CACHE", beneath(result.hf_home, "hub"));
  result.hf_token = secret("HF_TOKEN");
  result.hf_endpoint = endpoint("HF_ENDPOINT", "https://huggingface.co");
  result.hub_offline = is_true("HF_HUB_OFFLINE");
  result.no_color = !value_of("NO_COLOR").empty();
  result.python = value_of("AGENTCOMPILE_PYTHON");
  result.cache = cache;
  result.host_compiler = value_of("AGENTCOMPILE_CXX");
  result.cuda_home = folder("CUDA_HOME", folder("CUDA_PATH", {}));
  result.cublaslt = folder("AC_CUBLASLT", {});
  result.path = value_of("PATH");
  result.anthropic_key = secret("ANTHROPIC_API_KEY");
  result.openai_key = secret("OPENAI_API_KEY");
  result.anthropic_url = endpoint("ANTHROPIC_BASE_URL", "https://api.anthropic.com");
  return result;
}

}  // namespace ac
