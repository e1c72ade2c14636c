#include "admit/trial.h"
#include "base/error.h"
#include "ir/text.h"

namespace ac {
namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 24;  // of tokens, positions and logits

// At so many tokens.
void check(const Launch& launch, const Trial& trial, std::int64_t tokens,
           const std::string& origin) {
  const auto refuse = [&](const char* what) {
    bad_input("{}: the launch of {}: {}", origin, launch.kernel, what);
  };
  if (launch.product) {
    if (const char* why = why_impossible(*launch.product)) refuse(why);
    if (launch.product->n > kMost || launch.product->k > kMost || launch.product->x_pitch > kMost)
      refuse("a product of impossible size");
    if (const std::string why = why_no_product(launch); !why.empty()) refuse(why.c_str());
  } else {
    if (launch.threads < 1 || launch.threads > 1024) refuse("has an impossible block");
    if (launch.shared_bytes < 0 || launch.shared_bytes > kMost)
      refuse("has impossible shared memory");
    for (const Count& size : launch.grid)
      if (size.at(tokens) < 1 || size.at(tokens) > kMost) refuse("has an impossible grid");
  }
  for (const Launch::Pointer& pointer : launch.pointers) {
    if (pointer.at + std::uint64_t{8} > launch.params.size())
      refuse("has a pointer beyond its parameters");
    if (pointer.buffer < 0 || static_cast<std::size_t>(pointer.buffer) >= trial.storages.size())
      refuse("has a pointer to no storage");
  }
  for (const Launch::Map& map : launch.maps) {
    if (const char* why = why_impossible(map, launch, tokens)) refuse(why);
    if (map.buffer < 0 || static_cast<std::size_t>(map.buffer) >= trial.storages.size())
      refuse("has a map of no storage");
  }
  if (launch.product) {
    const std::int64_t rows = launch.numbers[0].value.at(tokens);
    if (rows < 1 || rows > kMost) refuse("a product of an impossible number of rows");
  }
  for (const Launch::Number& number : launch.numbers)
    if ((number.bytes != 4 && number.bytes != 8) ||
        number.at + std::uint64_t{number.bytes} > launch.params.size())
      refuse("has a number beyond its parameters");
}

}  // namespace

void verify(const Trial& trial, const std::string& origin) {
  if (trial.tokens < 1 || trial.tokens > kMost || trial.capacity < 1 || trial.capacity > kMost ||
      trial.vocab < 0 || trial.vocab > kMost || trial.log < 0 || trial.log > kMost)
    bad_input("{}: a trial of impossible size", origin);
  if (trial.draws && trial.vocab == 0) bad_input("{}: nothing to draw from", origin);
  if (trial.vocab == 0 && trial.positions.empty()) bad_input("{}: a trial at no position", origin);
  for (const std::int64_t tokens : trial.other_tokens)
    if (tokens < 1 || tokens > kMost || trial.vocab > 0)
      bad_input("{}: a trial of a step of {} tokens", origin, tokens);
  for (const std::int64_t position : trial.positions)
    if (position < 0 || position > kMost) bad_input("{}: a trial at position {}", origin, position);
  std::vector<std::int64_t> all_tokens = trial.other_tokens;
  all_tokens.push_back(trial.tokens);
  StepGraph step;
  if (trial.vocab == 0) step = parse_step(trial.step, origin);
  if (trial.log > 0 &&
      (trial.vocab > 0 || step.graph.nodes.size() != 1 || step.graph.nodes[0].op != Op::input))
    bad_input("{}: a trial of what ends a step has the step's ids, and nothing else", origin);
  for (const Storage& storage : trial.storages) {
    using Kind = Storage::Kind;
    const bool of_node = storage.kind == Kind::value || storage.kind == Kind::rope_table;
    const bool of_cache = storage.kind == Kind::keys || storage.kind == Kind::values;
    if (of_node && trial.vocab == 0 &&
        (storage.node < 0 || static_cast<std::size_t>(storage.node) >= step.graph.nodes.size()))
      bad_input("{}: a storage is of node {}, which does not exist", origin, storage.node);
    // A position and settings are only in a subject that has them.
    if (trial.vocab > 0 && !trial.draws &&
        (storage.kind == Kind::position || storage.kind == Kind::settings))
      bad_input("{}: what chooses the largest logit needs no position", origin);
    if (storage.kind == Kind::settings && !trial.draws)
      bad_input("{}: a region takes no settings", origin);
    if (storage.kind == Kind::rope_table &&
        (trial.vocab > 0 || step.graph[storage.node].op != Op::constant))
      bad_input("{}: a rope table is made of no constant", origin);
    if (of_cache &&
        (storage.cache < 0 || static_cast<std::size_t>(storage.cache) >= step.caches.size()))
      bad_input("{}: a storage is of cache {}, which does not exist", origin, storage.cache);
    if (storage.kind == Kind::log && trial.log == 0)
      bad_input("{}: a storage is the log, and the trial ends no step", origin);
    for (const std::int64_t tokens : all_tokens)
      if (const std::int64_t bytes = storage.bytes.at(tokens); bytes < 0 || bytes > kMost * 64)
        bad_input("{}: a storage of {} bytes", origin, bytes);
  }
  if (trial.launches.empty()) bad_input("{}: a trial of no launch", origin);
  for (const Launch& launch : trial.launches)
    for (const std::int64_t tokens : all_tokens) check(launch, trial, tokens, origin);
}

}  // namespace ac
