#include "compile/assemble.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "generate/counts.h"
#include "ir/layout.h"
#include "program/sampling.h"

namespace ac {
namespace {

constexpr std::size_t kConstantAlignment = 256;

Count bytes_of_value(const Node& node) {
  return count_of(product(node.type.shape) *
                  Dim(static_cast<std::int64_t>(bytes_of(node.type.dtype))));
}

std::string name_of(const Node& node, NodeId id) {
  return fmt::format("{} %{}{}{}", info(node.op).name, id, node.module.empty() ? "" : " at ",
                     node.module);
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

std::int32_t Assembler::constant(const Node& node) {
  const std::size_t size = bytes_of(node.type.dtype);
  const auto count = static_cast<std::size_t>(product(node.type.shape).constant());
  std::vector<std::byte> bytes(count * size);
  for (std::size_t i = 0; i < count; ++i)
    store_element(node.type.dtype, node.data()[node.data().size() == 1 ? 0 : i],
                  bytes.data() + i * size);
  const std::string key =
      "constant " + std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto known = shared_.find(key);
  if (known != shared_.end()) return known->second;
  const std::size_t offset =
      (constants_.size() + kConstantAlignment - 1) / kConstantAlignment * kConstantAlignment;
  constants_.resize(offset);
  constants_.insert(constants_.end(), bytes.begin(), bytes.end());
  program_.constant_bytes = static_cast<std::int64_t>(constants_.size());
  return shared(key, {.kind = Buffer::Kind::constant,
                      .name = "constant",
                      .dtype = node.type.dtype,
                      .bytes = static_cast<std::int64_t>(bytes.size()),
                      .offset = static_cast<std::int64_t>(offset)});
}

std::int32_t Assembler::value(const StepGraph& step, NodeId id,
                              std::map<NodeId, std::int32_t>& values) {
  const auto known = values.find(id);
  if (known != values.end()) return known->second;
  const Node& node = step.graph[id];
  switch (node.op) {
    case Op::constant:
      return values[id] = constant(node);
    case Op::weight: {
      Buffer buffer{.kind = Buffer::Kind::weight,
                    .name = node.text("key"),
                    .dtype = node.type.dtype,
                    .bytes = bytes_of_value(node),
                    .store = node.text("store"),
                    .key = node.text("key")};
      for (const Dim& size : node.type.shape) buffer.shape.push_back(size.constant());
      return values[id] = shared(fmt::format("weight {} {}", buffer.store, buffer.key), buffer);
    }
    case Op::input:
      if (node.text("name") != "ids")
        bad_input("the model has an input \"{}\": a package takes token ids only",
                  node.text("name"));
      return values[id] = shared(
                 "ids", {.kind = Buffer::Kind::ids,
                         .name = "ids",
                         .dtype = node.type.dtype,
                         .bytes = Count(0, static_cast<std::int64_t>(bytes_of(node.type.dtype)))});
    default:
      return values[id] = add({.kind = Buffer::Kind::scratch,
                               .name = name_of(node, id),
                               .dtype = node.type.dtype,
                               .bytes = bytes_of_value(node)});
  }
}

std::int32_t Assembler::buffer_of(const StepGraph& step, const Storage& storage,
                                  std::map<NodeId, std::int32_t>& values, std::int64_t max_tokens) {
  const auto cache = [&](Buffer::Kind kind) {
    const CacheSpec& spec = program_.caches[static_cast<std::size_t>(storage.cache)];
    const bool keys = kind == Buffer::Kind::keys;
    const std::int64_t size = keys ? spec.key_size : spec.value_size;
    const std::string name = fmt::format("{} {}", to_string(kind), storage.cache);
    return shared(name, {.kind = kind,
                         .name = name,
                         .dtype = spec.dtype,
                         .bytes = spec.heads * spec.slots * size *
                                  static_cast<std::int64_t>(bytes_of(spec.dtype)),
                         .cache = storage.cache});
  };
  switch (storage.kind) {
    case Storage::Kind::value:
      return value(step, storage.node, values);
    case Storage::Kind::keys:
      return cache(Buffer::Kind::keys);
    case Storage::Kind::values:
      return cache(Buffer::Kind::values);
    case Storage::Kind::position:
      return shared(
          "position",
          {.kind = Buffer::Kind::position, .name = "position", .dtype = DType::i32, .bytes = 4});
    case Storage::Kind::token:
      return shared(
          "token", {.kind = Buffer::Kind::token, .name = "token", .dtype = DType::i32, .bytes = 4});
    case Storage::Kind::log:
      return shared("log", {.kind = Buffer::Kind::log,
                            .name = "log",
                            .dtype = DType::i32,
                            .bytes = 4 * (program_.max_context + 1)});
    case Storage::Kind::settings:
      return shared("settings", {.kind = Buffer::Kind::settings,
                                 .name = "settings",
                                 .dtype = DType::i64,
                                 .bytes = kSettingsBytes});
    case Storage::Kind::workspace:
      return add({.kind = Buffer::Kind::scratch,
                  .name = "workspace",
                  .dtype = DType::i32,
                  .bytes = storage.bytes});
    case Storage::Kind::counters: {
      // Every launch leaves zeros, so that one buffer does for all.
      const std::int32_t index = shared(
          "counters", {.kind = Buffer::Kind::counters, .name = "counters", .dtype = DType::i32});
      Count& bytes = program_.buffers[static_cast<std::size_t>(index)].bytes;
      bytes = std::max(bytes.at(1), storage.bytes.at(max_tokens));
      return index;
    }
    case Storage::Kind::rope_table: {
      const Node& node = step.graph[storage.node];
      const std::int32_t source = value(step, storage.node, values);
      const std::int64_t rotary = 2 * product(node.type.shape).constant();
      return shared(fmt::format("rope {} {}", source, storage.scale),
                    {.kind = Buffer::Kind::rope_table,
                     .name = "rope table",
                     .dtype = DType::f32,
                     .bytes = program_.max_context * rotary * 4,
                     .source = source,
                     .scale = storage.scale});
    }
  }
  AC_UNREACHABLE();
}

std::vector<Launch> Assembler::launches(const StepGraph& step, const Generated& made,
                                        std::map<NodeId, std::int32_t>& values,
                                        std::int64_t max_tokens) {
  std::vector<std::int32_t> buffers;
  for (const Storage& storage : made.storages)
    buffers.push_back(buffer_of(step, storage, values, max_tokens));
  std::vector<Launch> launches = made.launches;
  for (Launch& launch : launches) {
    for (Launch::Pointer& pointer : launch.pointers)
      pointer.buffer = buffers[static_cast<std::size_t>(pointer.buffer)];
    for (Launch::Map& map : launch.maps) map.buffer = buffers[static_cast<std::size_t>(map.buffer)];
  }
  return launches;
}

Phase Assembler::phase(const StepGraph& step, std::int64_t max_tokens,
                       const std::vector<Implemented>& parts, const Generated& draw) {
  Phase phase;
  phase.max_tokens = max_tokens;
  std::map<NodeId, std::int32_t> values;
  for (const Implemented& part : parts)
    for (Launch& launch : launches(step, part.made, values, max_tokens)) {
      phase.launches.push_back(std::move(launch));
      phase.notes.push_back(part.note);
    }
  phase.draw = launches(step, draw, values, max_tokens);
  for (std::size_t i = 0; i < step.graph.nodes.size(); ++i)
    if (step.graph.nodes[i].op == Op::input)
      phase.ids = value(step, static_cast<NodeId>(i), values);
  if (step.graph.outputs.size() != 1)
    bad_input("the model has {} outputs: a package needs one, the logits",
              step.graph.outputs.size());
  const NodeId logits = step.graph.outputs[0].node;
  const Layout layout = layout_of(step.graph, logits);
  if (layout.placement != Placement::contiguous || layout.offset != Dim(0))
    bad_input("the logits are a view that moves elements; let the model return them as they are");
  phase.logits = value(step, storage_of(step.graph, logits), values);
  return phase;
}

}  // namespace ac
