#include "serve/worker.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "base/child.h"
#include "base/forked.h"
#include "base/print_stderr.h"
#include "base/warning.h"

namespace ac::serve {
namespace {

// A prompt is kept so long after its answer, if nothing else was asked for: a request that comes at
// once would have to wait.
constexpr std::chrono::milliseconds kQuiet{50};
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

void Worker::ask(const TextRequest& request, std::uint64_t number) {
  channel_->send(json_of(Ask{request, number}));
}

void Worker::stop(std::uint64_t number) { channel_->send(json_of(Stop{number})); }

std::optional<FromWorker> Worker::hear(std::optional<std::chrono::milliseconds> limit) {
  std::optional<FromWorker> message;
  try {
    if (const auto json = channel_->receive(limit)) message = from_worker(*json);
  } catch (const Error& error) {
    lost(error.what());
  }
  if (message) {
    if (const auto* answered = std::get_if<Answered>(&*message))
      cached_tokens_ = answered->cached_tokens, counts_ = answered->counts;
    if (const auto* kept = std::get_if<Kept>(&*message)) counts_ = kept->counts;
    if (const auto* failed = std::get_if<Failed>(&*message))
      if (failed->number != 0 && failed->fault == Fault::device_lost)
        lost("the device failed: " + failed->message);
    return message;
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

namespace {

// What both ways to answer say of a request.
class Telling {
 public:
  using Hearer = std::function<void(const TextPiece&)>;

  Telling(Channel& channel, const text::Tokenizer& tokenizer, std::int64_t vocabulary)
      : channel_(channel), compiler_(tokenizer, vocabulary) {}

  void say(const FromWorker& message) {
    const Json json = json_of(message);
    const std::lock_guard lock(mutex_);
    channel_.send(json);
  }
  // If it is new.
  void tell(const std::optional<PrefixCounts>& counts) {
    Json kept = json_of(Kept{counts});
    const std::lock_guard lock(mutex_);
    if (kept == told_) return;
    channel_.send(kept);
    told_ = std::move(kept);
  }
  // False: it has failed. A lost device is thrown.
  bool answer(Ask& ask, const std::function<Answered(const Hearer&)>& answer) {
    say(Begun{ask.number});
    try {
      grammar::Rules& rules = ask.request.rules;
      if (rules.source) rules.grammar = compiler_.compile(*rules.source, true);
      Answered answered = answer([&](const TextPiece& piece) { say(Piece{piece, ask.number}); });
      answered.number = ask.number;
      say(answered);
      return true;
    } catch (const Error& error) {
      say(Failed{error.fault(), error.what(), ask.number});
      if (error.fault() == Fault::device_lost) throw;
    } catch (const std::exception& error) {
      say(Failed{Fault::job_failed, error.what(), ask.number});
    }
    return false;
  }
  static void keep(const std::function<void()>& keep) {
    try {
      keep();
    } catch (const Error& error) {
      if (error.fault() == Fault::device_lost) throw;
      warn("the prompt was not kept: {}", error.what());
    }
  }

 private:
  Channel& channel_;
  grammar::Compiler compiler_;
  std::mutex mutex_;  // of the channel's sending, and of:
  Json told_;
};

// Answers several requests at once: a thread for each sequence, and one that hears the server.
class Several {
 public:
  Several(Channel& channel, Sequences& sequences, const ModelText& text)
      : channel_(channel),
        sequences_(sequences),
        text_(text),
        telling_(channel, text.tokenizer(), sequences.program().vocab),
        slots_(sequences.count()),
        working_(sequences.count()) {}

  void run(const std::string& fingerprint) {
    telling_.say(Loaded{sequences_.program().max_context, fingerprint, sequences_.piece()});
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < slots_.size(); ++i) threads.emplace_back([this, i] { work(i); });
    threads.emplace_back([this] { hear(); });
    std::exception_ptr lost;
    try {
      sequences_.work();
    } catch (...) {
      // Whoever has a request has said so by now, and the server closes the socket.
      lost = std::current_exception();
    }
    for (std::thread& thread : threads) thread.join();
    if (lost) std::rethrow_exception(lost);
  }

 private:
  struct Asked {
    Ask ask;
    std::atomic<bool> stopped = false;
  };
  struct Slot {
    std::shared_ptr<Asked> asked = nullptr;  // null: it is free
    std::uint64_t since = 0;                 // that, in order
  };

  // The thread that hears the server. When there is no more to hear, all ends.
  void hear() {
    try {
      while (!channel_.has_ended()) {
        if (const auto message = channel_.receive(kTellAgain))
          take(to_worker(*message));
        else if (sequences_.in_use() == 0)
          telling_.tell(sequences_.cache_counts());
      }
    } catch (const Error& error) {  // nonsense, or the device is lost
      print_stderr("error: {}\n", error.what());
    }
    const std::lock_guard lock(mutex_);
    ended_ = true;
    waiting_.clear();
    for (const Slot& slot : slots_)
      if (slot.asked) slot.asked->stopped = true;
    changed_.notify_all();
  }

  void take(ToWorker message) {
    const std::lock_guard lock(mutex_);
    if (auto* const ask = std::get_if<Ask>(&message)) {
      waiting_.push_back(std::make_shared<Asked>());
      waiting_.back()->ask = std::move(*ask);
      return give();
    }
    const std::uint64_t number = std::get<Stop>(message).number;
    const auto stop = [&](const std::shared_ptr<Asked>& asked) {
      if (asked && asked->ask.number == number) asked->stopped = true;
    };
    for (const auto& asked : waiting_) stop(asked);
    for (const Slot& slot : slots_) stop(slot.asked);
  }

  // With the lock: requests to free sequences, the first one first. The one that has most of the
  // prompt is best; of those that have equally much, the one that was not used for longest.
  void give() {
    while (!waiting_.empty()) {
      Slot* best = nullptr;
      std::int64_t most = -1;
      for (std::size_t i = 0; i < slots_.size(); ++i) {
        if (slots_[i].asked) continue;
        const std::vector<std::int64_t>& ids = waiting_.front()->ask.request.ids;
        const std::int64_t alike = ids.empty() ? 0 : sequences_.alike(i, ids);
        if (alike > most || (alike == most && slots_[i].since < best->since))
          best = &slots_[i], most = alike;
      }
      if (best == nullptr) return;
      best->asked = std::move(waiting_.front());
      waiting_.pop_front();
      changed_.notify_all();
    }
  }

  // The thread of a sequence.
  void work(std::size_t i) {
    Slot& slot = slots_[i];
    bool unkept = false;  // its last prompt
    std::unique_lock lock(mutex_);
    const auto is_wanted = [&] { return slot.asked || ended_; };
    while (!ended_ || slot.asked || unkept) {
      if (!unkept)
        changed_.wait(lock, is_wanted);
      else
        changed_.wait_for(lock, kQuiet, is_wanted);
      const std::shared_ptr<Asked> asked = slot.asked;
      if (!asked && !unkept) continue;
      lock.unlock();
      try {
        if (asked)
          unkept = answer(i, *asked);
        else
          unkept = keep(i, [&] {
            const std::lock_guard guard(mutex_);
            return slot.asked != nullptr;
          });
      } catch (const Error&) {  // the device is lost, as run() hears
        unkept = false;
      }
      lock.lock();
      if (!asked) continue;
      slot.asked = nullptr;
      slot.since = ++last_;
      give();
    }
    if (--working_ == 0) sequences_.end();
  }

  // Whether something is left to keep.
  bool keep(std::size_t i, const std::function<bool()>& stopped) {
    const Sequences::Use use(sequences_, i);
    bool left = false;
    Telling::keep([&] { use.generator().keep([&] { return left = stopped(); }); });
    return left;
  }

  // Whether it was answered.
  bool answer(std::size_t i, Asked& asked) {
    const Sequences::Use use(sequences_, i);
    return telling_.answer(asked.ask, [&](const Telling::Hearer& hears) {
      Answered answered;
      answered.answer = ac::answer(asked.ask.request, use.generator(), text_, sequences_.program(),
                                   hears, [&] { return asked.stopped.load(); });
      answered.cached_tokens = sequences_.cached_tokens();
      answered.counts = sequences_.cache_counts();
      return answered;
    });
  }

  Channel& channel_;
  Sequences& sequences_;
  const ModelText& text_;
  Telling telling_;

  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Asked>> waiting_;
  std::vector<Slot> slots_;
  std::uint64_t last_ = 0;
  std::size_t working_;  // threads of sequences
  bool ended_ = false;
};

}  // namespace

void answer_requests(Channel& channel, Answerer& answerer, const std::string& fingerprint) {
  Telling telling(channel, answerer.text().tokenizer(), answerer.program().vocab);
  telling.say(Loaded{.max_context = answerer.program().max_context, .fingerprint = fingerprint});
  bool unkept = false;  // the last prompt
  while (!channel.has_ended()) {
    const auto message = channel.receive(unkept ? kQuiet : kTellAgain);
    if (!message) {
      if (std::exchange(unkept, false))
        Telling::keep([&] { answerer.keep([&] { return unkept = channel.is_readable(); }); });
      telling.tell(answerer.cache_counts());
      continue;
    }
    ToWorker asked = to_worker(*message);
    auto* const ask = std::get_if<Ask>(&asked);
    if (!ask) continue;  // it came too late
    unkept = telling.answer(*ask, [&](const Telling::Hearer& hears) {
      Answered answered;
      answered.answer = answerer.answer(ask->request, hears, [&] { return channel.is_readable(); });
      answered.cached_tokens = answerer.cached_tokens();
      answered.counts = answerer.cache_counts();
      return answered;
    });
  }
  Telling::keep([&] { answerer.keep(); });
}

void answer_requests(Channel& channel, Sequences& sequences, const ModelText& text,
                     const std::string& fingerprint) {
  Several(channel, sequences, text).run(fingerprint);
}

}  // namespace ac::serve
