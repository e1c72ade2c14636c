#include "device/cuda/session.h"

#include "base/error.h"

namespace ac::cuda {

Session::Session(int index) : driver_(driver()), index_(index) {
  int count = 0;
  check(driver_.device_count(&count), "counting the GPUs");
  if (index < 0 || index >= count)
    job_failed("there is no GPU {}: {}", index,
               count == 0   ? "the NVIDIA driver sees none"
               : count == 1 ? "the only one is 0"
                            : fmt::format("they are numbered 0 to {}", count - 1));
  check(driver_.device(&device_, index), "opening GPU {}", index);
  check(driver_.retain_context(&context_, device_), "opening GPU {}", index);
  try {
    check(enter().create_stream(&stream_, kStreamNonBlocking), "opening GPU {}", index);
  } catch (const Error&) {
    driver_.release_context(device_);
    throw;
  }
}

// What is lost cannot be freed, and nobody needs to hear of it here.
Session::~Session() {
  enter_quietly().synchronize(stream_);
  driver_.destroy_stream(stream_);
  driver_.release_context(device_);
}

const Driver& Session::enter() const {
  check(driver_.set_context(context_), "using GPU {}", index_);
  return driver_;
}

// Of every launch of a step: nothing is formatted, and no memory is taken once there is some.
void Session::note_launch(std::string_view kind, std::string_view name) {
  last_launch_.assign(kind).append(name);
  ++launches_;
}

void Session::synchronize() {
  check(enter().synchronize(stream_), "waiting for GPU {}", index_);
  note_done();
}

void Session::fail(Result result, const std::string& doing) const {
  const std::string what = fmt::format("{}: {}", doing, driver_.describe(result));
  if (!ends_process(result.status)) job_failed("{}", what);
  std::string suspects;
  if (launches_ == 1) suspects = fmt::format("; one launch was not waited for: {}", last_launch_);
  if (launches_ > 1)
    suspects = fmt::format(
        "; {} launches were not waited for, the last is {} (CUDA_LAUNCH_BLOCKING=1 or "
        "compute-sanitizer finds the culprit)",
        launches_, last_launch_);
  throw Error(Fault::device_lost,
              fmt::format("GPU {} is lost to this process: {}{}", index_, what, suspects));
}

}  // namespace ac::cuda
