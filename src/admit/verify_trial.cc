#include "admit/trial.h"

#include <algorithm>

#include "base/error.h"
#include "ir/graph_text.h"
#include "ir/weights.h"

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
    if (pointer.buffer < 0 || static_cast<std::size_t>(pointer.buffer) >= trial.buffers.size())
      refuse("has a pointer to no buffer");
  }
  for (const Launch::Map& map : launch.maps) {
    if (const char* why = why_impossible(map, launch, tokens)) refuse(why);
    if (map.buffer < 0 || static_cast<std::size_t>(map.buffer) >= trial.buffers.size())
      refuse("has a map of no buffer");
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

bool has_leaf(const StepGraph& step, Op op, const char* attribute, const std::string& name) {
  return std::ranges::any_of(step.graph.nodes, [&](const Node& node) {
    return node.op == op && node.text(attribute) == name;
  });
}

// A weight that is stored in this tensor, among others.
bool has_part(const StepGraph& step, const Buffer& buffer) {
  return std::ranges::any_of(step.graph.nodes, [&](const Node& node) {
    if (node.op != Op::weight || format_of(node).format != buffer.in_file.format) return false;
    const std::vector<Node> parts = parts_of(node);
    return parts[static_cast<std::size_t>(buffer.in_file.part)].text("key") == buffer.key;
  });
}

// Checks that the trial has the node, weight or state that the buffer stands for.
void check(const Buffer& buffer, const Trial& trial, const StepGraph& step,
           const std::vector<std::int64_t>& all_tokens, const std::string& origin) {
  using Role = Buffer::Role;
  const bool is_step = trial.vocab == 0;
  const auto refuse = [&](const char* why) {
    bad_input("{}: a buffer of the role {}: {}", origin, to_string(buffer.role), why);
  };
  const auto has_node = [&] {
    return buffer.node >= 0 && static_cast<std::size_t>(buffer.node) < step.graph.nodes.size();
  };
  const auto is_of_node = [&] { return has_node() && buffer == buffer_of(step, buffer.node); };
  switch (buffer.role) {
    case Role::ids:
      if (!is_step || !has_leaf(step, Op::input, "name", "ids")) refuse("the step takes no ids");
      break;
    case Role::weight:
      if (!is_step || !has_part(step, buffer)) refuse("the step has no such weight");
      break;
    case Role::constant:
      if (!is_step || !is_of_node()) refuse("its node is not this constant");
      break;
    case Role::rope_table:
      if (!is_step || !has_node() || step.graph[buffer.node].op != Op::constant)
        refuse("it is made of no constant");
      break;
    case Role::state:
      if (!is_step || buffer.state < 0 ||
          static_cast<std::size_t>(buffer.state) >= step.states.size())
        refuse("the step has no such state");
      if (buffer.tensor < 0 ||
          static_cast<std::size_t>(buffer.tensor) >=
              step.states[static_cast<std::size_t>(buffer.state)].tensors.size())
        refuse("the state has no such tensor");
      break;
    case Role::scratch:
      if (is_step && !buffer.is_workspace() && !is_of_node()) refuse("its node is another one");
      if (trial.masks && buffer.node > 1) refuse("it is neither logits nor what a mask leaves");
      break;
    case Role::position:
      if (!is_step && !trial.draws) refuse("what chooses the largest logit needs no position");
      break;
    case Role::settings:
      if (!trial.draws) refuse("a region takes none");
      break;
    case Role::allowed:
      if (!trial.masks) refuse("the trial masks nothing");
      break;
    case Role::log:
    case Role::until:
      if (trial.log == 0) refuse("the trial ends no step");
      break;
    case Role::token:
    case Role::counters:
    case Role::kept:
      break;
  }
  if (buffer.is_workspace() || buffer.role == Role::counters || buffer.role == Role::kept)
    for (const std::int64_t tokens : all_tokens)
      if (const std::int64_t bytes = buffer.bytes.at(tokens); bytes < 0 || bytes > kMost * 64)
        bad_input("{}: a buffer of {} bytes", origin, bytes);
}

}  // namespace

void verify(const Trial& trial, const std::string& origin) {
  if (trial.tokens < 1 || trial.tokens > kMost || trial.capacity < 1 || trial.capacity > kMost ||
      trial.vocab < 0 || trial.vocab > kMost || trial.log < 0 || trial.log > kMost)
    bad_input("{}: a trial of impossible size", origin);
  if (trial.distinct_rows < 0 || trial.distinct_rows > kMost)
    bad_input("{}: a trial of {} rows", origin, trial.distinct_rows);
  if (trial.draws && trial.vocab == 0) bad_input("{}: nothing to draw from", origin);
  if (trial.masks && (trial.vocab == 0 || trial.draws))
    bad_input("{}: a mask of nothing, or of what is drawn", origin);
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
  for (const Buffer& buffer : trial.buffers) check(buffer, trial, step, all_tokens, origin);
  if (trial.launches.empty()) bad_input("{}: a trial of no launch", origin);
  const bool of_rows = trial.rows != 1;
  if (of_rows && (trial.rows < 1 || trial.tokens != 1 || !trial.other_tokens.empty() ||
                  trial.draws || !trial.alone.empty()))
    bad_input("{}: rows of something else than a step of one token", origin);
  for (const Launch& launch : trial.launches)
    if (of_rows ? launch.rows < trial.rows : launch.rows != 1)
      bad_input("{}: a launch of {} rows in a trial of {}", origin, launch.rows, trial.rows);
  for (const Launch& launch : trial.launches)
    for (const std::int64_t tokens : all_tokens) check(launch, trial, tokens, origin);
  for (const Launch& launch : trial.alone) check(launch, trial, 1, origin);
  const bool has_tokens = std::ranges::all_of(trial.buffers, [](const Buffer& buffer) {
    return buffer.bytes.is_constant() || (buffer.bytes.fixed == 0 && buffer.bytes.per == 1 &&
                                          buffer.bytes.times == 1 && buffer.bytes.at_most == 0);
  });
  if (!trial.alone.empty() && !has_tokens)
    bad_input("{}: a token by itself has no part of a buffer", origin);
}

}  // namespace ac
