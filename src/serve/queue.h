// Requests wait here for the worker, which answers some at a time: the first ones that have come.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ask/text_request.h"
#include "base/error.h"
#include "serve/metrics.h"
#include "serve/worker.h"

namespace ac::serve {

// Who waits for answers. Called by the queue's thread.
class Listener {
 public:
  virtual ~Listener() = default;
  // False: it has left. Asked between tokens.
  virtual bool waits() const = 0;
  // False: of this answer it has all that it needs.
  virtual bool wants(std::size_t answer) const = 0;
  // Answers of one listener may come at once.
  virtual void piece(std::size_t answer, const TextPiece& piece) = 0;
  virtual void answered(std::size_t answer, const TextAnswer& whole) = 0;
  virtual void done() = 0;  // all are answered, or it waits no more
  virtual void failed(const Error& error) = 0;
};

class Queue {
 public:
  // A worker of the model that is the `model`th of those that are served. `piece`: tokens of a
  // prompt's piece, as the worker before it had them, whose answers are to have the same bits; 0:
  // there was none.
  using Start = std::function<std::unique_ptr<Worker>(std::size_t model, std::int64_t piece)>;
  // `slots`: answers that a worker writes at once.
  Queue(Start start, Metrics& metrics, std::size_t most_waiting, std::size_t slots = 1)
      : start_(std::move(start)), metrics_(metrics), most_waiting_(most_waiting), slots_(slots) {
    metrics_.slots(static_cast<std::int64_t>(slots));
  }

  // refused: why_not() says why.
  enum class Added { yes, full, refused };
  // The requests are begun one after another.
  Added add(std::size_t model, std::vector<TextRequest> requests,
            std::shared_ptr<Listener> listener);
  // Takes no more requests.
  void close();
  // Why no requests are taken now; empty: they are.
  std::string why_not() const;
  // Of the package that the model was run with last; empty: it was not yet.
  std::string fingerprint(std::size_t model) const;

  // Has the model loaded, before there are requests. That it cannot be is an error.
  void load(std::size_t model);
  // Answers requests until the queue is closed and empty, in the thread that has called load(): the
  // workers live as long as that. One that ends is started anew, at once if it has given a token,
  // else after a while. `between` is called after answers, and some times a second while nobody
  // asks; where it returns true, a new worker takes the place of the one that there is, as soon as
  // that has answered what it is at.
  void work(const std::function<bool()>& between = {});

 private:
  using Clock = std::chrono::steady_clock;
  struct Waiting {
    std::size_t model = 0;
    std::vector<TextRequest> requests;
    std::shared_ptr<Listener> listener;
    Clock::time_point since;
    std::deque<std::size_t> left = {};  // requests that no worker was asked
    std::size_t under_way = 0;          // requests that one was
    std::optional<Error> failure = {};  // it hears of no more
  };
  // A request that the worker has.
  struct UnderWay {
    std::shared_ptr<Waiting> of;
    std::size_t answer = 0;
    Clock::time_point last;   // token
    std::int64_t tokens = 0;  // of the prompt and the answer
    bool begun = false, has_token = false;
    bool stops = false, missed = false;  // some of its pieces
  };
  // The first one that waits, where the worker has its model; else the worker is made to have it,
  // if it is time to try. Null: there is none, or no such worker yet.
  std::shared_ptr<Waiting> next();
  bool has_worker_for(std::size_t model);
  // Asks the worker, as far as there are free slots.
  void begin();
  // What the worker says next of what is under way.
  void hear();
  void take(std::uint64_t number, const FromWorker& message);
  void take(UnderWay& request, const TextPiece& piece);
  void take(UnderWay& request, TextAnswer answer);
  void stop_unwanted();
  // The request is no longer under way; whoever has all, or nothing more to come, hears so.
  void end(std::uint64_t number);
  void end(Waiting& all);
  // Those under way are lost, and those that it has not begun wait again.
  void lose_worker(const std::string& why);
  // Before all others, in the order in which they came.
  void wait_again(std::vector<std::shared_ptr<Waiting>> all);
  void worker_ended(const std::string& why);
  // Those that wait for the model, or for any.
  void fail(std::optional<std::size_t> model, const std::string& why);

  const Start start_;
  Metrics& metrics_;
  const std::size_t most_waiting_, slots_;

  // Of the thread that works.
  std::unique_ptr<Worker> worker_;
  std::size_t model_ = 0;                       // that the worker has
  std::optional<std::size_t> last_good_;        // the last one that could be loaded
  std::map<std::size_t, std::int64_t> pieces_;  // of each
  int failures_ = 0;                            // workers in a row that gave nothing
  Clock::time_point try_again_{};
  std::deque<std::shared_ptr<Waiting>> open_;    // that wait no longer, and have requests left
  std::map<std::uint64_t, UnderWay> under_way_;  // by number
  std::uint64_t last_number_ = 0;
  bool has_answered_ = false;  // since `between` was called

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Waiting>> waiting_;
  bool closed_ = false;
  std::map<std::size_t, std::string> fingerprints_;
  std::string no_worker_;  // why there was none for long; empty: there is one, or will be soon
};

}  // namespace ac::serve
