#include "base/background.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "base/forked.h"
#include "base/interrupt.h"

namespace ac {
namespace {

using namespace std::chrono_literals;

constexpr int kNiceness = 5;  // less than that of what it builds ahead itself
constexpr auto kTimeToEnd = 5s;

// Strings of a command as execv() takes them.
struct CommandLine {
  std::vector<std::string> texts;
  std::vector<char*> pointers;
  explicit CommandLine(std::vector<std::string> command) : texts(std::move(command)) {
    for (std::string& text : texts) pointers.push_back(text.data());
    pointers.push_back(nullptr);
  }
};

// Everything between fork and exec: memory is taken before.
[[noreturn]] void turn_into(const CommandLine& arguments, int log) {
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(nothing, STDIN_FILENO), dup2(log, STDOUT_FILENO), dup2(log, STDERR_FILENO);
  setpriority(PRIO_PROCESS, 0, kNiceness);
  execv(arguments.pointers[0], arguments.pointers.data());
  _exit(127);
}

int open_log(const std::filesystem::path& file) {
  const int log = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (log < 0) job_failed("{}: cannot write it: {}", file.string(), std::strerror(errno));
  return log;
}

}  // namespace

BackgroundProcess::BackgroundProcess(const std::vector<std::string>& command,
                                     const std::filesystem::path& log, Lives lives)
    : lives_(lives) {
  const CommandLine arguments(command);
  const int file = open_log(log);
  if (lives == Lives::with_us) {
    id_ = start_process([&] { turn_into(arguments, file); });
    close(file);
    return;
  }
  // The child of a child that has ended belongs to nobody; its number comes through a pipe.
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) job_failed("cannot start a process: {}", std::strerror(errno));
  const pid_t between = fork();
  if (between == 0) {
    setsid();
    heed_signals();
    const pid_t child = fork();
    if (child == 0) turn_into(arguments, file);
    [[maybe_unused]] const ssize_t told = write(ends[1], &child, sizeof child);
    _exit(0);
  }
  close(ends[1]), close(file);
  [[maybe_unused]] const ssize_t got = read(ends[0], &id_, sizeof id_);
  close(ends[0]);
  if (between > 0) waitpid(between, nullptr, 0);
  if (id_ <= 0) job_failed("cannot start a process: {}", std::strerror(errno));
}

bool BackgroundProcess::has_ended() {
  if (ended_) return true;
  if (lives_ == Lives::on) return ended_ = !is_running(id_);
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(id_), &info, WEXITED | WNOWAIT | WNOHANG) != 0 ||
      info.si_pid == 0)
    return false;
  wait_for(id_);
  return ended_ = true;
}

BackgroundProcess::~BackgroundProcess() {
  if (lives_ == Lives::on || has_ended()) return;
  kill(id_, SIGTERM);
  for (const auto end = std::chrono::steady_clock::now() + kTimeToEnd;
       !has_ended() && std::chrono::steady_clock::now() < end;)
    std::this_thread::sleep_for(5ms);
  if (has_ended()) return;
  end_process(id_);
  wait_for(id_);
}

}  // namespace ac
