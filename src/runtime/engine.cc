#include "runtime/engine.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "kernels/advance_plan.h"
#include "kernels/mask_logits_plan.h"

namespace ac {
namespace {

using Role = Buffer::Role;

// Tokens of one recording, and of one copy to the host. Two of these are under way at most.
constexpr std::int64_t kBatch = 4;
// Steps of prompts that are remembered, each with a recording at most.
constexpr std::size_t kPromptSteps = 32;

}  // namespace

Engine::Engine(Device& device, const std::filesystem::path& package, EngineOptions options)
    : Engine(std::make_shared<LoadedProgram>(device, package, std::move(options))) {}

Engine::Engine(std::shared_ptr<LoadedProgram> loaded)
    : loaded_(std::move(loaded)),
      device_(loaded_->device()),
      program_(loaded_->program()),
      launcher_(loaded_->launcher()),
      addresses_(loaded_->add_sequence(memory_)),
      ids_sent_(device_.make_mark()),
      until_sent_(device_.make_mark()),
      allowed_sent_(device_.make_mark()) {
  set_position(0);
  until_ = device_.allocate_staging(sizeof(kernels::Until));
  set_until(-1, {});
}

Engine::~Engine() { loaded_->remove_sequence(*this); }

void* Engine::address_of(Role role) const {
  for (std::size_t i = 0; i < program_.buffers.size(); ++i)
    if (program_.buffers[i].role == role) return addresses_[i];
  AC_UNREACHABLE();
}

void Engine::set_position(std::int64_t position) {
  const auto narrow = static_cast<std::int32_t>(position);
  device_.upload(address_of(Role::position), std::as_bytes(std::span(&narrow, 1)));
  position_ = position;
}

void Engine::set_until(std::int64_t left, const std::vector<std::int64_t>& stops) {
  const bool ends = left >= 0 || !stops.empty();
  if (!ends && !ends_) return;
  kernels::Until until{};
  until.left = static_cast<int>(left);
  // The host looks for the others.
  for (const std::int64_t id : stops)
    if (until.stops < kernels::most_stop_ids) until.ids[until.stops++] = static_cast<int>(id);
  until_sent_->wait();
  std::memcpy(until_->address(), &until, sizeof until);
  device_.upload_later(address_of(Role::until), until_->address(), sizeof until);
  until_sent_->set();
  ends_ = ends;
}

// A void step wrote what the next one writes again, and no more.
void Engine::read_position(std::int64_t reached_before) {
  std::int32_t position = 0;
  device_.download(std::as_writable_bytes(std::span(&position, 1)), address_of(Role::position));
  const bool were_void = position < position_;
  position_ = position;
  reached_ = std::max(reached_before, position_ + (were_void ? 1 : 0));
  if (were_void) last_ = nullptr;  // its logits are gone
}

std::int64_t Engine::slack() const {
  std::int64_t least = program_.max_context;
  for (const StateSpec& state : program_.states)
    least = std::min(least, ac::slack(state, program_.max_context));
  return least;
}

const StateSpec* Engine::forgetful(std::int64_t tokens) const {
  for (const StateSpec& state : program_.states)
    if (!can_rewind(state, tokens, reached_)) return &state;
  return nullptr;
}

bool Engine::can_truncate(std::int64_t tokens) const {
  return tokens >= 0 && tokens <= position_ && forgetful(tokens) == nullptr;
}

void Engine::check_truncate(std::int64_t tokens) const {
  if (tokens < 0 || tokens > position_)
    bad_input("cannot go back to {} tokens: {} are cached", tokens, position_);
  if (const StateSpec* const state = forgetful(tokens))
    bad_input(
        "cannot go back to {} tokens: {} were cached, and a layer that sees {} keeps no more than "
        "the last {}",
        tokens, reached_, state->window, state->slots);
}

void Engine::truncate(std::int64_t tokens) {
  check_truncate(tokens);
  if (tokens == 0) reached_ = 0;
  set_position(tokens);
  last_ = nullptr;
}

void Engine::fill_caches(const RandomValues& random) {
  for (std::size_t i = 0; i < program_.buffers.size(); ++i) {
    const Buffer& buffer = program_.buffers[i];
    if (buffer.role != Role::state) continue;
    const auto [offset, scale] = random_of(program_.states[static_cast<std::size_t>(buffer.state)],
                                           static_cast<std::size_t>(buffer.tensor));
    random.fill(addresses_[i], buffer.dtype,
                buffer.bytes.fixed / static_cast<std::int64_t>(bytes_of(buffer.dtype)),
                static_cast<std::uint64_t>(i) << 40, offset, scale);
  }
}

void Engine::pretend(std::int64_t tokens) {
  if (tokens < 0 || tokens > program_.max_context)
    bad_input("{}, and not {}", room_of(program_), tokens);
  set_position(tokens);
  reached_ = tokens;
  last_ = nullptr;
}

void Engine::sample(const Sampling& sampling) {
  check(sampling);
  draws_ = !sampling.is_greedy();
  if (draws_) set_settings(sampling);
}

void Engine::set_settings(const Sampling& sampling) {
  if (!program_.draws())
    wrong_usage("{} can only take the likeliest token: compile the model again",
                files().folder().string());
  if (settings_ == sampling) return;
  const kernels::DrawSettings settings = draw_settings(sampling);
  device_.upload(address_of(Role::settings), std::as_bytes(std::span(&settings, 1)));
  settings_ = sampling;
}

void Engine::begin_step() {
  Engine* const self = this;
  loaded_->step_of({&self, 1});
  has_kept_ = false;
}

std::size_t Engine::bytes_of_logits() const {
  const Buffer& buffer = program_.buffers[static_cast<std::size_t>(last_->logits)];
  return static_cast<std::size_t>(program_.vocab) * bytes_of(buffer.dtype);
}

std::byte* Engine::logits_place(std::int64_t row) const {
  return static_cast<std::byte*>(addresses_[static_cast<std::size_t>(last_->logits)]) +
         static_cast<std::size_t>(first_row_ + row) * bytes_of_logits();
}

void Engine::keep_logits() {
  if (last_ == nullptr || has_kept_) return;
  const std::size_t bytes = static_cast<std::size_t>(last_rows_) * bytes_of_logits();
  if (!kept_ || kept_->bytes() < bytes) kept_ = device_.allocate(bytes);
  device_.copy(kept_->address(), logits_place(0), bytes);
  has_kept_ = true;
}

void Engine::bring_logits_back() {
  if (!has_kept_) return;
  begin_step();
  device_.copy(logits_place(0), kept_->address(),
               static_cast<std::size_t>(last_rows_) * bytes_of_logits());
}

void Engine::check_step(std::int64_t tokens) const {
  if (position_ + tokens > program_.max_context)
    bad_input("{}, and this would be token {}", room_of(program_), position_ + tokens);
}

void Engine::check_ids(const std::vector<std::int64_t>& ids) const {
  for (const std::int64_t id : ids)
    if (id < 0 || id >= program_.vocab)
      bad_input("the token id {} is outside the vocabulary of {}", id, program_.vocab);
}

void Engine::enqueue(const Launch& launch, std::int64_t tokens, bool overlaps) {
  launcher_.launch({&launch, 1}, tokens, addresses_, overlaps);
}

void Engine::enqueue(const Phase& phase, std::int64_t tokens) {
  // A step's first kernel waits for all of the step before, so that what looks at the position
  // early sees this step's.
  const std::span<const Launch> launches = phase.launches;
  if (!draws_ || launches.empty()) return launcher_.launch(launches, tokens, addresses_, false);
  launcher_.launch(launches.first(launches.size() - 1), tokens, addresses_, false);
  launcher_.launch(phase.draw, tokens, addresses_);
  launcher_.launch(launches.last(1), tokens, addresses_);
}

// As a step of no tokens.
void Engine::enqueue_masked(const Phase& phase, std::int64_t tokens, bool draws) {
  const std::span<const Launch> launches = phase.masked;
  if (draws) return launcher_.launch(launches, tokens, addresses_, false);
  launcher_.launch(launches.first(1), tokens, addresses_, false);
  launcher_.launch(launches.last(1), tokens, addresses_);
}

// Into the pinned buffer; from there each step fetches its own.
void Engine::write_ids(const std::vector<std::int64_t>& ids) {
  const std::size_t size = bytes_of(program_.ids_dtype());
  ids_sent_->wait();
  if (!ids_ || ids_->bytes() < ids.size() * size)
    ids_ = device_.allocate_staging(std::max<std::size_t>(ids.size(), 512) * size);
  if (size == sizeof(std::int64_t)) {
    std::memcpy(ids_->address(), ids.data(), ids.size() * size);
  } else {
    const std::vector<std::int32_t> narrow(ids.begin(), ids.end());
    std::memcpy(ids_->address(), narrow.data(), narrow.size() * size);
  }
}

void Engine::run_step(const Phase& phase, std::int64_t tokens) {
  if (!loaded_->records()) return enqueue(phase, tokens);
  const auto known = std::ranges::find_if(prompt_steps_, [&](const PromptStep& step) {
    return step.phase == &phase && step.tokens == tokens && step.draws == draws_;
  });
  if (known == prompt_steps_.end()) {
    enqueue(phase, tokens);
    prompt_steps_.push_front({&phase, tokens, draws_});
    if (prompt_steps_.size() > kPromptSteps) prompt_steps_.pop_back();
    return;
  }
  prompt_steps_.splice(prompt_steps_.begin(), prompt_steps_, known);
  if (!known->recording) known->recording = device_.record([&] { enqueue(phase, tokens); });
  known->recording->replay();
}

void Engine::prefill(const std::vector<std::int64_t>& ids, std::int64_t chunk) {
  const std::int64_t longest = program_.longest_step();
  run(ids, chunk > 0 ? std::min(chunk, longest) : longest, Rows::last);
}

void Engine::run_all(const std::vector<std::int64_t>& ids) {
  const auto total = static_cast<std::int64_t>(ids.size());
  if (const std::int64_t longest = program_.longest_step(Rows::all); total > longest)
    wrong_usage("{} has no step of {} tokens with the logits of each: compile with --all-logits {}",
                files().folder().string(), total, total);
  run(ids, std::max<std::int64_t>(total, 1), Rows::all);
}

void Engine::run(const std::vector<std::int64_t>& ids, std::int64_t most, Rows rows) {
  const auto total = static_cast<std::int64_t>(ids.size());
  if (total == 0) return;
  check_step(total);
  check_ids(ids);
  set_until(-1, {});
  write_ids(ids);
  const auto size = static_cast<std::int64_t>(bytes_of(program_.ids_dtype()));
  for (std::int64_t at = 0; at < total; at += most) {
    const std::int64_t tokens = std::min(most, total - at);
    const Phase& phase = program_.phase_of(tokens, position_, rows);
    device_.upload_later(addresses_[static_cast<std::size_t>(phase.ids)],
                         static_cast<std::byte*>(ids_->address()) + at * size,
                         static_cast<std::size_t>(tokens * size));
    begin_step();
    run_step(phase, tokens);
    position_ += tokens;
    last_ = &phase, first_row_ = 0, last_rows_ = rows == Rows::all ? tokens : 1;
  }
  reached_ = std::max(reached_, position_);
  ids_sent_->set();
}

void Engine::decode(std::int64_t id) {
  check_step(1);
  tell(id);
  replay(1);
}

void Engine::tell(std::int64_t id) {
  check_ids({id});
  write_ids({id});
  const auto to = static_cast<std::size_t>(program_.phase_of(1, position_).ids);
  device_.upload_later(addresses_[to], ids_->address(), bytes_of(program_.ids_dtype()));
  ids_sent_->set();
}

void Engine::allow(std::span<const std::uint32_t> allowed) {
  if (!allowed.empty()) set_allowed(allowed);
  has_mask_ = !allowed.empty();
}

void Engine::end_after(std::int64_t left, const std::vector<std::int64_t>& stops) {
  set_until(left, stops);
  reached_before_ = reached_;
}

void Engine::settle(std::int64_t tokens) {
  read_position(reached_before_);
  if (tokens < position_) truncate(tokens);
}

void Engine::begin_row() {
  has_kept_ = false;
  if (has_mask_ || std::exchange(allows_all_, true)) return;
  const int words = kernels::mask_words(static_cast<int>(program_.vocab));
  device_.fill(address_of(Role::allowed), sizeof(std::uint32_t) * static_cast<std::size_t>(words),
               0xff);
}

void Engine::end_row(const Phase& phase, std::size_t row) {
  ++position_;
  reached_ = std::max(reached_, position_);
  last_ = &phase, first_row_ = static_cast<std::int64_t>(row), last_rows_ = 1;
}

void Engine::replay(std::int64_t steps) {
  set_until(-1, {});
  replay_steps(steps);
}

void Engine::replay_steps(std::int64_t steps) {
  check_step(steps);
  begin_step();
  first_row_ = 0, last_rows_ = 1;
  for (std::int64_t left = steps; left > 0;) {
    last_ = &program_.phase_of(1, position_);
    if (!loaded_->records()) {
      enqueue(*last_, 1);
      --left, ++position_;
      continue;
    }
    Recorded& recorded = recorded_[{last_, draws_}];
    if (!recorded.one) {
      const auto record = [&](std::int64_t count) {
        return device_.record([&] {
          for (std::int64_t i = 0; i < count; ++i) enqueue(*last_, 1);
        });
      };
      recorded = {record(1), record(kBatch)};
    }
    const std::int64_t count = left >= kBatch ? kBatch : 1;
    (count > 1 ? recorded.many : recorded.one)->replay();
    left -= count, position_ += count;
  }
  reached_ = std::max(reached_, position_);
}

void Engine::generate(std::int64_t count, const std::function<bool(std::int64_t)>& on_token,
                      const std::vector<std::int64_t>& stops) {
  if (last_ == nullptr) wrong_usage("there is no token to go on from: run a prompt first");
  if (count < 1) return;
  check_step(count - 1);
  const std::int64_t first = position_, reached_before = reached_;
  set_until(count - 1, stops);
  std::int64_t shown = 0;
  try {
    shown = follow(count, on_token, stops);
  } catch (...) {
    read_position(reached_before);
    throw;
  }
  if (shown < count) read_position(reached_before);
  if (first + shown - 1 < position_) truncate(first + shown - 1);
}

std::int64_t Engine::follow(std::int64_t count, const std::function<bool(std::int64_t)>& on_token,
                            const std::vector<std::int64_t>& stops) {
  // Copies of the log on their way.
  struct Batch {
    std::unique_ptr<Device::Mark> copied;
    std::int64_t tokens = 0;
  };
  std::array<Batch, 2> batches;
  for (Batch& batch : batches) batch.copied = device_.make_mark();
  const auto staging = device_.allocate_staging(batches.size() * kBatch * sizeof(std::int32_t));
  auto* const copies = static_cast<std::int32_t*>(staging->address());
  const auto* const log = static_cast<const std::int32_t*>(address_of(Role::log));

  const bool ahead = slack() >= 2 * kBatch;
  const std::int64_t size = ahead ? kBatch : 1;
  const std::int64_t first = position_;
  std::int64_t asked = 0, shown = 0;
  std::size_t put = 0, take = 0;
  while (shown < count) {
    while (asked < count && put - take < (ahead ? batches.size() : 1)) {
      // The first token is there already.
      const std::int64_t tokens = asked == 0 ? 1 : std::min(size, count - asked);
      if (asked > 0) replay_steps(tokens);
      Batch& batch = batches[put % batches.size()];
      device_.download_later(copies + put % batches.size() * kBatch, log + first + asked,
                             static_cast<std::size_t>(tokens) * sizeof(std::int32_t));
      batch.copied->set();
      batch.tokens = tokens;
      asked += tokens, ++put;
    }
    const Batch& batch = batches[take % batches.size()];
    batch.copied->wait();
    for (std::int64_t i = 0; i < batch.tokens; ++i) {
      const auto at = take % batches.size() * kBatch + static_cast<std::size_t>(i);
      const std::int64_t token = checked_token(copies[at], program_.vocab);
      ++shown;
      if (!on_token(token) || std::ranges::find(stops, token) != stops.end()) return shown;
    }
    ++take;
  }
  return shown;
}

void Engine::check_tokens(std::int64_t steps) {
  AC_ASSERT(steps >= 0 && steps <= position_);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(steps));
  const auto* const log = static_cast<const std::int32_t*>(address_of(Role::log));
  device_.download(std::as_writable_bytes(std::span(tokens)), log + position_ - steps + 1);
  for (const std::int32_t token : tokens) checked_token(token, program_.vocab);
}

std::vector<double> Engine::logits() { return logits(last_rows_ - 1); }

std::vector<double> Engine::logits(std::int64_t row) {
  if (last_ == nullptr) wrong_usage("there are no logits: run a prompt first");
  if (row < 0 || row >= last_rows_)
    wrong_usage("there are no logits of row {}: the last step left {}", row, last_rows_);
  const DType dtype = program_.buffers[static_cast<std::size_t>(last_->logits)].dtype;
  const std::size_t size = bytes_of(dtype);
  std::vector<std::byte> bytes(bytes_of_logits());
  device_.download(bytes, has_kept_ ? static_cast<const std::byte*>(kept_->address()) +
                                          static_cast<std::size_t>(row) * bytes.size()
                                    : logits_place(row));
  std::vector<double> logits;
  for (std::size_t at = 0; at < bytes.size(); at += size)
    logits.push_back(load_element(dtype, bytes.data() + at));
  check_finite(logits);
  return logits;
}

void Engine::set_allowed(std::span<const std::uint32_t> allowed) {
  const auto vocab = static_cast<std::size_t>(program_.vocab);
  const std::size_t words = (vocab + kernels::mask_word - 1) / kernels::mask_word;
  if (allowed.size() != words)
    wrong_usage("a mask of {} words, and {} tokens take {}", allowed.size(), vocab, words);
  const std::uint32_t behind = ~0u << (vocab - 1) % kernels::mask_word << 1;
  if (std::ranges::all_of(allowed.first(words - 1), [](std::uint32_t word) { return word == 0; }) &&
      (allowed.back() & ~behind) == 0)
    wrong_usage("the mask leaves no token");
  allowed_sent_->wait();
  if (!allowed_) allowed_ = device_.allocate_staging(allowed.size_bytes());
  std::memcpy(allowed_->address(), allowed.data(), allowed.size_bytes());
  device_.upload_later(address_of(Role::allowed), allowed_->address(), allowed.size_bytes());
  allowed_sent_->set();
  allows_all_ = false;
}

std::int64_t Engine::choose(std::span<const std::uint32_t> allowed, const Sampling& sampling) {
  if (last_ == nullptr) wrong_usage("there are no logits to choose from: run a prompt first");
  if (!program_.draws())
    wrong_usage("{} cannot choose under a mask: compile the model again",
                files().folder().string());
  check(sampling);
  const bool draws = !sampling.is_greedy();
  if (draws) set_settings(sampling);
  set_until(-1, {});
  set_allowed(allowed);
  has_mask_ = false;
  if (last_->rows == Rows::each) {  // a step of one has its own place for them
    keep_logits();
    last_ = &program_.phase_of(1, position_ - 1), first_row_ = 0;
  }
  bring_logits_back();
  // Steps with the logits of each of their tokens have them at places that depend on their number.
  if (!loaded_->records() || last_->rows == Rows::all) {
    enqueue_masked(*last_, last_rows_, draws);
    return chosen();
  }
  std::unique_ptr<Device::Recording>& recording = masked_[{last_, draws}];
  if (!recording) recording = device_.record([&] { enqueue_masked(*last_, 1, draws); });
  recording->replay();
  return chosen();
}

std::int64_t Engine::chosen() {
  if (last_ == nullptr) wrong_usage("no token was chosen: run a prompt first");
  std::int32_t token = -1;
  device_.download(std::as_writable_bytes(std::span(&token, 1)), address_of(Role::token));
  return checked_token(token, program_.vocab);
}

}  // namespace ac
