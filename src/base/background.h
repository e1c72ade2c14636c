// A program that runs beside us, with low priority, and says what it says into a file.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace ac {

class BackgroundProcess {
 public:
  enum class Lives {
    with_us,  // it ends when we do, however that is
    on,       // it goes on without us, and nobody waits for it
  };
  // `command[0]` is a path. A program or a file that cannot be opened is an error (job_failed).
  BackgroundProcess(const std::vector<std::string>& command, const std::filesystem::path& log,
                    Lives lives);
  // Asks one that lives with us to end, waits for that, and ends it if it does not.
  ~BackgroundProcess();
  BackgroundProcess(const BackgroundProcess&) = delete;
  BackgroundProcess& operator=(const BackgroundProcess&) = delete;

  pid_t id() const { return id_; }
  // Does not wait.
  bool has_ended();

 private:
  const Lives lives_;
  pid_t id_ = -1;
  bool ended_ = false;
};

}  // namespace ac
