// What compilations and recordings tell the tuning database. They get on without it: trouble with
// the file is said once, and then it is left alone.
#pragma once

#include <functional>
#include <optional>

#include "build/compile.h"
#include "build/headers.h"
#include "tuning/database.h"

namespace ac::tuning {

// What all attempts of one run have in common.
struct Origin {
  std::string device;             // fingerprint
  std::string toolkit;            // "NVRTC 13.0"
  std::string model;              // that they are tried for
  std::filesystem::path sources;  // the folder that holds kernels/
};

class Log {
 public:
  using Say = std::function<void(const std::string& text)>;
  Log(const std::filesystem::path& database, Origin origin, Say say);

  // With the kernels that it is an attempt of; the rest of the key's origin is filled in.
  void add(TimedAttempt attempt, const std::vector<KernelSource>& sources);

 private:
  void give_up(const std::string& why);

  const Origin origin_;
  const Say say_;
  Headers headers_;
  std::optional<Database> database_;
};

// "T=1 P=1024": what an attempt was timed at.
std::string setting_of(std::int64_t tokens, std::int64_t position);

}  // namespace ac::tuning
