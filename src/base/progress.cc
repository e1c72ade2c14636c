#include "base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>
#include <utility>

#include "base/print_stderr.h"

namespace ac {

namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

std::size_t terminal_columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// The last column stays free: some terminals begin a new row there.
std::string fitted(const std::string& line, std::size_t columns) {
  constexpr std::string_view kCut = "...";
  if (line.size() < columns) return line;
  if (columns <= kCut.size() + 1) return "";
  std::size_t end = columns - 1 - kCut.size();
  while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xc0) == 0x80)
    --end;  // no half letter
  return line.substr(0, end).append(kCut);
}

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
  if (!quiet_ && terminal_) print_stderr("\r\033[K{}", fitted(name + " ...", terminal_columns()));
}

void Progress::step(const std::string& counted, std::size_t done, std::size_t total,
                    const std::string& what) {
  const std::string count = total == 0 ? "" : fmt::format("{}/{}", done, total);
  last_.clear();
  for (const auto& [text, separator] :
       {std::pair<const std::string&, const char*>{counted, ""}, {count, " "}, {what, ", "}})
    if (!text.empty()) last_ += (last_.empty() ? "" : separator) + text;
  // Often enough for an eye, seldom enough for a slow terminal or a log.
  const auto pause = std::chrono::milliseconds(terminal_ ? 100 : 5000);
  if (quiet_ || Clock::now() - shown_ < pause) return;
  const std::string line = fmt::format("{}: {}", stage_, last_);
  if (terminal_)
    print_stderr("\r\033[K{}", fitted(line, terminal_columns()));
  else
    print_stderr("{}\n", line);
  std::fflush(stderr);
  shown_ = Clock::now();
}

void Progress::note(const std::string& text) {
  if (!quiet_) print_stderr("{}{}\n", terminal_ ? "\r\033[K" : "", text);
}

void Progress::done() {
  if (stage_.empty()) return;
  if (!quiet_)
    print_stderr("{}{}{}{} ({:.1f} s)\n", terminal_ ? "\r\033[K" : "", stage_,
                 last_.empty() ? "" : ": ", last_, seconds());
  stage_.clear();
  last_.clear();
}

}  // namespace ac
