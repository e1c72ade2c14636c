#include "prefix/prefix_cache.h"

#include <algorithm>

#include "base/error.h"
#include "build/digest.h"

namespace ac {
namespace {

enum Place : std::size_t { kDevice, kMemory, kDisk };

// Another one whenever files mean something else.
constexpr int kFormat = 1;

std::int64_t step_of(const Program& program, std::int64_t wanted) {
  const std::int64_t longest = program.longest_step();
  if (wanted > longest)
    wrong_usage("the package runs prompts in steps of at most {} tokens, and not of {}", longest,
                wanted);
  return wanted > 0 ? wanted : longest;
}

}  // namespace

PrefixCache::PrefixCache(const Engine& engine, const PrefixOptions& options,
                         const std::string& model)
    : on_(engine.device()),
      step_(step_of(engine.program(), options.step)),
      bytes_(engine.piece_bytes(step_)),
      root_(sha256(fmt::format("states {} of {} in steps of {}", kFormat, model, step_))),
      device_(step_, options.device_bytes),
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
  std::size_t end = 0;
  while (end + step < prompt.size()) {
    const Tokens pieces = prompt.first(end + step);
    if (!device_.find(pieces) && !memory_.find(pieces) &&
        !(files_ && files_->has(keys[end / step])))
      break;
    end += step;
  }
  return static_cast<std::int64_t>(end);
}

void PrefixCache::keep_on_device(Engine& engine, Tokens pieces) {
  const auto end = std::ssize(pieces);
  if (device_.find(pieces) || !engine.holds(end - step_, end)) return;
  try {
    device_.add(pieces, bytes_, [&] {
      auto memory = on_.allocate(bytes_);
      engine.save(end - step_, end, *memory);
      return memory;
    });
  } catch (const Error& error) {
    // The device has less memory than it was thought to have.
    if (error.fault() != Fault::job_failed) throw;
  }
}

std::int64_t PrefixCache::recall(Engine& engine, Tokens prompt, std::int64_t cached) {
  AC_ASSERT(cached % step_ == 0 && engine.position() == cached);
  device_.use(prompt);
  memory_.use(prompt);
  const std::vector<Key> keys = files_ ? keys_of(prompt) : std::vector<Key>();
  for (; cached + step_ < std::ssize(prompt); cached += step_) {
    const Tokens pieces = prompt.first(static_cast<std::size_t>(cached + step_));
    Place place = kDevice;
    if (const auto* const near = device_.find(pieces)) {
      engine.append(**near, step_);
    } else {
      const Kept* const found = memory_.find(pieces);
      Kept kept = found ? *found : nullptr;
      place = found ? kMemory : kDisk;
      if (!kept && files_)
        kept = files_->load(keys[static_cast<std::size_t>(cached / step_)], bytes_);
      if (!kept) break;
      on_.upload(between_->address(), *kept);
      engine.append(*between_, step_);
      if (!found) memory_.add(pieces, bytes_, [&] { return kept; });
      keep_on_device(engine, pieces);
    }
    tokens_[place] += step_;
  }
  return cached;
}

bool PrefixCache::keep_in_memory(Engine& engine, Tokens pieces) {
  const auto end = std::ssize(pieces);
  if (memory_.find(pieces)) return true;
  if (!engine.holds(end - step_, end)) return false;
  try {
    return memory_.add(pieces, bytes_, [&] {
      const auto bytes = std::make_shared<PrefixFiles::Bytes>(bytes_);
      engine.save(end - step_, end, *between_);
      on_.download(*bytes, between_->address());
      return bytes;
    });
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void PrefixCache::keep(Engine& engine, Tokens tokens) {
  std::vector<PrefixFiles::Piece> offered;
  const std::vector<Key> keys = files_ ? keys_of(tokens) : std::vector<Key>();
  for (std::int64_t end = step_; end <= std::ssize(tokens); end += step_) {
    const Tokens pieces = tokens.first(static_cast<std::size_t>(end));
    keep_on_device(engine, pieces);
    if (!keep_in_memory(engine, pieces)) break;
    if (files_) offered.push_back({keys[offered.size()], bytes_, *memory_.find(pieces)});
  }
  device_.use(tokens);
  memory_.use(tokens);
  if (files_) files_->offer(std::move(offered));
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
