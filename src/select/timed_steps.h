// What timing whole steps said: part of the record of a compilation.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"

namespace ac {

// What timing whole steps after so many tokens gave.
struct InContext {
  std::int64_t context = 0;
  std::string untimed = {};     // why there is nothing else here; empty: they were timed
  double first_us = 0, us = 0;  // with what was chosen before that, and with what is chosen
  int timed = 0;                // so many steps that differed
  bool changed = false;         // whether those are not the same
  std::int64_t from = 0;        // what is chosen serves steps after so many tokens and more
};

// What a whole step took by one of several ways to cut it.
struct TimedCut {
  std::string what;  // it fuses instead of the first one, or not
  double us = 0;
  bool taken = false;
};

Json to_json(const InContext& of);
Json to_json(const TimedCut& cut);
// Of what to_json() makes; a field that is not there is an exception of Json.
InContext in_context_from_json(const Json& json);
TimedCut timed_cut_from_json(const Json& json);

}  // namespace ac
