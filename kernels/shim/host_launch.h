// Launches a kernel on the CPU: blocks (of a cluster, all together) in turn, in an order drawn from
// a seed; threads as fibers.
// Shared memory is full of NaN when a block starts. A kernel that the GPU would hang on (a barrier
// that some threads never reach, lanes that meet at different operations) ends with an error.
#pragma once

#include <cstddef>
#include <string>
#include <tuple>
#include <utility>

#include "kernels/shim/device.h"

namespace ac::kernels {

// The order in which runnable threads take their turns. A kernel with a missing barrier usually
// gives other results in another order. `ahead`: a warp goes on as far as it can before others do.
enum class Schedule { forward, reverse, shuffled, ahead };

struct HostLaunch {
  const char* name = "kernel";  // for error messages
  dim3 grid = {};
  dim3 block = {};
  std::size_t shared_bytes = 0;
  // Blocks side by side that run together, and reach each other's memory; 0: all of the grid run
  // together, and reach global memory alone.
  unsigned cluster = 1;
  Schedule schedule = Schedule::forward;
  unsigned seed = 1;
  // Asynchronous copies land when they begin, as early as a GPU can bring them, and not when they
  // are waited for.
  bool copies_at_once = false;
  // Report two threads that touch the same memory with nothing that orders them (of global memory,
  // global_memory.h says which), and any write to global memory before the wait for the previous
  // kernel. Works for kernels that were compiled with -fsanitize=thread (their accesses then call
  // race_check.cc); elsewhere it sees async copies only.
  bool check_races = false;
  // An error if no thread waits for the kernel before this one.
  bool must_wait = false;
  // Relaxed loads of a counter return that much less, as before an earlier kernel counted on.
  int relaxed_lag = 0;
};

struct LaunchReport {
  std::string error;  // empty if the launch went well
  bool ok() const { return error.empty(); }
};

LaunchReport run_on_host(const HostLaunch& launch, void (*thread_body)(void*), void* argument);

template <class... Parameters, class... Arguments>
LaunchReport host_launch(const HostLaunch& launch, void (*kernel)(Parameters...),
                         Arguments&&... arguments) {
  struct Call {
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> arguments;
  } call{kernel, {std::forward<Arguments>(arguments)...}};
  return run_on_host(
      launch,
      [](void* argument) {
        auto& c = *static_cast<Call*>(argument);
        std::apply(c.kernel, c.arguments);
      },
      &call);
}

}  // namespace ac::kernels
