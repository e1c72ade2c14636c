// What the lab found out of a step's candidates: what was built, judged and timed. Facts are added
// and none is taken back; what follows from them is decided by pure functions (decide.h).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lab/lab.h"
#include "select/selection.h"

namespace ac {

// Of one space. Candidates are named by their index in it.
struct SpaceEvidence {
  // In which candidates are tried: as they are predicted or, once all were timed, as fast as they
  // are.
  std::vector<std::size_t> order;
  struct Judged {
    int candidate = -1;
    Outcome outcome;
  };
  std::vector<Judged> judged;            // in the order in which they were, or shall be
  std::map<int, Trial> trials;           // that admitted them, or shall
  std::map<int, double> quick;           // microseconds, before any was judged
  std::optional<double> quick_fallback;  // likewise, where it took part
  struct Race {                          // of the fastest that were admitted, and the fallback
    std::vector<int> candidates;
    std::vector<double> microseconds;  // of these; empty if it failed
    std::optional<double> fallback;
    std::string failed;
  };
  std::vector<Race> races;
  std::map<int, std::vector<Confirmed>> confirmed;  // asked about as they are used
  std::map<int, Outcome> refused;                   // of these, those that were not admitted
};

struct Evidence {
  std::vector<SpaceEvidence> spaces;  // as Plans has them
  double scale = 1;                   // what was measured over what was predicted
  // Of fallbacks, by the signature of the node's region.
  std::map<std::string, Json> fallback_trials;
  std::map<std::string, std::vector<Confirmed>> confirmed_fallbacks;
};

}  // namespace ac
