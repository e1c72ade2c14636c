#include "compile/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace ac {

using Clock = std::chrono::steady_clock;

Progress::Progress(bool quiet)
    : quiet_(quiet), terminal_(isatty(STDERR_FILENO) == 1), began_(Clock::now()), shown_(began_) {}

Progress::~Progress() { done(); }

double Progress::seconds() const {
  return std::chrono::duration<double>(Clock::now() - began_).count();
}

void Progress::stage(const std::string& name) {
  done();
  stage_ = name;
  began_ = Clock::now();
  if (!quiet_ && terminal_) fmt::print(stderr, "\r\033[K{} ...", name);
}

void Progress::step(std::size_t done, std::size_t total, const std::string& what) {
  last_ = fmt::format("{}/{}{}{}", done, total, what.empty() ? "" : ", ", what);
  // Often enough for an eye, seldom enough for a slow terminal or a log.
  const auto pause = std::chrono::milliseconds(terminal_ ? 100 : 5000);
  if (quiet_ || Clock::now() - shown_ < pause) return;
  fmt::print(stderr, "{}{}: {}{}", terminal_ ? "\r\033[K" : "", stage_, last_,
             terminal_ ? "" : "\n");
  std::fflush(stderr);
  shown_ = Clock::now();
}

void Progress::note(const std::string& text) {
  if (!quiet_) fmt::print(stderr, "{}{}\n", terminal_ ? "\r\033[K" : "", text);
}

void Progress::done() {
  if (stage_.empty()) return;
  if (!quiet_)
    fmt::print(stderr, "{}{}{}{} ({:.1f} s)\n", terminal_ ? "\r\033[K" : "", stage_,
               last_.empty() ? "" : ": ", last_, seconds());
  stage_.clear();
  last_.clear();
}

}  // namespace ac
