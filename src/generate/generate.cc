#include "generate/generate.h"

#include <algorithm>
#include <cstring>

#include "base/elements.h"
#include "base/error.h"
#include "generate/counts.h"
#include "ir/weights.h"
#include "program/program.h"

namespace ac {

int Generated::refer(const Buffer& buffer) {
  const auto known = std::find(buffers.begin(), buffers.end(), buffer);
  if (known != buffers.end()) return static_cast<int>(known - buffers.begin());
  buffers.push_back(buffer);
  return static_cast<int>(buffers.size()) - 1;
}

Buffer buffer_of(const StepGraph& step, NodeId value, std::size_t part) {
  const Node& whole = step.graph[value];
  const Node node = whole.op == Op::weight ? parts_of(whole).at(part) : whole;
  Buffer buffer{.dtype = node.type.dtype};
  buffer.bytes =
      count_of(product(node.type.shape) * Dim(static_cast<std::int64_t>(bytes_of(buffer.dtype))),
               describe(step.graph, value));
  if (node.op == Op::weight) {
    buffer.role = Buffer::Role::weight;
    buffer.name = buffer.key = node.text("key"), buffer.store = node.text("store");
    for (const Dim& size : node.type.shape) buffer.shape.push_back(size.constant());
    buffer.in_file = in_file(node).value_or(PartInFile{});
  } else if (node.op == Op::input && node.text("name") == "ids") {
    buffer.role = Buffer::Role::ids, buffer.name = "ids";
  } else {
    buffer.role = node.op == Op::constant ? Buffer::Role::constant : Buffer::Role::scratch;
    buffer.node = value;
  }
  return buffer;
}

std::optional<std::vector<std::byte>> contents_of(const StepGraph& step, const Buffer& buffer,
                                                  std::int64_t positions) {
  if (buffer.role == Buffer::Role::constant) {
    const TensorType& type = step.graph.type(buffer.node);
    std::vector<double> elements = step.graph[buffer.node].data();
    const auto count = static_cast<std::size_t>(product(type.shape).constant());
    if (elements.size() == 1) elements.resize(count, elements[0]);
    std::vector<std::byte> bytes(count * bytes_of(type.dtype));
    store_elements(type.dtype, elements, bytes.data());
    return bytes;
  }
  if (buffer.role == Buffer::Role::rope_table) {
    const std::vector<double>& data = step.graph[buffer.node].data();
    const std::vector<float> table =
        rope_table({data.begin(), data.end()}, buffer.scale, positions);
    const auto bytes = std::as_bytes(std::span(table));
    return std::vector(bytes.begin(), bytes.end());
  }
  return std::nullopt;
}

}  // namespace ac
