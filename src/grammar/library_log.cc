#include "grammar/library_log.h"

#include <stdexcept>
#include <utility>

namespace ac::grammar {
namespace {

thread_local std::string warning;

}  // namespace

std::string take_warning() { return std::exchange(warning, {}); }

}  // namespace ac::grammar

// The library asks its user to define these functions (XGRAMMAR_LOG_CUSTOMIZE).
namespace xgrammar {

[[noreturn]] void LogFatalImpl(const std::string& file, int line, const std::string& message);
void LogMessageImpl(const std::string& file, int line, int level, const std::string& message);

void LogFatalImpl(const std::string&, int, const std::string& message) {
  throw std::runtime_error(message);
}

// It is called by a destructor, which cannot throw.
void LogMessageImpl(const std::string&, int, int level, const std::string& message) {
  constexpr int kWarning = 2;
  if (level >= kWarning && ac::grammar::warning.empty()) ac::grammar::warning = message;
}

}  // namespace xgrammar
