#include "kernels/shim/global_memory.h"

#include <algorithm>

namespace ac::kernels::host {

void learn(Clock& clock, const Clock& from) {
  if (clock.size() < from.size()) clock.resize(from.size(), 0);
  for (std::size_t i = 0; i < from.size(); ++i) clock[i] = std::max(clock[i], from[i]);
}

void GlobalMemory::begin_block(unsigned threads) {
  ++block_;
  does_anything_ = false;
  threads_.assign(threads, {});
}

void GlobalMemory::write(const void* address, std::size_t bytes, unsigned thread, unsigned when) {
  const auto begin = reinterpret_cast<Address>(address);
  for (Address at = begin / word; at <= (begin + bytes - 1) / word; ++at)
    written_[at] = {block_, thread, when};
}

void GlobalMemory::add(const void* address, std::size_t bytes, unsigned thread, unsigned when) {
  const auto begin = reinterpret_cast<Address>(address);
  for (Address at = begin / word; at <= (begin + bytes - 1) / word; ++at) {
    std::vector<Write>& all = added_[at];
    if (all.empty() || all.back().block != block_) all.emplace_back();
    all.back() = {block_, thread, when};
  }
}

const char* GlobalMemory::wrong(const Write& write, unsigned thread, const Clock& clock) const {
  if (write.block == block_)
    return write.thread == thread || write.when <= at(clock, write.thread)
               ? nullptr
               : "a read of global memory races with an earlier write of its block";
  for (const auto& [counter, count] : threads_[thread].known) {
    const std::vector<Published>& all = published_.at(counter);
    for (std::size_t i = 0; i < count; ++i)
      if (all[i].block == write.block && write.when <= at(all[i].clock, write.thread))
        return nullptr;
  }
  return "a read of what another block had not made visible when it counted itself";
}

GlobalMemory::Fault GlobalMemory::read(const void* address, std::size_t bytes, unsigned thread,
                                       const Clock& clock) const {
  if (threads_[thread].seen.empty()) return {};
  const auto begin = reinterpret_cast<Address>(address);
  for (Address word_at = begin / word; word_at <= (begin + bytes - 1) / word; ++word_at) {
    if (const auto found = written_.find(word_at); found != written_.end())
      if (const char* what = wrong(found->second, thread, clock))
        return {found->second.thread, what};
    if (const auto found = added_.find(word_at); found != added_.end())
      for (const Write& write : found->second)
        if (const char* what = wrong(write, thread, clock)) return {write.thread, what};
  }
  return {};
}

void GlobalMemory::fence(unsigned thread, const Clock& clock) {
  Thread& own = threads_[thread];
  learn(own.fenced, clock);
  for (const auto& [counter, count] : own.seen) own.known[counter] = count;
  does_anything_ = true;
}

void GlobalMemory::count(const void* counter, unsigned thread) {
  Thread& own = threads_[thread];
  const auto address = reinterpret_cast<Address>(counter);
  std::vector<Published>& all = published_[address];
  all.push_back({block_, own.fenced});
  own.seen[address] = all.size();
  does_anything_ = true;
}

void GlobalMemory::meet(const std::vector<unsigned>& threads) {
  if (!does_anything_) return;
  Thread all;
  const auto join = [](auto& counts, const auto& more) {
    for (const auto& [counter, count] : more) counts[counter] = std::max(counts[counter], count);
  };
  for (const unsigned t : threads) {
    learn(all.fenced, threads_[t].fenced);
    join(all.seen, threads_[t].seen), join(all.known, threads_[t].known);
  }
  for (const unsigned t : threads) threads_[t] = all;
}

}  // namespace ac::kernels::host
