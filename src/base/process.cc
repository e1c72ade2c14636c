#include "base/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace ac {
namespace {

// Where the child's three standard streams lead.
class Streams {
 public:
  // `captured`: the end of a pipe for both output streams, or -1.
  Streams(ChildOutput output, int captured) {
    check(posix_spawn_file_actions_init(&actions_));
    check(posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0));
    if (output == ChildOutput::discarded)
      check(posix_spawn_file_actions_addopen(&actions_, STDERR_FILENO, "/dev/null", O_WRONLY, 0));
    if (output == ChildOutput::captured)
      check(posix_spawn_file_actions_adddup2(&actions_, captured, STDERR_FILENO));
    check(posix_spawn_file_actions_adddup2(&actions_, STDERR_FILENO, STDOUT_FILENO));
  }
  ~Streams() { posix_spawn_file_actions_destroy(&actions_); }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  static void check(int error) {
    if (error != 0) job_failed("cannot prepare a process: {}", std::strerror(error));
  }
  posix_spawn_file_actions_t actions_;
};

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
  Pipe pipe(output == ChildOutput::captured);
  const Streams streams(output, pipe.ends[1]);
  pid_t child = 0;
  const int error =
      posix_spawnp(&child, pointers[0], streams.get(), nullptr, pointers.data(), environ);
  if (error != 0) job_failed("{}: cannot run it: {}", arguments[0], std::strerror(error));
  ProcessResult result;
  pipe.close_write();
  if (output == ChildOutput::captured) result.output = pipe.read_all();
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR)
      job_failed("{}: cannot wait for it: {}", arguments[0], std::strerror(errno));
  if (WIFSIGNALED(status))
    result.signal = WTERMSIG(status);
  else
    result.exit_code = WEXITSTATUS(status);
  return result;
}

}  // namespace ac
