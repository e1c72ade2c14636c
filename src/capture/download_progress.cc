#include "capture/download_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "base/print_stderr.h"
#include "base/progress.h"

namespace ac {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kRedrawEvery = std::chrono::milliseconds(100);
constexpr int kBarWidth = 30;

std::string show_bytes(std::uint64_t bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  const char* unit = "";
  for (const char* next : {"kB", "MB", "GB", "TB"}) {
    if (value < 1000) break;
    value /= 1000;
    unit = next;
  }
  return fmt::format("{:.1f} {}", value, unit);
}

void draw_bar(const DownloadProgress& progress, Clock::time_point begin) {
  const double part =
      progress.total ? static_cast<double>(progress.bytes) / static_cast<double>(progress.total)
                     : 1;
  const int filled = static_cast<int>(part * kBarWidth);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  std::string line = fmt::format("[{:#<{}}{:.<{}}] {:3.0f} %  {} of {}  {}", "", filled, "",
                                 kBarWidth - filled, 100 * part, show_bytes(progress.bytes),
                                 show_bytes(progress.total), progress.file);
  if (progress.bytes == progress.total) line += fmt::format("  {:.0f} s", seconds);
  print_stderr("\r\x1b[K{}{}", fitted(line, terminal_columns()),
               progress.bytes == progress.total ? "\n" : "");
  std::fflush(stderr);
}

}  // namespace

void show_progress_on_stderr(DownloadOptions& options) {
  const bool terminal = isatty(STDERR_FILENO) == 1;
  options.on_message = [terminal](const std::string& text) {
    print_stderr("{}{}\n", terminal ? "\r\x1b[K" : "", text);
  };
  if (terminal) {
    options.on_progress = [begin = Clock::now(),
                           drawn = Clock::time_point()](const DownloadProgress& progress) mutable {
      if (!progress.file_done && Clock::now() - drawn < kRedrawEvery) return;
      drawn = Clock::now();
      draw_bar(progress, begin);
    };
  } else {
    options.on_progress = [](const DownloadProgress& progress) {
      if (progress.file_done)
        print_stderr("{}: {} ({} of {})\n", progress.file, show_bytes(progress.file_total),
                     show_bytes(progress.bytes), show_bytes(progress.total));
    };
  }
}

}  // namespace ac
