#include "prefix/prefix_cache.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/warning.h"
#include "build/digest.h"

namespace ac {
namespace {

enum Place : std::size_t { kDevice, kMemory, kDisk };

// Another one whenever files mean something else.
constexpr int kFormat = 2;

std::int64_t step_of(const Program& program, std::int64_t wanted) {
  const std::int64_t longest = program.longest_step();
  if (wanted > longest)
    wrong_usage("the package runs prompts in steps of at most {} tokens, and not of {}", longest,
                wanted);
  // Longer ones leave more of a prompt unknown, and read it no faster (Qwen3-1.7B on an H100).
  constexpr std::int64_t kLongest = 512;
  return wanted > 0 ? wanted : std::min(longest, kLongest);
}

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::size_t device_room(const Device& device, std::optional<std::size_t> wanted) {
  constexpr std::size_t kMost = std::size_t{8} << 30;
  if (wanted) return *wanted;
  return device.info().sm > 0 ? std::min(kMost, device.free_bytes() / 4) : 0;
}

}  // namespace

PrefixCache::PrefixCache(const Engine& engine, const PrefixOptions& options,
                         const std::string& model)
    : on_(engine.device()),
      seconds_(options.seconds ? options.seconds : steady_seconds),
      step_(step_of(engine.program(), options.step)),
      bytes_(engine.piece_bytes(step_)),
      root_(sha256(fmt::format("states {} of {} in steps of {}", kFormat, model, step_))),
      device_(step_, device_room(on_, options.device_bytes)),
      memory_(step_, options.memory_bytes),
      between_(on_.allocate(bytes_)) {
  if (!options.folder.empty())
    files_ = std::make_unique<PrefixFiles>(options.folder, options.disk_bytes);
}

std::vector<PrefixCache::Key> PrefixCache::keys_of(Tokens tokens) const {
  const auto step = static_cast<std::size_t>(step_);
  std::vector<Key> keys;
  for (; tokens.size() >= step; tokens = tokens.subspan(step)) {
    const auto bytes = std::as_bytes(tokens.first(step));
    const Key& before = keys.empty() ? root_ : keys.back();
    keys.push_back(
        sha256(before + std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())));
  }
  return keys;
}

std::int64_t PrefixCache::known(Tokens prompt) const {
  const auto step = static_cast<std::size_t>(step_);
  const std::vector<Key> keys = files_ ? keys_of(prompt) : std::vector<Key>();
  const std::size_t near = std::max(device_.path(prompt).size(), memory_.path(prompt).size());
  std::size_t count = 0;
  while ((count + 1) * step < prompt.size() &&
         (count < near || (files_ && files_pay_ != false && files_->has(keys[count]))))
    ++count;
  return static_cast<std::int64_t>(count * step);
}

bool PrefixCache::keep_on_device(Engine& engine, Tokens pieces) {
  const auto end = std::ssize(pieces);
  if (!engine.holds(end - step_, end)) return false;
  try {
    return device_.add(pieces, bytes_, [&] {
      auto memory = on_.allocate(bytes_);
      engine.save(end - step_, end, *memory);
      return memory;
    });
  } catch (const Error& error) {
    // The device has less memory than it was thought to have.
    if (error.fault() != Fault::job_failed) throw;
    return false;
  }
}

std::int64_t PrefixCache::recall(Engine& engine, Tokens prompt, std::int64_t cached) {
  AC_ASSERT(cached % step_ == 0 && engine.position() == cached);
  const auto on_device = device_.use(prompt);
  const auto in_memory = memory_.use(prompt);
  const std::vector<Key> keys = files_ ? keys_of(prompt) : std::vector<Key>();
  for (; cached + step_ < std::ssize(prompt); cached += step_) {
    const Tokens pieces = prompt.first(static_cast<std::size_t>(cached + step_));
    const auto i = static_cast<std::size_t>(cached / step_);
    Place place = kDevice;
    if (i < on_device.size()) {
      engine.append(**on_device[i], step_);
    } else {
      const bool found = i < in_memory.size();
      Kept kept = found ? *in_memory[i] : nullptr;
      place = found ? kMemory : kDisk;
      const double begin = seconds_();
      if (!kept && files_ && files_pay_ != false) kept = load(keys[i]);
      if (!kept) break;
      on_.upload_later(between_->address(), kept.get(), bytes_);
      engine.append(*between_, step_);
      if (!found) memory_.add(pieces, bytes_, [&] { return kept; });
      keep_on_device(engine, pieces);
      if (!found && !files_pay_) {
        on_.synchronize();
        cached = judge_files(engine, prompt, cached + step_, seconds_() - begin) - step_;
      }
    }
    tokens_[place] += step_;
  }
  return cached;
}

std::int64_t PrefixCache::judge_files(Engine& engine, Tokens prompt, std::int64_t cached,
                                      double loaded) {
  constexpr double kShort = 0.005;  // not worth a comparison
  if (loaded <= kShort) files_pay_ = true;
  if (files_pay_ || cached + kTimedRuns * step_ >= std::ssize(prompt)) return cached;
  double run = loaded;
  for (int i = 0; i < kTimedRuns; ++i, cached += step_) {
    const Tokens piece =
        prompt.subspan(static_cast<std::size_t>(cached), static_cast<std::size_t>(step_));
    const double begin = seconds_();
    engine.prefill({piece.begin(), piece.end()});
    on_.synchronize();
    run = std::min(run, seconds_() - begin);
  }
  files_pay_ = run >= loaded;
  if (!*files_pay_)
    warn(
        "{} tokens of a prompt come back from the disk in {:.1f} ms, and are read anew in {:.1f}: "
        "what is there is not used, and no more is kept there",
        step_, loaded * 1e3, run * 1e3);
  return cached;
}

PrefixCache::Kept PrefixCache::take_memory() {
  std::unique_ptr<Device::Memory> memory;
  {
    const std::lock_guard lock(unused_->mutex);
    if (!unused_->memory.empty()) {
      memory = std::move(unused_->memory.back());
      unused_->memory.pop_back();
    }
  }
  if (!memory) memory = on_.allocate_staging(bytes_);
  auto* const first = static_cast<std::byte*>(memory->address());
  return {first, [unused = unused_, owned = memory.release()](std::byte*) {
            const std::lock_guard lock(unused->mutex);
            unused->memory.emplace_back(owned);
          }};
}

PrefixCache::Kept PrefixCache::load(const Key& key) {
  if (!files_->has(key)) return nullptr;
  Kept kept = take_memory();
  on_.synchronize();  // the device may still read what was in it
  return files_->load(key, {kept.get(), bytes_}) ? kept : nullptr;
}

bool PrefixCache::keep_in_memory(Engine& engine, Tokens pieces) {
  const auto end = std::ssize(pieces);
  if (!engine.holds(end - step_, end)) return false;
  try {
    return memory_.add(pieces, bytes_, [&] {
      Kept kept = take_memory();
      engine.save(end - step_, end, *between_);
      on_.download_later(kept.get(), between_->address(), bytes_);
      return kept;
    });
  } catch (const Error& error) {
    // The host has less memory than it was thought to have.
    if (error.fault() != Fault::job_failed) throw;
    return false;
  }
}

std::int64_t PrefixCache::keep(Engine& engine, Tokens tokens, std::int64_t kept) {
  const std::int64_t all = std::ssize(tokens);
  // A place that lacks what was offered before has no room.
  const auto next = [&](std::size_t count) {
    const std::int64_t there = static_cast<std::int64_t>(count) * step_;
    return there < kept ? all : there;
  };
  const std::int64_t on_device = next(device_.use(tokens).size());
  const std::int64_t in_memory = next(memory_.use(tokens).size());
  std::int64_t end = std::min(on_device, in_memory);
  if (end < all) {
    end += step_;
    const Tokens pieces = tokens.first(static_cast<std::size_t>(end));
    if (on_device < end) keep_on_device(engine, pieces);
    if (in_memory < end) keep_in_memory(engine, pieces);
  }
  if (!files_ || files_pay_ == false) return end;
  on_.synchronize();  // files are written of what has arrived
  const std::vector<Key> keys = keys_of(tokens);
  std::vector<PrefixFiles::Piece> offered;
  for (const Kept* const there : memory_.path(tokens))
    offered.push_back({keys[offered.size()], bytes_, *there});
  files_->offer(std::move(offered));
  return end;
}

PrefixCounts PrefixCache::counts() const {
  PrefixCounts counts;
  counts.places[kDevice] = {0, device_.evictions(), device_.bytes(), device_.room()};
  counts.places[kMemory] = {0, memory_.evictions(), memory_.bytes(), memory_.room()};
  if (files_) {
    const PrefixFiles::Counts files = files_->counts();
    counts.places[kDisk] = {0, files.evictions, files.bytes, files_->room()};
    counts.damaged_files = files.damaged;
  }
  for (std::size_t i = 0; i < tokens_.size(); ++i) counts.places[i].tokens = tokens_[i];
  return counts;
}

}  // namespace ac
