#include "base/process.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "base/forked.h"

namespace ac {
namespace {

// Where the child's three standard streams lead. In the child; false with errno set.
bool direct_streams(ChildOutput output, int captured) {
  const auto lead = [](int to, int stream) { return to >= 0 && dup2(to, stream) >= 0; };
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (!lead(nothing, STDIN_FILENO)) return false;
  if (output == ChildOutput::discarded && !lead(nothing, STDERR_FILENO)) return false;
  if (output == ChildOutput::captured && !lead(captured, STDERR_FILENO)) return false;
  return lead(output == ChildOutput::errors_only ? nothing : STDERR_FILENO, STDOUT_FILENO);
}

// Closed in every other process that we start meanwhile, so that the reader sees the end.
struct Pipe {
  int ends[2] = {-1, -1};  // read, write
  explicit Pipe(bool wanted) {
    if (wanted && pipe2(ends, O_CLOEXEC) != 0)
      job_failed("cannot prepare a process: {}", std::strerror(errno));
  }
  ~Pipe() { close_read(), close_write(); }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_read() { close_end(ends[0]); }
  void close_write() { close_end(ends[1]); }

  std::string read_all() {
    std::string text;
    char buffer[4096];
    for (;;) {
      const ssize_t got = read(ends[0], buffer, sizeof buffer);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return text;
      text.append(buffer, static_cast<std::size_t>(got));
    }
  }

 private:
  static void close_end(int& end) {
    if (end >= 0) close(end);
    end = -1;
  }
};

}  // namespace

ProcessResult run_process(const std::vector<std::string>& arguments, ChildOutput output) {
  AC_ASSERT(!arguments.empty());
  std::vector<std::string> copies = arguments;
  std::vector<char*> pointers;
  for (std::string& copy : copies) pointers.push_back(copy.data());
  pointers.push_back(nullptr);
  // What it says begins a line, not in the middle of one of progress.
  if (output == ChildOutput::to_stderr && isatty(STDERR_FILENO) == 1) {
    constexpr std::string_view kClear = "\r\033[K";
    [[maybe_unused]] const ssize_t cleared = write(STDERR_FILENO, kClear.data(), kClear.size());
  }
  Pipe pipe(output == ChildOutput::captured), failure(true);
  const pid_t child = start_process([&] {
    if (direct_streams(output, pipe.ends[1])) execvp(pointers[0], pointers.data());
    const int error = errno;
    [[maybe_unused]] const ssize_t told = write(failure.ends[1], &error, sizeof error);
    _exit(127);
  });
  pipe.close_write(), failure.close_write();
  ProcessResult result;
  if (output == ChildOutput::captured) result.output = pipe.read_all();
  const std::string failed = failure.read_all();
  const int status = wait_for(child);
  if (failed.size() == sizeof(int)) {
    int error = 0;
    std::memcpy(&error, failed.data(), sizeof error);
    job_failed("{}: cannot run it: {}", arguments[0], std::strerror(error));
  }
  if (WIFSIGNALED(status))
    result.signal = WTERMSIG(status);
  else
    result.exit_code = WEXITSTATUS(status);
  return result;
}

}  // namespace ac
