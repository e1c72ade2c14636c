// One end of a socket between two processes: messages of CBOR, each behind its length.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "base/json.h"

namespace ac::serve {

class Channel {
 public:
  explicit Channel(int socket) : socket_(socket) {}  // closes it
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // What nobody receives any more is lost: has_ended() says so afterwards.
  void send(const Json& message);
  // Waits for it, but not longer than `limit` if there is one. Nothing: none came. What is no
  // message is an error (job_failed).
  std::optional<Json> receive(std::optional<std::chrono::milliseconds> limit = {});
  // Something has come, or the other side has ended. Does not wait.
  bool is_readable() const;
  // The other side sends no more, and all that it has sent was received.
  bool has_ended() const { return ended_; }
  // Tells the other side that no more is sent.
  void close_sending();

 private:
  std::optional<Json> take();

  const int socket_;
  std::string received_;
  bool ended_ = false;
};

}  // namespace ac::serve
