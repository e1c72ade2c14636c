#pragma once

namespace ac {

enum class FrontEnd { automatic, native, python };

// How the Python capture compares what it made with the live module.
enum class CaptureCheck { normal, thorough, none };

struct CaptureOptions {
  FrontEnd front_end = FrontEnd::automatic;
  CaptureCheck check = CaptureCheck::normal;
  bool download = false;  // fetch an id from the hub first
  bool quiet = false;     // no lines of progress on stderr
};

}  // namespace ac
