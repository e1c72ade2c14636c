#include "runtime/engine.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "kernels/advance_plan.h"
#include "kernels/mask_logits_plan.h"
#include "runtime/packages.h"

namespace ac {
namespace {

using Role = Buffer::Role;

// Tokens of one recording, and of one copy to the host. Two of these are under way at most.
constexpr std::int64_t kBatch = 4;
// Steps of prompts that are remembered, each with a recording at most.
constexpr std::size_t kPromptSteps = 32;

double gib(std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

std::set<Product> products_of(const Program& program) {
  std::set<Product> products;
  for (const Phase& phase : program.phases)
    for (const Launch* launch : phase.all())
      if (launch->product) products.insert(*launch->product);
  return products;
}

}  // namespace

Program read_program(const PackageFiles& files) {
  const std::string origin = (files.folder() / "program.json").string();
  return program_from_json(parse_json(files.read("program.json"), origin), origin);
}

std::string room_of(const Program& program) {
  const std::int64_t most = program.max_context, known = program.positions;
  const std::string& why = program.positions_because;
  const std::string because = why.empty() ? "" : ": " + why;
  if (known == most)
    return fmt::format("the package holds {} tokens, as many as the model is right for{}", most,
                       because);
  return fmt::format("the package holds {} tokens (compile with a larger --max-context for more{})",
                     most,
                     known > 0 ? fmt::format("; the model is right for {}{}", known, because) : "");
}

Engine::Engine(Device& device, const std::filesystem::path& package, EngineOptions options)
    : device_(device),
      files_(package),
      program_(read_program(files_)),
      records_(options.records),
      launcher_(device),
      ids_sent_(device.make_mark()),
      until_sent_(device.make_mark()),
      allowed_sent_(device.make_mark()) {
  if (const int here = device.info().sm; !runs_on(program_.target, here))
    wrong_usage("{} is compiled for {}, and the device is {}{}", package.string(), program_.target,
                device.name(), here > 0 ? fmt::format(" (sm_{})", here) : "");
  check_room();
  if (!options.overlaps) launcher_.forbid_overlaps();
  load_kernels();
  if (!options.weights)
    options.weights = checkpoint_weights(
        device, PackageStores(program_, files_, options.checkpoint, options.on_warning));
  make_buffers(options);
  set_position(0);
  until_ = device.allocate_staging(sizeof(kernels::Until));
  set_until(-1, {});
}

Engine::~Engine() = default;

void Engine::load_kernels() {
  for (const auto& [entry, artifact] : program_.kernels)
    launcher_.add(entry, device_.load(files_.read(artifact), files_.folder() / artifact, entry));
  for (const Product& product : products_of(program_)) try {
      launcher_.add(product);
    } catch (const Error& error) {
      if (error.fault() != Fault::job_failed) throw;
      job_failed(
          "{} has matrix products of a library, which do not run here: {}; or compile the model "
          "for this machine, or with --families that leave out cublaslt",
          files_.folder().string(), error.what());
    }
}

void Engine::check_room() const {
  std::int64_t weights = 0, caches = 0, rest = program_.arena_bytes + program_.constant_bytes;
  for (const Buffer& buffer : program_.buffers) {
    const std::int64_t bytes = buffer.bytes.at(program_.longest_step());
    if (buffer.role == Role::weight)
      weights += bytes;
    else if (buffer.role == Role::state)
      caches += bytes;
    else if (buffer.role != Role::scratch && buffer.role != Role::constant)
      rest += bytes;
  }
  if (!products_of(program_).empty()) rest += static_cast<std::int64_t>(device_.product_bytes());
  const auto free = static_cast<std::int64_t>(device_.free_bytes());
  if (weights + caches + rest > free)
    job_failed(
        "{} does not fit on {}: weights {:.2f} GiB, keys and values of {} tokens {:.2f} GiB, work "
        "space {:.2f} GiB, and {:.2f} GiB are free; compile with a smaller --max-context",
        files_.folder().string(), device_.name(), gib(weights), program_.max_context, gib(caches),
        gib(rest), gib(free));
}

void Engine::make_rope_table(const Buffer& buffer, void* to, const std::string& constants) {
  const Buffer& source = program_.buffers[static_cast<std::size_t>(buffer.source)];
  std::vector<float> inv_freq(static_cast<std::size_t>(source.bytes.fixed) / sizeof(float));
  std::memcpy(inv_freq.data(), constants.data() + source.offset, inv_freq.size() * sizeof(float));
  const std::vector<float> table = rope_table(inv_freq, buffer.scale, program_.max_context);
  if (static_cast<std::int64_t>(table.size() * sizeof(float)) != buffer.bytes.fixed)
    bad_input("{}: the rope table and its frequencies disagree", files_.folder().string());
  device_.upload(to, std::as_bytes(std::span(table)));
}

void Engine::make_buffers(const EngineOptions& options) {
  const auto allocate = [&](std::int64_t bytes) {
    return device_.allocate(static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1)));
  };
  arena_ = allocate(program_.arena_bytes);
  constants_ = allocate(program_.constant_bytes);
  std::string constants;
  if (program_.constant_bytes > 0) {
    constants = files_.read("constants.bin");
    if (static_cast<std::int64_t>(constants.size()) != program_.constant_bytes)
      bad_input("{}/constants.bin has {} bytes, and program.json says {}", files_.folder().string(),
                constants.size(), program_.constant_bytes);
    device_.upload(constants_->address(), std::as_bytes(std::span(constants)));
  }
  for (const Buffer& buffer : program_.buffers) {
    const std::int64_t bytes = buffer.bytes.at(program_.longest_step());
    if (buffer.role == Role::scratch || buffer.role == Role::constant) {
      const Device::Memory& in = buffer.role == Role::scratch ? *arena_ : *constants_;
      addresses_.push_back(static_cast<std::byte*>(in.address()) + buffer.offset);
      continue;
    }
    memory_.push_back(allocate(bytes));
    void* const address = memory_.back()->address();
    addresses_.push_back(address);
    if (buffer.role == Role::counters) {
      device_.fill(address, static_cast<std::size_t>(bytes), 0);
    } else if (buffer.role == Role::rope_table) {
      make_rope_table(buffer, address, constants);
    }
  }
  load_weights(options);
}

void Engine::load_weights(const EngineOptions& options) {
  for (const Buffer& buffer : program_.buffers)
    if (buffer.role == Role::weight) loaded_.bytes += buffer.bytes.fixed;
  device_.synchronize();
  const auto begin = std::chrono::steady_clock::now();
  std::int64_t done = 0;
  for (std::size_t i = 0; i < program_.buffers.size(); ++i) {
    const Buffer& buffer = program_.buffers[i];
    if (buffer.role != Role::weight) continue;
    options.weights->load(buffer, addresses_[i]);
    done += buffer.bytes.fixed;
    if (options.on_weights) options.on_weights(done, loaded_.bytes);
  }
  device_.synchronize();
  loaded_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

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
                files_.folder().string());
  if (settings_ == sampling) return;
  const kernels::DrawSettings settings = draw_settings(sampling);
  device_.upload(address_of(Role::settings), std::as_bytes(std::span(&settings, 1)));
  settings_ = sampling;
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
  if (!records_) return enqueue(phase, tokens);
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
                files_.folder().string(), total, total);
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
    run_step(phase, tokens);
    position_ += tokens;
    last_ = &phase, last_rows_ = rows == Rows::all ? tokens : 1;
  }
  reached_ = std::max(reached_, position_);
  ids_sent_->set();
}

void Engine::decode(std::int64_t id) {
  check_step(1);
  check_ids({id});
  write_ids({id});
  const auto to = static_cast<std::size_t>(program_.phase_of(1, position_).ids);
  device_.upload_later(addresses_[to], ids_->address(), bytes_of(program_.ids_dtype()));
  ids_sent_->set();
  replay(1);
}

void Engine::replay(std::int64_t steps) {
  set_until(-1, {});
  replay_steps(steps);
}

void Engine::replay_steps(std::int64_t steps) {
  check_step(steps);
  last_rows_ = 1;
  for (std::int64_t left = steps; left > 0;) {
    last_ = &program_.phase_of(1, position_);
    if (!records_) {
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
  const auto index = static_cast<std::size_t>(last_->logits);
  const DType dtype = program_.buffers[index].dtype;
  const std::size_t size = bytes_of(dtype);
  std::vector<std::byte> bytes(static_cast<std::size_t>(program_.vocab) * size);
  device_.download(bytes, static_cast<const std::byte*>(addresses_[index]) +
                              static_cast<std::size_t>(row) * bytes.size());
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
}

std::int64_t Engine::choose(std::span<const std::uint32_t> allowed, const Sampling& sampling) {
  if (last_ == nullptr) wrong_usage("there are no logits to choose from: run a prompt first");
  if (!program_.draws())
    wrong_usage("{} cannot choose under a mask: compile the model again", files_.folder().string());
  check(sampling);
  const bool draws = !sampling.is_greedy();
  if (draws) set_settings(sampling);
  set_until(-1, {});
  set_allowed(allowed);
  // Steps with the logits of each of their tokens have them at places that depend on their number.
  if (!records_ || last_->rows == Rows::all) {
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
