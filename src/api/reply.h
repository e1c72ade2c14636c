// What has come of the answers to one request, and who writes it in the form of an API.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/part.h"
#include "api/refusal.h"
#include "ask/text_request.h"
#include "base/json.h"

namespace ac::api {

struct Call {
  std::string id, name, arguments;
};

struct Logprob {
  std::int64_t token = 0;
  TokenLogprobs values;
};

struct Choice {
  std::string text, reasoning;
  std::vector<Call> calls;
  std::vector<Logprob> logprobs;
  std::int64_t tokens = 0;
  std::int64_t reasoning_tokens = 0;  // up to the last one of the reasoning
  // Why it has ended: "stop", "length"; empty: it has not.
  std::string finish;
  std::string stopped_by;  // the stop text

  void add(const Part& part, const std::string& new_id);
};

struct Reply {
  std::string id;
  std::int64_t created = 0;
  std::string model, fingerprint;
  std::vector<Choice> choices;
  std::int64_t prompt_tokens = 0, cached_tokens = 0;

  std::int64_t completion_tokens() const;
  std::int64_t reasoning_tokens() const;
};

// Writes a reply as a whole, or as the events of a stream. A stream's functions get the reply with
// what they tell of already in it.
class Writer {
 public:
  virtual ~Writer() = default;
  virtual Json whole(const Reply& reply) const = 0;
  virtual std::string begin(const Reply&) { return {}; }
  virtual std::string part(const Reply& reply, std::size_t choice, const Part& part) = 0;
  virtual std::string ended(const Reply& reply, std::size_t choice) = 0;
  virtual std::string done(const Reply& reply) = 0;
  virtual std::string failed(const Refusal& refusal) = 0;
};

// One event of a stream.
std::string event(const Json& data, const std::string& name = {});
// Bytes that are no UTF-8 become U+FFFD.
std::string dump(const Json& json);

// "chatcmpl-", and so many random characters.
std::string random_id(const std::string& prefix, std::size_t length = 24);

}  // namespace ac::api
