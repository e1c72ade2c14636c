#include "answer/sequences.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace ac {
namespace {

// A stream must not wait for longer than 100 ms: a piece of a prompt, and the step after it.
constexpr double kLongestPiece = 0.07;  // seconds
constexpr std::int64_t kShortestPiece = 16;
// Whose next row is awaited is so at least.
constexpr std::chrono::microseconds kPatience{200};
// Tokens that a sequence may have to forget: those of two steps under way.
constexpr std::int64_t kAhead = 2;
constexpr std::size_t kUnderWay = 2;  // steps, at most

}  // namespace

// What a request's thread waits for.
struct Sequences::Job {
  enum class Kind {
    at_once,  // `work` is called
    piece,    // these ids are run
    row,      // one token is run, with others, and the next one chosen
    follow,   // tokens as the device chooses them
  };
  Kind kind = Kind::at_once;
  Sequence* sequence = nullptr;  // null: of none
  std::function<void()> work = {};
  const std::vector<std::int64_t>* ids = nullptr;  // of a piece; stops of who follows

  std::int64_t token = -1;                      // of a row; the last one given to who follows
  std::span<const std::uint32_t> allowed = {};  // empty: the host chooses, or another step follows
  Sampling sampling = {};                       // under the mask
  std::int64_t chosen = -1;

  std::int64_t count = 0, given = 0, launched = 0;  // of who follows: tokens
  const std::function<bool(std::int64_t)>* on_token = nullptr;
  std::int64_t first = 0;  // tokens that were cached at the beginning
  bool tells = false;      // the device has forgotten the last token

  std::condition_variable answered = {};
  bool is_done = false;
  std::exception_ptr error = nullptr;
};

class Sequences::Sequence {
 public:
  std::size_t index = 0;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Generator> generator;
  std::atomic<std::int64_t> position = 0;
  std::uint64_t ticket = 0;  // of the request that uses it, in order; 0: none does
  Sampling sampling;         // of its steps
  // Until then the next row of the request is awaited.
  Clock::time_point thinks_until{};
  bool has_rows = false;  // the request has had one
};

// Hands what a generator does to the device's thread.
class Sequences::SequenceGenerator : public Generator {
 public:
  SequenceGenerator(Sequences& all, Sequence& own) : all_(all), own_(own) {}

  std::vector<double> logits() override {
    run_pending();
    std::vector<double> logits;
    at_once([&] { logits = own_.engine->logits(); });
    return logits;
  }
  std::int64_t position() const override { return own_.position; }

 protected:
  std::int64_t vocabulary() const override { return all_.program().vocab; }
  std::int64_t most_tokens() const override { return all_.program().max_context; }
  std::string room() const override { return room_of(all_.program()); }
  std::int64_t most_at_once() const override { return all_.piece_; }
  bool go_back(std::int64_t tokens) override {
    bool can = false;
    at_once([&] {
      if ((can = own_.engine->can_truncate(tokens))) own_.engine->truncate(tokens);
    });
    return can;
  }
  std::int64_t known(const std::vector<std::int64_t>& ids) const override {
    std::int64_t known = 0;
    if (all_.cache_) at_once([&] { known = all_.cache_->known(ids); });
    return known;
  }
  // Piece by piece: others have their steps in between.
  std::int64_t recall(const std::vector<std::int64_t>& ids, std::int64_t cached) override {
    for (bool more = all_.cache_ != nullptr; more && cached + all_.piece_ < std::ssize(ids);) {
      at_once([&] {
        const std::int64_t end = cached + all_.cache_->pieces_to_recall() * all_.piece_ + 1;
        const Tokens next =
            Tokens(ids).first(static_cast<std::size_t>(std::min(end, std::ssize(ids))));
        const std::int64_t now = all_.cache_->recall(*own_.engine, next, cached);
        more = std::exchange(cached, now) < now;
      });
    }
    return cached;
  }
  std::int64_t keep_piece(Tokens pieces, std::int64_t kept) override {
    if (!all_.cache_) return std::ssize(pieces);
    at_once([&] { kept = all_.cache_->keep(*own_.engine, pieces, kept); });
    return kept;
  }
  bool forgets() const override { return ac::forgets(all_.program()); }
  void choose_by(const Sampling& sampling) override {
    pending_.reset();
    at_once([&] {
      own_.engine->sample(sampling);
      own_.sampling = sampling;
    });
  }
  void run(const std::vector<std::int64_t>& ids) override {
    run_pending();
    Job job{.kind = Job::Kind::piece, .sequence = &own_, .ids = &ids};
    all_.ask(job);
  }
  // What is chosen after it, and how, is said next: one step does both.
  void step(std::int64_t token) override {
    run_pending();
    pending_ = token;
  }
  std::int64_t choose(std::span<const std::uint32_t> allowed, const Sampling& sampling) override {
    if (pending_) return run_row(allowed, sampling);
    std::int64_t token = -1;
    at_once([&] { token = own_.engine->choose(allowed, sampling); });
    return token;
  }
  void follow(std::int64_t count, const std::vector<std::int64_t>& stops,
              const std::function<bool(std::int64_t)>& on_token) override {
    if (count < 1) return;
    Job job{.kind = Job::Kind::follow,
            .sequence = &own_,
            .ids = &stops,
            .count = count,
            .on_token = &on_token,
            .first = own_.position};
    all_.ask(job);
  }

 private:
  void at_once(std::function<void()> work) const {
    Job job{.sequence = &own_, .work = std::move(work)};
    all_.ask(job);
  }
  std::int64_t run_row(std::span<const std::uint32_t> allowed, const Sampling& sampling) {
    Job job{.kind = Job::Kind::row,
            .sequence = &own_,
            .token = *std::exchange(pending_, std::nullopt),
            .allowed = allowed,
            .sampling = sampling};
    all_.ask(job);
    return job.chosen;
  }
  void run_pending() {
    if (pending_) run_row({}, {});
  }

  Sequences& all_;
  Sequence& own_;
  std::optional<std::int64_t> pending_;  // the next step's token
};

// ---- threads of requests

Sequences::Use::Use(Sequences& of, std::size_t which) : of_(of), sequence_(*of.sequences_[which]) {
  const std::lock_guard lock(of_.mutex_);
  AC_ASSERT(sequence_.ticket == 0);
  sequence_.ticket = of_.next_ticket_++;
  sequence_.thinks_until = {};
  sequence_.has_rows = false;
  ++of_.in_use_;
}

Sequences::Use::~Use() {
  const std::lock_guard lock(of_.mutex_);
  sequence_.ticket = 0;
  --of_.in_use_;
  of_.changed_.notify_one();  // nobody waits for its next row
}

Generator& Sequences::Use::generator() const { return *sequence_.generator; }

std::int64_t Sequences::alike(std::size_t which, const std::vector<std::int64_t>& ids) const {
  return sequences_[which]->generator->alike(ids);
}

std::int64_t Sequences::cached_tokens() const {
  std::int64_t all = 0;
  for (const auto& sequence : sequences_) all += sequence->position;
  return all;
}

std::optional<PrefixCounts> Sequences::cache_counts() {
  if (!cache_) return std::nullopt;
  PrefixCounts counts;
  Job job{.work = [&] { counts = cache_->counts(); }};
  ask(job);
  return counts;
}

void Sequences::ask(Job& job) {
  std::unique_lock lock(mutex_);
  if (lost_) std::rethrow_exception(lost_);
  jobs_.push_back(&job);
  asked_ = jobs_.size();
  changed_.notify_one();
  job.answered.wait(lock, [&] { return job.is_done; });
  if (job.error) std::rethrow_exception(job.error);
}

// ---- the device's thread

Sequences::Sequences(std::shared_ptr<LoadedProgram> loaded, const Options& options,
                     TimingTurn& turns, const MakeCache& make_cache)
    : loaded_(std::move(loaded)), turns_(turns), together_(loaded_) {
  if (together_.most() < options.count)
    wrong_usage("{} has {}: compile with --slots {}", loaded_->files().folder().string(),
                together_.most() == 0
                    ? std::string("no steps of several sequences")
                    : fmt::format("steps of up to {} sequences", together_.most()),
                options.count);
  for (std::int64_t i = 0; i < options.count; ++i) {
    sequences_.push_back(std::make_unique<Sequence>());
    sequences_.back()->index = static_cast<std::size_t>(i);
    sequences_.back()->engine = std::make_unique<Engine>(loaded_);
    sequences_.back()->generator = std::make_unique<SequenceGenerator>(*this, *sequences_.back());
  }
  piece_done_ = loaded_->device().make_mark();
  const std::int64_t longest = program().longest_step();
  if (options.piece > longest)
    wrong_usage("the package runs prompts in steps of at most {} tokens, and not of {}", longest,
                options.piece);
  piece_ = options.piece > 0 ? options.piece : longest_piece_in_time();
  if (make_cache) cache_ = make_cache(*sequences_.front()->engine, piece_);
}

Sequences::~Sequences() = default;

// At the end of the context, where a piece takes longest.
std::int64_t Sequences::longest_piece_in_time() const {
  Engine& engine = *sequences_.front()->engine;
  const std::int64_t longest = program().longest_step();
  std::int64_t fits = std::min(kShortestPiece, longest);
  for (std::int64_t piece = fits;; piece = std::min(2 * piece, longest)) {
    const std::vector<std::int64_t> ids(static_cast<std::size_t>(piece));
    double seconds = 0;
    for (int i = 0; i < 3; ++i) {  // a step that comes again is recorded
      engine.pretend(program().max_context - piece);
      loaded_->device().synchronize();
      const auto begin = Clock::now();
      engine.prefill(ids);
      loaded_->device().synchronize();
      seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      if (seconds > 2 * kLongestPiece) break;
    }
    if (seconds > kLongestPiece) break;
    fits = piece;
    if (piece == longest) break;
  }
  engine.reset();
  return fits;
}

void Sequences::work() {
  try {
    while (wait_for_work()) {
      bool worked = do_at_once();
      if (follow_alone()) continue;
      while (launch_step()) worked = true;
      worked |= run_piece();
      worked |= deliver();
      if (!worked) wait_for_thinkers();
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    lost_ = std::current_exception();
    for (Job* const job : std::exchange(jobs_, {})) {
      job->error = lost_;
      job->is_done = true;
      job->answered.notify_one();
    }
    throw;
  }
}

void Sequences::end() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_one();
}

std::vector<Sequences::Job*> Sequences::asked() {
  const std::lock_guard lock(mutex_);
  return jobs_;
}

bool Sequences::wait_for_work() {
  if (!under_way_.empty()) return true;
  std::unique_lock lock(mutex_);
  if (jobs_.empty() && in_use_ == 0) turn_.reset();
  changed_.wait(lock, [&] {
    if (in_use_ == 0 && jobs_.empty() && turn_) turn_.reset();
    return ended_ || !jobs_.empty();
  });
  if (jobs_.empty()) return false;
  lock.unlock();
  if (!turn_) turn_.emplace(turns_.answer());
  return true;
}

void Sequences::done(Job& job, std::exception_ptr error) {
  if (job.sequence) job.sequence->position = job.sequence->engine->position();
  const std::lock_guard lock(mutex_);
  std::erase(jobs_, &job);
  asked_ = jobs_.size();
  job.error = std::move(error);
  job.is_done = true;
  job.answered.notify_one();
}

bool Sequences::attempt(const std::vector<Job*>& jobs, const std::function<void()>& work) {
  try {
    work();
    return true;
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    for (Job* const job : jobs) {
      want_no_more(*job);
      done(*job, error);
    }
    try {
      throw;
    } catch (const Error& of_device) {
      if (of_device.fault() == Fault::device_lost) throw;
    } catch (...) {
    }
    return false;
  }
}

void Sequences::want_no_more(const Job& job) {
  for (std::vector<Row>& rows : under_way_)
    for (Row& row : rows)
      if (row.job == &job) row.job = nullptr;
}

bool Sequences::do_at_once() {
  bool any = false;
  for (Job* const job : asked()) {
    if (job->kind != Job::Kind::at_once) continue;
    any = true;
    if (!attempt({job}, job->work)) continue;
    if (job->sequence) await_row(*job->sequence, {});
    done(*job);
  }
  return any;
}

bool Sequences::follow_alone() {
  if (!under_way_.empty() || in_use_ != 1) return false;
  const std::vector<Job*> all = asked();
  if (all.size() != 1 || all.front()->kind != Job::Kind::follow) return false;
  Job& job = *all.front();
  Engine& engine = *job.sequence->engine;
  bool goes_on = true;
  const bool works = attempt({&job}, [&] {
    if (job.given > 0) engine.decode(job.token);
    engine.generate(
        job.count - job.given,
        [&](std::int64_t token) {
          goes_on = give(job, token);
          return goes_on && in_use_ == 1 && asked_ == 1;
        },
        *job.ids);
  });
  if (!works) return true;
  job.launched = job.given, job.tells = true;
  if (!goes_on) done(job);
  return true;
}

bool Sequences::give(Job& job, std::int64_t token) {
  ++job.given;
  job.token = token;
  return (*job.on_token)(token) && std::ranges::find(*job.ids, token) == job.ids->end() &&
         job.given < job.count;
}

void Sequences::end_follow(Job& job) {
  want_no_more(job);
  Engine& engine = *job.sequence->engine;
  // All that it was given but the last one.
  if (const std::int64_t end = job.first + job.given - 1; engine.position() > end)
    engine.truncate(end);
  done(job);
}

bool Sequences::launch_step() {
  std::vector<Job*> all;
  std::int64_t rows = 0;
  bool ahead = true;
  for (Job* const job : asked()) {
    if (job->kind == Job::Kind::follow && job->given == 0) {
      bool goes_on = true;  // after its first token, which is there
      if (!attempt({job}, [&] { goes_on = give(*job, job->sequence->engine->chosen()); })) continue;
      job->launched = 1;
      if (!goes_on) {
        end_follow(*job);
        continue;
      }
    }
    if (job->kind == Job::Kind::follow) {
      ahead &= job->sequence->engine->slack() >= kAhead;
      if (job->launched < job->count) all.push_back(job);
    } else if (job->kind == Job::Kind::row) {
      ++rows;
      all.push_back(job);
    }
  }
  ahead &= rows == 0;
  if (all.empty() || under_way_.size() >= (ahead ? kUnderWay : 1) || is_thinking()) return false;
  piece_is_due_ = true;
  const auto begin = Clock::now();
  if (rows == 1 && all.size() == 1) {
    run_row_alone(*all.front());
    step_time_ = Clock::now() - begin;
    return true;
  }
  std::erase_if(all, [&](Job* job) { return !attempt({job}, [&] { begin_row(*job); }); });
  if (all.empty()) return true;
  // The same rows in the same order: their step is recorded once.
  std::ranges::sort(all, {}, [](const Job* job) { return job->sequence->index; });
  attempt(all, [&] {
    std::vector<Engine*> engines;
    std::vector<Row> step;
    for (Job* const job : all) {
      engines.push_back(job->sequence->engine.get());
      step.push_back({job->sequence, job});
    }
    together_.step(engines);
    under_way_.push_back(std::move(step));
    for (Job* const job : all) {
      ++job->launched;
      if (!job->allowed.empty()) job->sequence->engine->sample(job->sequence->sampling);
    }
  });
  step_time_ = Clock::now() - begin;
  return true;
}

void Sequences::begin_row(Job& job) {
  Engine& engine = *job.sequence->engine;
  engine.end_after(-1, {});
  if (job.kind == Job::Kind::follow) {
    if (std::exchange(job.tells, false)) engine.tell(job.token);
  } else {
    engine.tell(job.token);
    if (!job.allowed.empty()) engine.sample(job.sampling);
  }
  engine.allow(job.allowed);
}

// As a package's generator does it.
void Sequences::run_row_alone(Job& job) {
  Engine& engine = *job.sequence->engine;
  const bool works = attempt({&job}, [&] {
    engine.decode(job.token);
    if (!job.allowed.empty()) job.chosen = engine.choose(job.allowed, job.sampling);
  });
  if (works) row_done(job);
}

void Sequences::row_done(Job& job) {
  {
    const std::lock_guard lock(mutex_);
    job.sequence->has_rows = true;
  }
  await_row(*job.sequence, {});
  done(job);
}

void Sequences::await_row(Sequence& sequence, Clock::time_point since) {
  const std::lock_guard lock(mutex_);
  if (sequence.has_rows && sequence.thinks_until >= since)
    sequence.thinks_until = Clock::now() + std::max<Clock::duration>(step_time_ / 2, kPatience);
}

bool Sequences::run_piece() {
  Job* oldest = nullptr;
  bool others_step = !under_way_.empty() || is_thinking();
  for (Job* const job : asked()) {
    if (job->kind == Job::Kind::follow || job->kind == Job::Kind::row) others_step = true;
    if (job->kind == Job::Kind::piece &&
        (oldest == nullptr || job->sequence->ticket < oldest->sequence->ticket))
      oldest = job;
  }
  if (oldest == nullptr || (others_step && !piece_is_due_)) return false;
  piece_is_due_ = false;
  const auto begin = Clock::now();
  const bool works = attempt({oldest}, [&] {
    // One is under way at most, if there are others: who comes next must not wait for many.
    if (in_use_ > 1) piece_done_->wait();
    oldest->sequence->engine->prefill(*oldest->ids);
    piece_done_->set();
  });
  if (works) done(*oldest);
  // Whose thread had to wait for that is not late.
  for (const auto& sequence : sequences_) await_row(*sequence, begin);
  return true;
}

bool Sequences::deliver() {
  if (under_way_.empty()) return false;
  const auto begin = Clock::now();
  const std::vector<std::int32_t> tokens = together_.tokens();
  step_time_ += Clock::now() - begin;
  // A sequence that ends here may still be a row of the next step.
  const std::vector<Row> rows = std::move(under_way_.front());
  under_way_.pop_front();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Job* const job = rows[i].job;
    if (job == nullptr) continue;
    bool goes_on = true;
    const bool works = attempt({job}, [&] {
      if (job->kind == Job::Kind::follow)
        goes_on = give(*job, checked_token(tokens[i], program().vocab));
      else if (!job->allowed.empty())
        job->chosen = checked_token(tokens[i], program().vocab);
    });
    if (!works) continue;
    if (job->kind == Job::Kind::row)
      row_done(*job);
    else if (!goes_on)
      end_follow(*job);
  }
  return true;
}

bool Sequences::is_thinking() {
  const std::lock_guard lock(mutex_);
  return thinkers_deadline() > Clock::now();
}

// With the lock.
Sequences::Clock::time_point Sequences::thinkers_deadline() const {
  Clock::time_point last{};
  for (const auto& sequence : sequences_) {
    const bool asks = std::ranges::any_of(jobs_, [&](const Job* job) {
      return job->sequence == sequence.get() && job->kind != Job::Kind::at_once;
    });
    if (sequence->ticket != 0 && !asks) last = std::max(last, sequence->thinks_until);
  }
  return last;
}

void Sequences::wait_for_thinkers() {
  std::unique_lock lock(mutex_);
  const auto at_once = [&] {
    return std::ranges::any_of(jobs_,
                               [](const Job* job) { return job->kind == Job::Kind::at_once; });
  };
  for (auto until = thinkers_deadline(); !at_once() && until > Clock::now();
       until = thinkers_deadline())
    changed_.wait_until(lock, until);
}

}  // namespace ac
