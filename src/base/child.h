// Runs a function in a child process, for work that may crash or hang: generated kernels. The
// function's text comes back; how it ended otherwise is told apart.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace ac {

struct ChildResult {
  std::string text = {};   // what the function returned
  std::string ended = {};  // why there is no text: "crashed (SIGSEGV)", "took longer than 60 s"
  double seconds = 0;      // that it took
  bool ok() const { return ended.empty(); }
};

// What a child does: a function of this process, as it was when the child was forked, or a program
// that starts anew (libraries such as CUDA's do not survive a fork), whose stdout is the text.
struct ChildTask {
  template <class Function>
    requires std::is_invocable_r_v<std::string, Function&>
  ChildTask(Function function) : function(std::move(function)) {}  // NOLINT: reads like a function
  explicit ChildTask(std::vector<std::string> command) : command(std::move(command)) {}
  std::function<std::string()> function;
  std::vector<std::string> command;
};

// The tasks one after another, so many at once; results in their order. `on_done` hears of each
// as it ends. Call it while no other thread runs: children are forked.
std::vector<ChildResult> run_in_children(
    const std::vector<ChildTask>& tasks, unsigned at_once, std::chrono::seconds limit,
    const std::function<void(std::size_t index, const ChildResult&)>& on_done = {});

// Becomes that program, and comes back, with the reason, only if it cannot be started.
std::string become(const std::vector<std::string>& command);

// This process keeps the memory that it frees: one that makes large vectors again and again would
// take them from the system each time, a page at a time.
void keep_freed_memory();

// Of what waitpid() says: "crashed (SIGSEGV)", "ended with exit code 3".
std::string how_ended(int status);

}  // namespace ac
