// One implementation that shall be tried.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "admit/trial.h"

namespace ac {

// What shall be tried: the kernels of one implementation, and how to admit them.
struct Request {
  std::string name;  // of the candidate, for people
  std::vector<KernelSource> sources;
  Trial trial;
  std::string left_open = {};  // what the trial does not show, if it could have
  std::int64_t work = 0;       // operations of a launch
};

}  // namespace ac
