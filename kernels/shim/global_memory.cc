#include "kernels/shim/global_memory.h"

#include <algorithm>

namespace ac::kernels::host {

void learn(Clock& clock, const Clock& from) {
  if (clock.size() < from.size()) clock.resize(from.size(), 0);
  for (std::size_t i = 0; i < from.size(); ++i) clock[i] = std::max(clock[i], from[i]);
}

void GlobalMemory::begin_cluster(unsigned threads) {
  ++cluster_;
  has_met_ = false;
  threads_.assign(threads, {});
}

bool GlobalMemory::knows(const Access& access, unsigned thread, const Clock& clock) const {
  if (access.cluster == 0) return true;
  if (access.cluster == cluster_)
    return access.thread == thread || access.when <= at(clock, access.thread);
  for (const auto& [counter, count] : threads_[thread].known) {
    const std::vector<Published>& all = published_.at(counter);
    for (std::size_t i = 0; i < count; ++i)
      if (all[i].cluster == access.cluster && access.when <= at(all[i].clock, access.thread))
        return true;
  }
  return false;
}

GlobalMemory::Fault GlobalMemory::read(const void* address, std::size_t bytes, unsigned thread,
                                       const Clock& clock) {
  const auto begin = reinterpret_cast<Address>(address);
  for (Address i = begin; i < begin + bytes; ++i) {
    Byte& byte = byte_at(i);
    if (!knows(byte.written, thread, clock))
      return {byte.written.thread, byte.written.cluster == cluster_
                                       ? "a read of global memory races with an earlier write"
                                       : "a read of what another block had not made visible when "
                                         "it counted itself"};
    if (const auto found = added_.find(i); found != added_.end())
      for (const Access& added : found->second)
        if (!knows(added, thread, clock))
          return {added.thread, "a read of global memory races with an earlier atomic operation"};
    byte.read = {cluster_, thread, clock[thread]};
  }
  return {};
}

GlobalMemory::Fault GlobalMemory::write(const void* address, std::size_t bytes, unsigned thread,
                                        const Clock& clock) {
  const auto begin = reinterpret_cast<Address>(address);
  for (Address i = begin; i < begin + bytes; ++i) {
    Byte& byte = byte_at(i);
    if (!knows(byte.written, thread, clock))
      return {byte.written.thread, "two writes to global memory race"};
    if (!knows(byte.read, thread, clock))
      return {byte.read.thread, "a write to global memory races with an earlier read"};
    byte = {{cluster_, thread, clock[thread]}, {}};
  }
  return {};
}

void GlobalMemory::add(const void* address, std::size_t bytes, unsigned thread,
                       const Clock& clock) {
  const auto begin = reinterpret_cast<Address>(address);
  for (Address i = begin; i < begin + bytes; ++i) {
    std::vector<Access>& all = added_[i];
    if (all.empty() || all.back().cluster != cluster_) all.emplace_back();
    all.back() = {cluster_, thread, clock[thread]};
  }
}

void GlobalMemory::fence(unsigned thread, const Clock& clock) {
  Thread& own = threads_[thread];
  learn(own.fenced, clock);
  for (const auto& [counter, count] : own.seen) own.known[counter] = count;
  has_met_ = true;
}

void GlobalMemory::count(const void* counter, unsigned thread) {
  Thread& own = threads_[thread];
  has_met_ = true;
  const auto address = reinterpret_cast<Address>(counter);
  std::vector<Published>& all = published_[address];
  all.push_back({cluster_, own.fenced});
  own.seen[address] = all.size();
}

void GlobalMemory::meet(const std::vector<unsigned>& threads) {
  if (!has_met_) return;
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
