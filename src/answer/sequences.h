// Several requests at once by one loaded program: each has a sequence, and their tokens are run in
// common steps (runtime/together.h). What a sequence gives does not depend on the others.
//
// One thread owns the device: it calls work(). Each request has a thread of its own, whose
// generator asks the device's thread for what it needs, and waits. Between two steps a piece of one
// prompt is run at most, so that no stream waits for longer than that; the oldest request's prompt
// comes first. Requests that follow what the device chooses have two steps under way. One that
// needs the host for each token (a grammar's mask, penalties) is waited for, but not for long: who
// is late misses a step. A request that is alone is run as Engine::generate() does.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "answer/generator.h"
#include "base/timing_turn.h"
#include "prefix/prefix_cache.h"
#include "runtime/together.h"

namespace ac {

class Sequences {
 public:
  struct Options {
    std::int64_t count = 1;
    // Tokens of a prompt's piece; 0: as many as take the device no longer than a stream may wait.
    // All sequences have the same, whoever else is there: other pieces give other bits.
    std::int64_t piece = 0;
  };
  // A cache whose step is the piece; null: none.
  using MakeCache = std::function<std::unique_ptr<PrefixCache>(Engine&, std::int64_t piece)>;

  // By the thread that will work(). A package without steps of so many sequences is an error
  // (wrong_usage). `turns`: who else has the device.
  Sequences(std::shared_ptr<LoadedProgram> loaded, const Options& options, TimingTurn& turns,
            const MakeCache& make_cache = {});
  ~Sequences();
  Sequences(const Sequences&) = delete;
  Sequences& operator=(const Sequences&) = delete;

  std::size_t count() const { return sequences_.size(); }
  std::int64_t piece() const { return piece_; }
  const Program& program() const { return loaded_->program(); }

  // Does what is asked for until end(). A lost device is thrown, after everyone who waits has heard
  // of it.
  void work();
  // By another thread, when no sequence is in use.
  void end();

  // ---- for other threads

  class Sequence;
  // A request's time with a sequence that nobody else uses.
  class Use {
   public:
    Use(Sequences& of, std::size_t which);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    Generator& generator() const;

   private:
    Sequences& of_;
    Sequence& sequence_;
  };
  // How many of these tokens a sequence that nobody uses has cached.
  std::int64_t alike(std::size_t which, const std::vector<std::int64_t>& ids) const;
  std::int64_t in_use() const { return in_use_; }
  std::int64_t cached_tokens() const;          // of all sequences
  std::optional<PrefixCounts> cache_counts();  // nothing: there is no cache

 private:
  using Clock = std::chrono::steady_clock;
  class SequenceGenerator;
  struct Job;
  struct Row {  // of a step under way
    Sequence* sequence = nullptr;
    Job* job = nullptr;  // null: what it chooses is not wanted any more
  };

  std::int64_t longest_piece_in_time() const;
  // Hands the job to the device's thread, and waits until it is done. What fails is thrown.
  void ask(Job& job);
  void done(Job& job, std::exception_ptr error = nullptr);
  // Calls `work`. False: it has thrown something, which ends these jobs, and all if that is the
  // loss of the device.
  bool attempt(const std::vector<Job*>& jobs, const std::function<void()>& work);
  void want_no_more(const Job& job);  // of the steps under way

  std::vector<Job*> asked();
  bool wait_for_work();
  // Each says whether there was such work.
  bool do_at_once();
  bool follow_alone();
  bool launch_step();
  bool run_piece();
  bool deliver();
  void wait_for_thinkers();
  void begin_row(Job& job);
  void run_row_alone(Job& job);
  void row_done(Job& job);
  // For a moment from here on, if the sequence has rows and was not late before `since`.
  void await_row(Sequence& sequence, Clock::time_point since);
  // Gives a token to whoever follows. False: that was the last one that it wants.
  bool give(Job& job, std::int64_t token);
  void end_follow(Job& job);
  // Somebody's thread works on what its next row needs, and is not late yet.
  bool is_thinking();
  Clock::time_point thinkers_deadline() const;

  const std::shared_ptr<LoadedProgram> loaded_;
  TimingTurn& turns_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  std::int64_t piece_ = 0;
  std::unique_ptr<PrefixCache> cache_;
  Together together_;

  // Used by the device's thread alone.
  std::deque<std::vector<Row>> under_way_;
  std::unique_ptr<Device::Mark> piece_done_;
  bool piece_is_due_ = true;
  Clock::duration step_time_{};  // of the last one
  std::optional<TimingTurn::Turn> turn_;

  std::mutex mutex_;  // of what follows, and of the sequences' jobs
  std::condition_variable changed_;
  std::vector<Job*> jobs_;  // in the order in which they were asked for
  std::uint64_t next_ticket_ = 1;
  std::atomic<std::int64_t> in_use_ = 0;
  std::atomic<std::size_t> asked_ = 0;  // jobs_.size()
  bool ended_ = false;
  std::exception_ptr lost_;
};

}  // namespace ac
