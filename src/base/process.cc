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
  explicit Streams(ChildOutput output) {
    check(posix_spawn_file_actions_init(&actions_));
    check(posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0));
    if (output == ChildOutput::discarded)
      check(posix_spawn_file_actions_addopen(&actions_, STDERR_FILENO, "/dev/null", O_WRONLY, 0));
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

}  // namespace

ProcessResult run_process(const std::vector<std::string>& arguments, ChildOutput output) {
  AC_ASSERT(!arguments.empty());
  std::vector<std::string> copies = arguments;
  std::vector<char*> pointers;
  for (std::string& copy : copies) pointers.push_back(copy.data());
  pointers.push_back(nullptr);
  const Streams streams(output);
  pid_t child = 0;
  const int error =
      posix_spawnp(&child, pointers[0], streams.get(), nullptr, pointers.data(), environ);
  if (error != 0) job_failed("{}: cannot run it: {}", arguments[0], std::strerror(error));
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR)
      job_failed("{}: cannot wait for it: {}", arguments[0], std::strerror(errno));
  if (WIFSIGNALED(status)) return {0, WTERMSIG(status)};
  return {WEXITSTATUS(status), 0};
}

}  // namespace ac
