// One GPU in use: its context and the one stream on which all work is done, and the check that
// every call of the driver goes through.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "device/cuda/driver.h"

namespace ac::cuda {

class Session {
 public:
  explicit Session(int index);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int index() const { return index_; }
  Stream stream() const { return stream_; }

  // Makes the calling thread one that works on this GPU.
  const Driver& enter() const;
  // The same where nothing can be done about a failure: for freeing what belongs to the GPU.
  const Driver& enter_quietly() const {
    driver_.set_context(context_);
    return driver_;
  }

  // Throws if the call failed, saying what was being done: Fault::device_lost after an error that
  // leaves the GPU of no use to this process, else Fault::job_failed.
  template <class... Args>
  void check(Result result, fmt::format_string<Args...> doing, Args&&... args) const {
    if (!result.ok()) fail(result, fmt::format(doing, std::forward<Args>(args)...));
  }

  // Errors of kernels come with some later call: what has been launched, and may be the cause.
  void note_launch(std::string_view kind, std::string_view name);
  // Waits for all of it.
  void synchronize();
  // What was asked for is done, by other means than synchronize().
  void note_done() { launches_ = 0; }

 private:
  [[noreturn]] void fail(Result result, const std::string& doing) const;

  const Driver& driver_;
  int index_ = 0, device_ = 0;
  Context context_ = nullptr;
  Stream stream_ = nullptr;
  std::string last_launch_;
  std::size_t launches_ = 0;  // since the last wait
};

}  // namespace ac::cuda
