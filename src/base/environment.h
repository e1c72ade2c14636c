// Every environment variable that the program reads, in one table. Nothing else calls getenv.
#pragma once

#include <filesystem>
#include <span>
#include <string>

namespace ac {

struct EnvironmentVariable {
  const char* name;
  const char* meaning;
  const char* fallback;  // shown as the default
};

// For --help.
std::span<const EnvironmentVariable> environment_variables();

// A variable that is set to the empty string counts as not set.
struct Environment {
  std::filesystem::path hf_home;    // empty when not even a home directory is known
  std::filesystem::path hub_cache;  // likewise
  std::string hf_token;             // empty: not set (see hub_token())
  std::string hf_endpoint;          // without a slash at the end
  bool hub_offline = false;
  bool no_color = false;
  std::string python;
  std::filesystem::path cache;      // the user's cache folder; empty when not even a home is known
  std::string host_compiler;        // empty: c++ or g++
  std::filesystem::path cuda_home;  // empty: wherever CUDA is found
  std::filesystem::path cublaslt;   // empty: wherever cuBLASLt is found
  std::string path;
  std::string anthropic_key, openai_key;  // secrets; empty: not set
  std::string anthropic_url;              // without a slash at the end
};

// Throws Fault::wrong_usage, naming the variable, for a value that makes no sense.
Environment read_environment();

}  // namespace ac
