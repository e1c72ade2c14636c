// Errors that a user can cause or must act on. Expected outcomes (an illegal plan, a wrong kernel)
// are returned values; bugs are AC_ASSERT.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace ac {

// The values are the program's exit codes.
enum class Fault {
  job_failed = 1,
  wrong_usage = 2,
  bad_input = 3,
  device_lost = 4,     // a GPU failed in a way that leaves it of no use to this process: end it
  advice_awaited = 5,  // questions are written, and whoever answers them has not done so yet
};

class Error : public std::runtime_error {
 public:
  Error(Fault fault, const std::string& message) : std::runtime_error(message), fault_(fault) {}
  Fault fault() const { return fault_; }
  int exit_code() const { return static_cast<int>(fault_); }

 private:
  Fault fault_;
};

// A file, model or value that we were given is wrong.
template <class... Args>
[[noreturn]] void bad_input(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(Fault::bad_input, fmt::format(format, std::forward<Args>(args)...));
}

// The command line or an environment variable is wrong.
template <class... Args>
[[noreturn]] void wrong_usage(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(Fault::wrong_usage, fmt::format(format, std::forward<Args>(args)...));
}

// The input is fine, but the job could not be done here (disk full, tool missing, network down).
template <class... Args>
[[noreturn]] void job_failed(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(Fault::job_failed, fmt::format(format, std::forward<Args>(args)...));
}

// For bugs only: prints the condition and aborts, in every build type.
[[noreturn]] void assertion_failed(const char* condition, const char* file, int line);

#define AC_ASSERT(condition) \
  ((condition) ? (void)0 : ::ac::assertion_failed(#condition, __FILE__, __LINE__))

#define AC_UNREACHABLE() ::ac::assertion_failed("unreachable", __FILE__, __LINE__)

}  // namespace ac
