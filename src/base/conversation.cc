#include "base/conversation.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/forked.h"

namespace ac {
namespace {

using Clock = std::chrono::steady_clock;

// False if nobody listens any more.
bool write_line(int to, std::string line) {
  std::replace(line.begin(), line.end(), '\n', ' ');
  line += '\n';
  for (std::size_t at = 0; at < line.size();) {
    const ssize_t written = write(to, line.data() + at, line.size() - at);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    at += static_cast<std::size_t>(written);
  }
  return true;
}

// The first line of what was received, which it is taken from.
bool take_line(std::string& received, std::string& line) {
  const std::size_t end = received.find('\n');
  if (end == std::string::npos) return false;
  line = received.substr(0, end);
  received.erase(0, end + 1);
  return true;
}

// False at the end.
bool read_more(int from, std::string& received) {
  char buffer[1 << 16];
  for (;;) {
    const ssize_t got = read(from, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got > 0) received.append(buffer, static_cast<std::size_t>(got));
    return got > 0;
  }
}

constexpr std::string_view kWaits = "~";
int asked_by = -1;  // where the answers of this process go

}  // namespace

void ask_for_patience() {
  if (asked_by >= 0) write_line(asked_by, std::string(kWaits));
}

void answer_questions(const Conversation::Prepare& prepare, int in, int out) {
  asked_by = out;
  try {
    const Conversation::Answer answer = prepare();
    std::string received, question;
    for (;;) {
      while (!take_line(received, question))
        if (!read_more(in, received)) return;
      if (!write_line(out, "+" + answer(question))) return;
    }
  } catch (const std::exception& error) {
    write_line(out, std::string("-") + error.what());
  } catch (...) {
    write_line(out, "-threw what is no std::exception");
  }
}

Conversation::Conversation(const Prepare& prepare) {
  start([&](int socket) { answer_questions(prepare, socket, socket); });
}

Conversation::Conversation(const std::vector<std::string>& command) {
  start([&](int socket) {
    dup2(socket, STDIN_FILENO);
    dup2(socket, STDOUT_FILENO);
    write_line(socket, "-" + become(command));
  });
}

void Conversation::start(const std::function<void(int socket)>& child) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    job_failed("cannot start a process: {}", std::strerror(errno));
  try {
    pid_ = start_process([&] {
      close(ends[0]);
      child(ends[1]);
    });
  } catch (const Error&) {
    close(ends[0]), close(ends[1]);
    throw;
  }
  close(ends[1]);
  socket_ = ends[0];
}

Conversation::~Conversation() {
  if (pid_ > 0) finish("");
}

void Conversation::stop() {
  if (pid_ > 0) end_process(pid_);
}

ChildResult Conversation::finish(const std::string& why) {
  end_process(pid_);  // unless it has ended by itself
  close(socket_);
  const int status = wait_for(pid_);
  pid_ = -1, socket_ = -1;
  return {.ended = why.empty() ? how_ended(status) : why, .seconds = seconds()};
}

double Conversation::seconds() const {
  return std::chrono::duration<double>(Clock::now() - began_).count();
}

ChildResult Conversation::ask(const std::string& question, std::chrono::seconds limit) {
  begin(question, limit);
  for (;;) {
    pollfd polled = awaited();
    if (poll(&polled, 1, static_cast<int>(patience().count())) < 0) polled.revents = 0;
    if (std::optional<ChildResult> result = advance(polled.revents)) return *std::move(result);
  }
}

void Conversation::begin(const std::string& question, std::chrono::seconds limit) {
  AC_ASSERT(pid_ > 0 && question.find('\n') == std::string::npos);
  began_ = Clock::now();
  limit_ = limit;
  asked_ = question + "\n";
  sent_ = 0;
}

pollfd Conversation::awaited() const {
  const bool asks = sent_ < asked_.size();
  return {socket_, static_cast<short>(asks ? POLLIN | POLLOUT : POLLIN), 0};
}

std::chrono::milliseconds Conversation::patience() const {
  using std::chrono::milliseconds;
  const auto left = std::chrono::ceil<milliseconds>(began_ + limit_ - Clock::now());
  return std::clamp(left, milliseconds(0), milliseconds(1000));
}

std::optional<ChildResult> Conversation::advance(short seen) {
  if (seen & POLLOUT) {
    const ssize_t more =
        send(socket_, asked_.data() + sent_, asked_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (more > 0) sent_ += static_cast<std::size_t>(more);
    // One that listens no more may have said why.
    if (more < 0 && errno != EAGAIN && errno != EINTR) sent_ = asked_.size();
  }
  if ((seen & (POLLIN | POLLHUP | POLLERR)) && !read_more(socket_, received_)) return finish("");
  for (std::string reply; take_line(received_, reply);) {
    if (reply == kWaits) {
      began_ = Clock::now();
      continue;
    }
    if (reply.empty() || reply[0] != '+')
      return finish(reply.empty() ? "said nothing" : reply.substr(1));
    return ChildResult{.text = reply.substr(1), .seconds = seconds()};
  }
  if (Clock::now() >= began_ + limit_)
    return finish(fmt::format("took longer than {} s", limit_.count()));
  return std::nullopt;
}

}  // namespace ac
