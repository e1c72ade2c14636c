// Runs a function in a child process, for work that may crash or hang: generated kernels. The
// function's text comes back; how it ended otherwise is told apart.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace ac {

struct ChildResult {
  std::string text;   // what the function returned
  std::string ended;  // why there is no text: "crashed (SIGSEGV)", "took longer than 60 s"
  bool ok() const { return ended.empty(); }
};

// The functions one after another, so many at once; results in their order. `on_done` hears of each
// as it ends. Call it while no other thread runs: children are forked.
std::vector<ChildResult> run_in_children(
    const std::vector<std::function<std::string()>>& functions, unsigned at_once,
    std::chrono::seconds limit,
    const std::function<void(std::size_t index, const ChildResult&)>& on_done = {});

}  // namespace ac
