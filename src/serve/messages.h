// What the server and the process that runs its model (worker.h) say to each other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "ask/text_request.h"
#include "base/error.h"
#include "base/json.h"
#include "prefix/prefix_cache.h"

namespace ac::serve {

// To the worker. A request has a number, which all that is said of it bears.
struct Ask {
  TextRequest request;  // its grammar as a source that was checked
  std::uint64_t number = 0;
};
struct Stop {  // nobody waits for that answer
  std::uint64_t number = 0;
};

// From the worker. Each request is Begun, has pieces, and is Answered or Failed at its end.
struct Loaded {
  std::int64_t max_context = 0;
  std::string fingerprint;  // of the package
  std::int64_t piece = 0;   // tokens of a prompt's piece, if the worker has measured how long
};
struct Begun {
  std::uint64_t number = 0;
};
struct Piece {
  TextPiece piece;
  std::uint64_t number = 0;
};
struct Answered {
  TextAnswer answer;               // without what its pieces have said
  std::int64_t cached_tokens = 0;  // now, of all sequences
  std::optional<PrefixCounts> counts = {};
  std::uint64_t number = 0;
};
struct Kept {  // between answers, where that has changed
  std::optional<PrefixCounts> counts;
};
struct Failed {
  Fault fault = Fault::job_failed;
  std::string message;
  std::uint64_t number = 0;  // 0: nothing can be answered
};

using ToWorker = std::variant<Ask, Stop>;
using FromWorker = std::variant<Loaded, Begun, Piece, Answered, Kept, Failed>;

Json json_of(const ToWorker& message);
Json json_of(const FromWorker& message);
// What is no such message is an error (job_failed).
ToWorker to_worker(const Json& json);
FromWorker from_worker(const Json& json);

}  // namespace ac::serve
