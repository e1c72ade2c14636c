#include "ir/weights.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace ac {
namespace {

constexpr const char *kFormat = "format", *kLayout = "layout", *kPart = "part";

std::vector<std::int64_t> sizes_of(const Node& weight) {
  std::vector<std::int64_t> sizes;
  for (const Dim& dim : weight.type.shape) sizes.push_back(dim.constant());
  return sizes;
}

}  // namespace

WeightFormat format_of(const Node& weight) {
  if (!weight.has(kFormat)) return traits({});
  std::optional<WeightFormat> known = find_format(weight.text(kFormat));
  AC_ASSERT(known.has_value());
  return *std::move(known);
}

std::vector<Node> parts_of(const Node& weight) {
  const WeightFormat format = format_of(weight);
  if (format.is_plain()) return {weight};
  std::vector<Node> parts;
  for (const WeightPart& part : format.parts) {
    Node node{Op::weight,
              {},
              {{"key", weight.text(key_of(part.kind))},
               {"store", weight.text("store")},
               {kFormat, format.name},
               {kLayout, weight.text(kLayout)},
               {kPart, static_cast<std::int64_t>(parts.size())}},
              {part.dtype, {}},
              weight.module,
              weight.source};
    for (const std::int64_t size : part.shape(sizes_of(weight))) node.type.shape.push_back(size);
    parts.push_back(std::move(node));
  }
  return parts;
}

std::optional<PartInFile> in_file(const Node& part) {
  if (!part.has(kPart)) return std::nullopt;
  return PartInFile{format_of(part).format, find_layout(part.text(kLayout))->layout,
                    static_cast<std::int32_t>(part.integer(kPart))};
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
  std::optional<WeightFormat> format = traits({});
  if (weight.has(kFormat)) format = find_format(weight.text(kFormat));
  if (!format) return fmt::format("no format is called \"{}\"", weight.text(kFormat));
  const auto check = [&](std::string_view attribute, bool needed) {
    if (needed == weight.has(attribute)) return std::string();
    return fmt::format("the format {} {} \"{}\"", format->name, needed ? "needs" : "has no",
                       attribute);
  };
  const auto has = [&](WeightPart::Kind kind) {
    return std::ranges::find(format->parts, kind, &WeightPart::kind) != format->parts.end();
  };
  using Kind = WeightPart::Kind;
  for (const Kind kind :
       {Kind::scales, Kind::zeros, Kind::global, Kind::groups, Kind::outer, Kind::high})
    if (const std::string why = check(key_of(kind), has(kind)); !why.empty()) return why;
  if (const std::string why = check(kLayout, !format->is_plain()); !why.empty()) return why;
  if (format->is_plain()) return {};
  const WeightLayout* const layout = find_layout(weight.text(kLayout));
  if (!layout) return fmt::format("no layout is called \"{}\"", weight.text(kLayout));
  if (!can_store(layout->layout, format->format))
    return fmt::format("the layout {} cannot store the format {}", layout->name, format->name);
  if (!is_float(weight.type.dtype)) return "a format is for floating-point numbers";
  return why_impossible(format->format, sizes_of(weight));
}

}  // namespace ac
