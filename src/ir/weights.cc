#include "ir/weights.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace ac {
namespace {

constexpr const char* kFormat = "format";

std::vector<std::int64_t> sizes_of(const Node& weight) {
  std::vector<std::int64_t> sizes;
  for (const Dim& dim : weight.type.shape) sizes.push_back(dim.constant());
  return sizes;
}

}  // namespace

const WeightFormat& format_of(const Node& weight) {
  if (!weight.has(kFormat)) return traits(Format::plain);
  const WeightFormat* const known = find_format(weight.text(kFormat));
  AC_ASSERT(known != nullptr);
  return *known;
}

std::vector<Node> parts_of(const Node& weight) {
  const WeightFormat& format = format_of(weight);
  if (format.is_plain()) return {weight};
  std::vector<Node> parts;
  for (const WeightPart& part : format.parts) {
    Node node{Op::weight,
              {},
              {{"key", weight.text(part.key)}, {"store", weight.text("store")}},
              {part.dtype, {}},
              weight.module,
              weight.source};
    for (const std::int64_t size : part.shape(sizes_of(weight))) node.type.shape.push_back(size);
    parts.push_back(std::move(node));
  }
  return parts;
}

std::int64_t stored_bytes(const Node& weight) {
  return format_of(weight).bytes(sizes_of(weight), weight.type.dtype);
}

std::string why_no_weight(const Node& weight) {
  if (is_code(weight.type.dtype))
    return fmt::format("nothing is computed in {}: it needs a format",
                       short_name(weight.type.dtype));
  for (const Dim& dim : weight.type.shape)
    if (!dim.is_constant() || dim.constant() < 1)
      return "a weight of shape " + to_string(weight.type.shape);
  const WeightFormat* format = &traits(Format::plain);
  if (weight.has(kFormat)) format = find_format(weight.text(kFormat));
  if (!format) return fmt::format("no format is called \"{}\"", weight.text(kFormat));
  for (const WeightFormat& other : weight_formats())
    for (const WeightPart& part : other.parts) {
      const bool needed = std::ranges::any_of(
          format->parts, [&](const WeightPart& own) { return std::string(own.key) == part.key; });
      if (needed != weight.has(part.key))
        return fmt::format("the format {} {} \"{}\"", format->name, needed ? "needs" : "has no",
                           part.key);
    }
  if (format->is_plain()) return {};
  if (weight.type.shape.size() != 2) return "a format is for matrices";
  if (!is_float(weight.type.dtype)) return "a format is for floating-point numbers";
  return {};
}

}  // namespace ac
