#include "serve/channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/error.h"

namespace ac::serve {
namespace {

using Length = std::uint32_t;
constexpr Length kMostBytes = 1u << 30;

}  // namespace

Channel::~Channel() { close(socket_); }

void Channel::send(const Json& message) {
  std::string bytes(sizeof(Length), '\0');
  Json::to_cbor(message, bytes);
  AC_ASSERT(bytes.size() <= kMostBytes);
  const auto length = static_cast<Length>(bytes.size() - sizeof(Length));
  std::memcpy(bytes.data(), &length, sizeof length);
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t sent = ::send(socket_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return;
    at += static_cast<std::size_t>(sent);
  }
}

std::optional<Json> Channel::receive(std::optional<std::chrono::milliseconds> limit) {
  for (;;) {
    if (auto message = take()) return message;
    if (ended_) return std::nullopt;
    if (limit) {
      pollfd polled{socket_, POLLIN, 0};
      if (poll(&polled, 1, static_cast<int>(limit->count())) <= 0) return std::nullopt;
    }
    char buffer[1 << 16];
    const ssize_t got = recv(socket_, buffer, sizeof buffer, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got > 0)
      received_.append(buffer, static_cast<std::size_t>(got));
    else
      ended_ = true;
  }
}

bool Channel::is_readable() const {
  pollfd polled{socket_, POLLIN, 0};
  return !received_.empty() || poll(&polled, 1, 0) > 0;
}

void Channel::close_sending() { shutdown(socket_, SHUT_WR); }

std::optional<Json> Channel::take() {
  Length length = 0;
  if (received_.size() < sizeof length) return std::nullopt;
  std::memcpy(&length, received_.data(), sizeof length);
  if (length > kMostBytes) job_failed("what came from another process is no message");
  if (received_.size() < sizeof length + length) return std::nullopt;
  const auto begin = received_.begin() + sizeof length;
  Json message = Json::from_cbor(begin, begin + length, true, false);
  if (message.is_discarded()) job_failed("what came from another process is no message");
  received_.erase(0, sizeof length + length);
  return message;
}

}  // namespace ac::serve
