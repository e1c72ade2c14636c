#include "base/forked.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/interrupt.h"

namespace ac {

pid_t start_process(const std::function<void()>& child) {
  Leftovers& ours = Leftovers::ours();
  const pid_t parent = getpid();
  std::unique_lock lock(ours.mutex);
  const pid_t process = fork();
  if (process < 0) job_failed("cannot start a process: {}", std::strerror(errno));
  if (process == 0) {
    lock.unlock();
    setpgid(0, 0);
    // Nobody is left who would stop a child of a process that was killed.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(3);
    heed_signals();
    signal(SIGTTOU, SIG_IGN);  // it may write to a terminal that it is in the background of
    child();
    _exit(0);
  }
  setpgid(process, process);  // whoever of the two comes first
  ours.groups.insert(process);
  return process;
}

int wait_for(pid_t process) {
  siginfo_t info{};
  while (waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOWAIT) < 0 &&
         errno == EINTR) {
  }
  // While a signal ends all processes, nobody hears that one has ended.
  Leftovers& ours = Leftovers::ours();
  const std::lock_guard lock(ours.mutex);
  ours.groups.erase(process);
  int status = 0;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

bool is_running(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string stat;
  std::getline(file, stat);
  const std::size_t name = stat.rfind(") ");
  return name != std::string::npos && stat.compare(name + 2, 1, "Z") != 0;
}

void end_process(pid_t process) { kill(-process, SIGKILL); }

}  // namespace ac
