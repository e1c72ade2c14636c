#include "runtime/together.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace ac {
namespace {

// Sets of sequences whose steps are remembered, each with a recording.
constexpr std::size_t kSets = 32;

// What a launch for row `row` finds: the engine's own memory, and that row of what the step has a
// row of for each token.
std::vector<void*> addresses_of_row(const Engine& engine, std::size_t row) {
  std::vector<void*> addresses = engine.addresses();
  const std::vector<Buffer>& buffers = engine.program().buffers;
  for (std::size_t i = 0; i < buffers.size(); ++i)
    if (buffers[i].role == Buffer::Role::scratch || buffers[i].role == Buffer::Role::counters)
      addresses[i] = static_cast<std::byte*>(addresses[i]) +
                     (buffers[i].bytes.at(static_cast<std::int64_t>(row)) - buffers[i].bytes.at(0));
  return addresses;
}

}  // namespace

Together::Together(std::shared_ptr<LoadedProgram> loaded) : loaded_(std::move(loaded)) {
  if (most() == 0) return;
  Device& device = loaded_->device();
  for (Chosen& chosen : chosen_) chosen.copied = device.make_mark();
  copies_ = device.allocate_staging(chosen_.size() * static_cast<std::size_t>(most()) *
                                    sizeof(std::int32_t));
}

void Together::step(std::span<Engine* const> engines) {
  const Program& program = loaded_->program();
  if (std::ssize(engines) > most())
    wrong_usage("{} has steps of up to {} sequences: compile with --slots {}",
                loaded_->files().folder().string(), most(), engines.size());
  AC_ASSERT(!engines.empty() && under_way() < chosen_.size());
  // Rows of a step have the kernels that their sequences have alone, which depend on the position.
  std::map<std::int64_t, std::vector<Engine*>> groups;
  for (Engine* const engine : engines) {
    engine->check_step(1);
    groups[program.phase_of(1, engine->position(), Rows::each).from].push_back(engine);
  }
  for (const auto& [from, rows] : groups)
    step_of(program.phase_of(std::ssize(rows), from, Rows::each), rows);

  Chosen& chosen = chosen_[asked_ % chosen_.size()];
  auto* const to = static_cast<std::int32_t*>(copies_->address()) +
                   asked_ % chosen_.size() * static_cast<std::size_t>(most());
  for (std::size_t i = 0; i < engines.size(); ++i)
    loaded_->device().download_later(to + i, engines[i]->address_of(Buffer::Role::token),
                                     sizeof(std::int32_t));
  chosen.copied->set();
  chosen.rows = engines.size();
  ++asked_;
}

void Together::step_of(const Phase& phase, const std::vector<Engine*>& engines) {
  loaded_->step_of(engines);
  std::vector<Row> rows;
  for (Engine* const engine : engines) {
    engine->begin_row();
    rows.push_back({engine, engine->draws_});
  }
  if (!loaded_->records()) {
    enqueue(phase, rows);
  } else {
    const auto known = std::ranges::find_if(
        recorded_, [&](const Recorded& of) { return of.phase == &phase && of.rows == rows; });
    if (known == recorded_.end()) {
      recorded_.push_front({&phase, rows, loaded_->device().record([&] { enqueue(phase, rows); })});
      if (recorded_.size() > kSets) recorded_.pop_back();
    } else {
      recorded_.splice(recorded_.begin(), recorded_, known);
    }
    recorded_.front().recording->replay();
  }
  for (std::size_t i = 0; i < engines.size(); ++i) engines[i]->end_row(phase, i);
}

void Together::enqueue(const Phase& phase, const std::vector<Row>& rows) {
  Launcher& launcher = loaded_->launcher();
  std::vector<std::vector<void*>> addresses;
  for (std::size_t i = 0; i < rows.size(); ++i)
    addresses.push_back(addresses_of_row(*rows[i].engine, i));
  bool overlaps = false;
  const auto launch = [&](const Launch& one, std::int64_t tokens, std::size_t row) {
    launcher.launch({&one, 1}, tokens, addresses[row], std::exchange(overlaps, true));
  };
  const auto launch_all = [&](const Launch& one) {
    if (!one.each_row)
      launch(one, std::ssize(rows), 0);
    else if (one.rows > 1)
      launcher.launch_rows(one, addresses, std::exchange(overlaps, true));
    else
      for (std::size_t row = 0; row < rows.size(); ++row) launch(one, 1, row);
  };
  for (const Launch& one : phase.launches) launch_all(one);
  launch_all(phase.masked.front());
  for (std::size_t row = 0; row < rows.size(); ++row)
    for (std::size_t i = 1; rows[row].draws && i + 1 < phase.masked.size(); ++i)
      launch(phase.masked[i], 1, row);
  launch_all(phase.masked.back());
}

std::vector<std::int32_t> Together::tokens() {
  AC_ASSERT(under_way() > 0);
  Chosen& chosen = chosen_[given_ % chosen_.size()];
  chosen.copied->wait();
  const auto* const from = static_cast<const std::int32_t*>(copies_->address()) +
                           given_ % chosen_.size() * static_cast<std::size_t>(most());
  ++given_;
  return {from, from + chosen.rows};
}

}  // namespace ac
