#include "serve/worker.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "base/child.h"
#include "base/forked.h"
#include "base/warning.h"

namespace ac::serve {
namespace {

// Whoever waits for an answer is asked so often whether it still does.
constexpr std::chrono::milliseconds kAskAgain{50};

// Files are written while nobody asks.
constexpr std::chrono::milliseconds kTellAgain{300};
// And at the end.
constexpr std::chrono::seconds kToEnd{60};
// One that hangs in a driver may live on although it was killed: then it is left alone.
constexpr std::chrono::seconds kToDie{10};

bool has_ended_within(pid_t process, std::chrono::seconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (is_running(process)) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace

Worker::Worker(const std::vector<std::string>& command) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    job_failed("cannot start a process: {}", std::strerror(errno));
  channel_.emplace(ends[0]);
  try {
    process_ = start_process([&] {
      // It ends when the server closes the socket, also where a signal is sent to all processes.
      for (const int which : {SIGINT, SIGTERM, SIGHUP}) signal(which, SIG_IGN);
      dup2(ends[1], STDIN_FILENO);
      fcntl(STDIN_FILENO, F_SETFD, 0);
      dup2(STDERR_FILENO, STDOUT_FILENO);
      close_range(STDERR_FILENO + 1, ~0U, 0);  // connections of clients, too
      become(command);
      _exit(127);
    });
  } catch (const Error&) {
    close(ends[1]);
    throw;
  }
  close(ends[1]);
}

Worker::~Worker() {
  if (process_ < 0) return;
  channel_->close_sending();
  if (!has_ended_within(process_, kToEnd)) end_process(process_);
  if (has_ended_within(process_, kToDie)) wait_for(process_);
}

void Worker::wait_until_loaded() {
  while (const auto message = hear({})) {
    if (const auto* failed = std::get_if<Failed>(&*message))
      throw Error(failed->fault, failed->message);
    if (const auto* loaded = std::get_if<Loaded>(&*message)) {
      loaded_ = *loaded;
      return;
    }
  }
}

TextAnswer Worker::answer(const TextRequest& request,
                          const std::function<void(const TextPiece&)>& on_piece,
                          const std::function<bool()>& stopped) {
  begun_ = false;
  channel_->send(json_of(Ask{request}));
  bool stops = false, missed = false;  // some of its pieces
  for (;;) {
    if (!stops && stopped()) {
      stops = true;
      channel_->send(json_of(Stop{}));
    }
    std::optional<FromWorker> message = hear(kAskAgain);
    if (!message) continue;
    begun_ = begun_ || std::holds_alternative<Begun>(*message);
    if (const auto* piece = std::get_if<TextPiece>(&*message)) {
      if (stops)
        missed = true;
      else
        on_piece(*piece);
    } else if (auto* answered = std::get_if<Answered>(&*message)) {
      cached_tokens_ = answered->cached_tokens;
      TextAnswer answer = std::move(answered->answer);
      if (stops && (missed || answer.finish != "stop"))
        answer.finish = "interrupted", answer.stopped_by.clear();
      return answer;
    } else if (const auto* failed = std::get_if<Failed>(&*message)) {
      if (failed->fault == Fault::device_lost) lost("the device failed: " + failed->message);
      throw Error(failed->fault, failed->message);
    }
  }
}

void Worker::listen() {
  while (hear(std::chrono::milliseconds(0))) {
  }
}

std::optional<FromWorker> Worker::hear(std::optional<std::chrono::milliseconds> limit) {
  std::optional<Json> json;
  try {
    json = channel_->receive(limit);
    if (json) {
      FromWorker message = from_worker(*json);
      if (const auto* answered = std::get_if<Answered>(&message)) counts_ = answered->counts;
      if (const auto* kept = std::get_if<Kept>(&message)) counts_ = kept->counts;
      return message;
    }
  } catch (const Error& error) {
    lost(error.what());
  }
  if (!channel_->has_ended()) return std::nullopt;
  const pid_t process = std::exchange(process_, -1);
  const bool ended = has_ended_within(process, kToDie);
  if (!ended) end_process(process);
  throw WorkerLost("the process that runs the model " +
                   (ended ? how_ended(wait_for(process)) : "does not end"));
}

void Worker::lost(const std::string& why) {
  const pid_t process = std::exchange(process_, -1);
  end_process(process);
  if (has_ended_within(process, kToDie)) wait_for(process);
  throw WorkerLost(why);
}

void answer_requests(Channel& channel, Answerer& answerer, const std::string& fingerprint) {
  const auto say = [&](const FromWorker& message) { channel.send(json_of(message)); };
  grammar::Compiler compiler(answerer.text().tokenizer(), answerer.program().vocab);
  Json told;
  const auto tell_counts = [&] {
    Json kept = json_of(Kept{answerer.cache_counts()});
    if (kept == told) return;
    channel.send(kept);
    told = std::move(kept);
  };
  const auto next = [&] {
    auto message = channel.receive(kTellAgain);
    while (!message && !channel.has_ended()) {
      tell_counts();
      message = channel.receive(kTellAgain);
    }
    return message;
  };
  say(Loaded{answerer.program().max_context, fingerprint});
  while (const auto message = next()) {
    ToWorker asked = to_worker(*message);
    auto* const ask = std::get_if<Ask>(&asked);
    if (!ask) continue;  // it came too late
    say(Begun{});
    try {
      grammar::Rules& rules = ask->request.rules;
      if (rules.source) rules.grammar = compiler.compile(*rules.source, true);
      const TextAnswer answer = answerer.answer(
          ask->request, [&](const TextPiece& piece) { say(piece); },
          [&] { return channel.is_readable(); });
      say(Answered{answer, answerer.cached_tokens(), answerer.cache_counts()});
    } catch (const Error& error) {
      say(Failed{error.fault(), error.what()});
      if (error.fault() == Fault::device_lost) throw;
      continue;
    } catch (const std::exception& error) {
      say(Failed{Fault::job_failed, error.what()});
      continue;
    }
    try {
      answerer.keep();
    } catch (const Error& error) {
      if (error.fault() == Fault::device_lost) throw;
      warn("the prompt was not kept: {}", error.what());
    }
    tell_counts();
  }
}

}  // namespace ac::serve
