#include "base/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/forked.h"

namespace ac {
namespace {

using Clock = std::chrono::steady_clock;

struct Child {
  std::size_t index = 0;
  pid_t pid = -1;
  int pipe = -1;
  Clock::time_point began, deadline;
  std::string text;
  bool late = false;
};

void write_all(int to, const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t written = write(to, text.data() + at, text.size() - at);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) _exit(3);
    at += static_cast<std::size_t>(written);
  }
}

Child start(std::size_t index, const ChildTask& task, std::chrono::seconds limit) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) job_failed("cannot start a process: {}", std::strerror(errno));
  const auto child = [&] {
    close(ends[0]);
    if (!task.command.empty()) {
      dup2(ends[1], STDOUT_FILENO);
      write_all(ends[1], "-" + become(task.command));
      return;
    }
    try {
      write_all(ends[1], "+" + task.function());
    } catch (const std::exception& error) {
      write_all(ends[1], std::string("-") + error.what());
    } catch (...) {  // must not go on in the parent's code
      write_all(ends[1], "-threw what is no std::exception");
    }
  };
  pid_t pid = -1;
  try {
    pid = start_process(child);
  } catch (const Error&) {
    close(ends[0]), close(ends[1]);
    throw;
  }
  close(ends[1]);
  const Clock::time_point now = Clock::now();
  return {index, pid, ends[0], now, now + limit, {}, false};
}

ChildResult finish(const Child& child, std::chrono::seconds limit) {
  close(child.pipe);
  const int status = wait_for(child.pid);
  if (child.late) return {.ended = fmt::format("took longer than {} s", limit.count())};
  if (WIFSIGNALED(status)) return {.ended = how_ended(status)};
  if (!child.text.empty() && child.text[0] == '+') return {.text = child.text.substr(1)};
  if (child.text.size() > 1) return {.ended = child.text.substr(1)};
  return {.ended = how_ended(status)};
}

// Reads what there is; true at the end.
bool read_some(Child& child) {
  char buffer[1 << 16];
  const ssize_t got = read(child.pipe, buffer, sizeof buffer);
  if (got < 0 && errno == EINTR) return false;
  if (got <= 0) return true;
  child.text.append(buffer, static_cast<std::size_t>(got));
  return false;
}

}  // namespace

std::string become(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& argument : command)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  execv(arguments[0], arguments.data());
  return "cannot start " + command[0] + ": " + std::strerror(errno);
}

void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TOP_PAD, 64 << 20);
#endif
}

std::string how_ended(int status) {
  if (WIFSIGNALED(status)) return fmt::format("crashed (SIG{})", sigabbrev_np(WTERMSIG(status)));
  return fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

std::vector<ChildResult> run_in_children(
    const std::vector<ChildTask>& tasks, unsigned at_once, std::chrono::seconds limit,
    const std::function<void(std::size_t index, const ChildResult&)>& on_done) {
  std::vector<ChildResult> results(tasks.size());
  std::vector<Child> running;
  std::size_t next = 0;
  while (next < tasks.size() || !running.empty()) {
    while (next < tasks.size() && running.size() < std::max(at_once, 1u)) {
      running.push_back(start(next, tasks[next], limit));
      ++next;
    }
    std::vector<pollfd> polled;
    for (const Child& child : running) polled.push_back({child.pipe, POLLIN, 0});
    poll(polled.data(), polled.size(), 100);
    for (std::size_t i = running.size(); i-- > 0;) {
      Child& child = running[i];
      child.late = Clock::now() > child.deadline;
      if (child.late)
        end_process(child.pid);
      else if (polled[i].revents == 0 || !read_some(child))
        continue;
      results[child.index] = finish(child, limit);
      results[child.index].seconds =
          std::chrono::duration<double>(Clock::now() - child.began).count();
      const std::size_t index = child.index;
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
      if (on_done) on_done(index, results[index]);
    }
  }
  return results;
}

}  // namespace ac
