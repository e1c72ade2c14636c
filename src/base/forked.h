// Processes that we start. Each is the first of a process group of its own: a terminal's Ctrl-C
// reaches us alone, and whoever is ended takes along what it has started. None outlives us.
#pragma once

#include <sys/types.h>

#include <functional>

namespace ac {

// `child` runs in the new process, which ends with exit code 0 where it returns. From a process
// with several threads it may only become another program, or take no lock but malloc's: what other
// threads hold is never released there. The process ends with this one, also if this one is killed.
pid_t start_process(const std::function<void()>& child);

// Until it has ended; what waitpid() says of that.
int wait_for(pid_t process);

// Of any process; one that has ended does not, though nobody may have waited for it yet.
bool is_running(pid_t process);

// With all of its group. Someone has to wait_for() it all the same.
void end_process(pid_t process);

}  // namespace ac
