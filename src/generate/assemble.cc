#include "generate/assemble.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "generate/counts.h"
#include "ir/layout.h"
#include "kernels/advance_plan.h"
#include "kernels/mask_logits_plan.h"
#include "program/sampling.h"

namespace ac {
namespace {

constexpr std::size_t kConstantAlignment = 256;

std::string name_of(const Node& node, NodeId id) {
  return fmt::format("{} %{}{}{}", info(node.op).name, id, node.module.empty() ? "" : " at ",
                     node.module);
}

// Bytes of a value of all tokens, each of which is one row.
Count rows_of(const StepGraph& step, const Buffer& one) {
  const TensorType& type = step.graph.type(one.node);
  const Count all = buffer_of(step, one.node).bytes;
  if (!type.shape.empty() &&
      std::ranges::any_of(type.shape, [](const Dim& dim) { return dim.uses(Symbol::T); }) &&
      (type.shape[0] != Dim(Symbol::T) || all.at(1) != one.bytes.at(1)))
    job_failed(
        "{} does not have its tokens one after the other, as steps of several sequences want it",
        name_of(step.graph[one.node], one.node));
  return all;
}

}  // namespace

std::int32_t Assembler::add(Buffer buffer) {
  program_.buffers.push_back(std::move(buffer));
  return static_cast<std::int32_t>(program_.buffers.size()) - 1;
}

std::int32_t Assembler::shared(const std::string& key, const Buffer& buffer) {
  const auto known = shared_.find(key);
  if (known != shared_.end()) return known->second;
  return shared_[key] = add(buffer);
}

std::int32_t Assembler::constant(const StepGraph& step, Buffer buffer) {
  const std::vector<std::byte> bytes = *contents_of(step, buffer, program_.max_context);
  const std::string key =
      "constant " + std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto known = shared_.find(key);
  if (known != shared_.end()) return known->second;
  const std::size_t offset =
      (constants_.size() + kConstantAlignment - 1) / kConstantAlignment * kConstantAlignment;
  constants_.resize(offset);
  constants_.insert(constants_.end(), bytes.begin(), bytes.end());
  program_.constant_bytes = static_cast<std::int64_t>(constants_.size());
  buffer.name = "constant", buffer.node = -1;
  buffer.offset = static_cast<std::int64_t>(offset);
  return shared(key, buffer);
}

std::int32_t Assembler::value(const StepGraph& step, NodeId id,
                              std::map<NodeId, std::int32_t>& values) {
  return place(step, buffer_of(step, id), values, 1);
}

std::int32_t Assembler::place(const StepGraph& step, Buffer buffer,
                              std::map<NodeId, std::int32_t>& values, std::int64_t max_tokens,
                              bool each_row) {
  using Role = Buffer::Role;
  if (buffer.name.empty()) buffer.name = to_string(buffer.role);
  switch (buffer.role) {
    case Role::scratch: {
      if (buffer.is_workspace()) {
        buffer.name = "workspace";
        return add(std::move(buffer));
      }
      const NodeId id = std::exchange(buffer.node, -1);
      const auto known = values.find(id);
      if (known != values.end()) return known->second;
      const Node& node = step.graph[id];
      if (node.op == Op::input)
        bad_input("the model has an input \"{}\": a package takes token ids only",
                  node.text("name"));
      buffer.name = name_of(node, id);
      return values[id] = add(std::move(buffer));
    }
    case Role::constant:
      return constant(step, std::move(buffer));
    case Role::weight:
      return shared(fmt::format("weight {} {}", buffer.store, buffer.key), buffer);
    case Role::state: {
      const StateSpec& state = program_.states[static_cast<std::size_t>(buffer.state)];
      const auto tensor = static_cast<std::size_t>(buffer.tensor);
      buffer.name = fmt::format("{} {}", state.tensors[tensor].name, buffer.state);
      buffer.dtype = state.tensors[tensor].dtype;
      buffer.bytes = bytes_of(state, tensor);
      return shared(buffer.name, buffer);
    }
    case Role::counters: {
      // Every launch leaves zeros, so that one buffer does for all.
      const std::int64_t bytes =
          each_row ? aligned(buffer.bytes.at(1)) : buffer.bytes.at(max_tokens);
      if (each_row) buffer.name += " of rows";
      buffer.bytes = 0;
      const std::int32_t index = shared(buffer.name, buffer);
      Count& all = program_.buffers[static_cast<std::size_t>(index)].bytes;
      const std::int64_t most = std::max(all.at(1), bytes);
      all = each_row ? Count(0, most) : Count(most);
      return index;
    }
    case Role::kept: {
      // Who writes there knows what another has left.
      const std::int64_t bytes = std::exchange(buffer.bytes, 0).at(max_tokens);
      const std::int32_t index = shared(buffer.name, buffer);
      Count& all = program_.buffers[static_cast<std::size_t>(index)].bytes;
      all = std::max(all.at(1), bytes);
      return index;
    }
    case Role::rope_table: {
      const NodeId frequencies = std::exchange(buffer.node, -1);
      const std::int64_t rotary = 2 * product(step.graph.type(frequencies).shape).constant();
      buffer.source = value(step, frequencies, values);
      buffer.dtype = DType::f32, buffer.bytes = program_.max_context * rotary * 4;
      return shared(fmt::format("rope {} {}", buffer.source, buffer.scale), buffer);
    }
    case Role::log:
      buffer.bytes = 4 * (program_.max_context + 1);
      return shared(buffer.name, buffer);
    case Role::position:
    case Role::token:
      buffer.bytes = 4;
      return shared(buffer.name, buffer);
    case Role::until:
      buffer.bytes = sizeof(kernels::Until);
      return shared(buffer.name, buffer);
    case Role::settings:
      buffer.dtype = DType::i64, buffer.bytes = kSettingsBytes;
      return shared(buffer.name, buffer);
    case Role::allowed:
      buffer.bytes = 4 * kernels::mask_words(static_cast<int>(program_.vocab));
      return shared(buffer.name, buffer);
    case Role::ids:
      return shared(buffer.name, buffer);
  }
  AC_UNREACHABLE();
}

std::vector<Launch> Assembler::launches(const StepGraph& step, const Generated& made,
                                        std::map<NodeId, std::int32_t>& values,
                                        std::int64_t max_tokens, bool each_row) {
  std::vector<std::int32_t> buffers;
  for (Buffer buffer : made.buffers) {
    // The value of one token is a row of those of all.
    if (each_row && buffer.role == Buffer::Role::scratch && !buffer.is_workspace())
      buffer.bytes = rows_of(step, buffer);
    // Rows that run at once have work space of their own.
    if (each_row && buffer.is_workspace()) buffer.bytes = Count(0, aligned(buffer.bytes.at(1)));
    buffers.push_back(place(step, buffer, values, max_tokens, each_row));
  }
  std::vector<Launch> launches = made.launches;
  for (Launch& launch : launches) {
    launch.each_row = each_row;
    for (Launch::Pointer& pointer : launch.pointers)
      pointer.buffer = buffers[static_cast<std::size_t>(pointer.buffer)];
    for (Launch::Map& map : launch.maps) map.buffer = buffers[static_cast<std::size_t>(map.buffer)];
  }
  return launches;
}

Phase Assembler::phase(const StepGraph& step, Phase phase, const std::vector<Implemented>& parts,
                       const Generated& draw, const Generated& masked) {
  const std::int64_t max_tokens = phase.max_tokens;
  std::map<NodeId, std::int32_t> values;
  for (const Implemented& part : parts)
    for (Launch& launch : launches(step, part.made, values, max_tokens, part.each_row)) {
      phase.launches.push_back(std::move(launch));
      phase.notes.push_back(part.note);
    }
  phase.draw = launches(step, draw, values, max_tokens);
  phase.masked = launches(step, masked, values, max_tokens, phase.rows == Rows::each);
  for (std::size_t i = 0; i < step.graph.nodes.size(); ++i)
    if (step.graph.nodes[i].op == Op::input)
      phase.ids = value(step, static_cast<NodeId>(i), values);
  if (step.graph.outputs.size() != 1)
    bad_input("the model has {} outputs: a package needs one, the logits",
              step.graph.outputs.size());
  const NodeId logits = step.graph.outputs[0].node;
  const Layout layout = layout_of(step.graph, logits);
  const Dim others = phase.rows == Rows::all && max_tokens > 1 ? Dim(Symbol::T) - 1 : Dim(0);
  if (layout.placement != Placement::contiguous || layout.offset != others * Dim(program_.vocab))
    bad_input("the logits are a view that moves elements; let the model return them as they are");
  phase.logits = value(step, storage_of(step.graph, logits), values);
  return phase;
}

}  // namespace ac
