#include "lab/ahead_builds.h"

#include <sys/resource.h>

#include <algorithm>

namespace ac {
namespace {

constexpr int kNiceness = 10;  // whoever times must not wait for a processor

}  // namespace

AheadBuilds::AheadBuilds(KernelBuilder& builder, Target target, unsigned jobs, Timeline* timeline)
    : builder_(builder),
      target_(std::move(target)),
      jobs_(std::max(jobs, 1u)),
      timeline_(timeline) {}

AheadBuilds::~AheadBuilds() {
  const std::lock_guard lock(mutex_);
  ends_ = true;
  changed_.notify_all();
}

void AheadBuilds::add(std::vector<KernelSource> sources) {
  const std::lock_guard lock(mutex_);
  for (KernelSource& source : sources)
    if (known_.insert(source.entry).second) waiting_.push_back(std::move(source));
  while (threads_.size() < std::min<std::size_t>(jobs_, waiting_.size()))
    threads_.emplace_back([this] { work(); });
  changed_.notify_all();
}

void AheadBuilds::finish(const std::vector<KernelSource>& sources) {
  std::unique_lock lock(mutex_);
  std::set<std::string> wanted;
  for (const KernelSource& source : sources)
    if (known_.contains(source.entry)) wanted.insert(source.entry);
  std::ranges::stable_partition(
      waiting_, [&](const KernelSource& source) { return wanted.contains(source.entry); });
  changed_.wait(lock, [&] {
    return error_ ||
           std::ranges::all_of(wanted, [&](const auto& entry) { return done_.contains(entry); });
  });
  if (error_) std::rethrow_exception(error_);
}

void AheadBuilds::work() {
  setpriority(PRIO_PROCESS, 0, kNiceness);  // of this thread, and of what it starts
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ends_ || (!rests_ && !error_ && !waiting_.empty()); });
    if (ends_) return;
    const KernelSource source = std::move(waiting_.front());
    waiting_.pop_front();
    ++busy_;
    lock.unlock();
    std::exception_ptr error;
    const auto began = Timeline::Clock::now();
    try {
      builder_.build(source, target_);
    } catch (...) {
      error = std::current_exception();
    }
    if (timeline_) timeline_->add("building ahead", source.entry, began);
    lock.lock();
    --busy_;
    done_.insert(source.entry);
    if (error) error_ = error;
    changed_.notify_all();
  }
}

AheadBuilds::Rest::Rest(AheadBuilds& builds) : builds_(builds) {
  std::unique_lock lock(builds_.mutex_);
  builds_.rests_ = true;
  builds_.changed_.wait(lock, [&] { return builds_.busy_ == 0; });
}

AheadBuilds::Rest::~Rest() {
  const std::lock_guard lock(builds_.mutex_);
  builds_.rests_ = false;
  builds_.changed_.notify_all();
}

}  // namespace ac
