#include "base/weight_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace ac {
namespace {

using Kind = WeightPart::Kind;

// How large random codes are: the root mean square, or less, so that normal values of this size do
// not leave the range.
struct CodeTraits {
  Codes codes;
  std::string_view name;
  DType dtype;
  double typical;
};
constexpr CodeTraits kCodes[] = {
    {Codes::e4m3, "e4m3", DType::f8e4m3, 64}, {Codes::u8, "u8", DType::u8, 64},
    {Codes::u4, "u4", DType::u8, 4},          {Codes::e2m1, "e2m1", DType::u8, 3},
    {Codes::u5, "u5", DType::u8, 8},          {Codes::u6, "u6", DType::u8, 16}};
// By code.
constexpr double kE2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};
// How large random scales of a byte are, where there is a further one.
constexpr double kScales = 16;

const CodeTraits& traits_of(Codes codes) {
  const auto* const found = std::ranges::find(kCodes, codes, &CodeTraits::codes);
  AC_ASSERT(found != std::end(kCodes));
  return *found;
}

// "row": a scale a row; "all": one; "g32": one for 32 elements of a row; "128x128".
std::string name_of_blocks(const Format& format) {
  if (format.rows == 1 && format.columns == 0) return "row";
  if (format.rows == 0 && format.columns == 0) return "all";
  if (format.rows == 1) return fmt::format("g{}", format.columns);
  return fmt::format("{}x{}", format.rows, format.columns);
}

bool read_int(std::string_view text, int& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value > 0;
}

bool read_blocks(std::string_view text, Format& format) {
  const std::size_t by = text.find('x');
  if (text == "row") return true;
  if (text == "all") return format.rows = 0, true;
  if (text.starts_with('g')) return read_int(text.substr(1), format.columns);
  return by != text.npos && read_int(text.substr(0, by), format.rows) &&
         read_int(text.substr(by + 1), format.columns);
}

std::string name_of(const Format& format) {
  if (format.is_plain()) return "plain";
  const DType scale = dtype_of(format.scale);
  return fmt::format("{}_{}{}{}{}{}", traits_of(format.codes).name, name_of_blocks(format),
                     scale == DType::f32 ? "" : fmt::format("_{}", short_name(scale)),
                     format.outer > 0 ? fmt::format("_in{}", format.outer) : "",
                     format.zeros    ? "_zeros"
                     : format.global ? "_global"
                     : format.minima ? "_minima"
                                     : "",
                     format.listed ? "_listed" : "");
}

}  // namespace

DType dtype_of(ScaleType type) {
  switch (type) {
    case ScaleType::f32:
      return DType::f32;
    case ScaleType::f16:
      return DType::f16;
    case ScaleType::bf16:
      return DType::bf16;
    case ScaleType::e4m3:
      return DType::f8e4m3;
    case ScaleType::e8m0:
      return DType::f8e8m0;
    case ScaleType::i8:
      return DType::i8;
  }
  AC_UNREACHABLE();
}

std::string_view key_of(Kind kind) {
  switch (kind) {
    case Kind::elements:
    case Kind::codes:
      return "key";
    case Kind::scales:
      return "scales";
    case Kind::zeros:
      return "zeros";
    case Kind::global:
      return "global";
    case Kind::groups:
      return "groups";
    case Kind::outer:
      return "outer";
    case Kind::high:
      return "high";
  }
  AC_UNREACHABLE();
}

std::vector<std::int64_t> WeightPart::shape(std::span<const std::int64_t> of_matrix) const {
  if (kind == Kind::elements) return {of_matrix.begin(), of_matrix.end()};
  AC_ASSERT(of_matrix.size() == 2);
  const auto parts = [](std::int64_t size, std::int64_t by) {
    return by > 0 ? (size + by - 1) / by : 1;
  };
  return {parts(of_matrix[0], rows), parts(of_matrix[1], columns) * each / in_byte};
}

std::optional<std::size_t> WeightFormat::index_of(Kind kind) const {
  const auto found = std::ranges::find(parts, kind, &WeightPart::kind);
  if (found == parts.end()) return std::nullopt;
  return static_cast<std::size_t>(found - parts.begin());
}

std::int64_t WeightFormat::bytes(std::span<const std::int64_t> shape, DType dtype) const {
  std::int64_t sum = 0;
  for (const WeightPart& part : parts) {
    auto size = static_cast<std::int64_t>(bytes_of(is_plain() ? dtype : part.dtype));
    for (const std::int64_t of_axis : part.shape(shape)) size *= of_axis;
    sum += size;
  }
  return sum;
}

void WeightFormat::read(std::span<const std::int64_t> shape, std::int64_t first, std::int64_t count,
                        const ReadPart& read_part, double* out) const {
  if (is_plain()) return read_part(0, first, count, out);
  const std::int64_t columns = shape[1];
  const std::int64_t codes_in_row = parts[0].shape(shape)[1];
  const std::int64_t groups = parts[1].shape(shape)[1];
  std::vector<double> codes(static_cast<std::size_t>(codes_in_row)),
      scale(static_cast<std::size_t>(groups)), zero(scale.size(), format.usual_zero());
  const auto each = static_cast<std::size_t>(format.values_each());
  const int high_bits = high_bits_of(format.codes);
  const std::int64_t high_in_row = high_bits > 0 ? parts.back().shape(shape)[1] : 0;
  std::vector<double> high(static_cast<std::size_t>(high_in_row));
  const std::int64_t outer_in_row = format.outer > 0 ? parts[2].shape(shape)[1] : 0;
  std::vector<double> outer(static_cast<std::size_t>(outer_in_row));
  double global = 1;
  if (format.global) read_part(2, 0, 1, &global);
  std::vector<double> listed(format.listed ? static_cast<std::size_t>(columns) : 0),
      numbers(static_cast<std::size_t>(columns + columns % 2));
  const bool are_pairs = parts[0].in_byte > 1;
  const double* values = nullptr;  // what codes stand for that are no whole numbers
  if (format.codes == Codes::e2m1) values = kE2m1;
  const std::int64_t of_group = format.columns > 0 ? format.columns : columns;
  if (format.listed) read_part(parts.size() - 1, 0, columns, listed.data());
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t row = (first + done) / columns, begin = (first + done) % columns;
    const std::int64_t end = std::min(columns, begin + count - done);
    const std::int64_t first_group = format.row_of_scales(static_cast<int>(row)) * groups;
    read_part(0, row * codes_in_row, codes_in_row, codes.data());
    read_part(1, first_group, groups, scale.data());
    if (format.zeros) read_part(2, first_group, groups, zero.data());
    if (format.outer > 0) read_part(2, row * outer_in_row, outer_in_row, outer.data());
    if (high_bits > 0) read_part(parts.size() - 1, row * high_in_row, high_in_row, high.data());
    // Numbers of the codes first, of two in a byte both.
    if (are_pairs) {
      for (std::int64_t at = begin / 2; at < (end + 1) / 2; ++at) {
        const int both = static_cast<int>(codes[static_cast<std::size_t>(at)]);
        numbers[static_cast<std::size_t>(2 * at)] = both & 15;
        numbers[static_cast<std::size_t>(2 * at + 1)] = both >> 4;
      }
    } else {
      for (std::int64_t column = begin; column < end; ++column)
        numbers[static_cast<std::size_t>(column)] = codes[static_cast<std::size_t>(column)];
    }
    if (high_bits > 0) {
      for (std::int64_t column = begin; column < end; ++column) {
        const std::int64_t bit = column * high_bits;
        const int byte = static_cast<int>(high[static_cast<std::size_t>(bit / 8)]);
        numbers[static_cast<std::size_t>(column)] += (byte >> bit % 8 & ((1 << high_bits) - 1))
                                                     << 4;
      }
    }
    if (values != nullptr) {
      for (std::int64_t column = begin; column < end; ++column) {
        double& number = numbers[static_cast<std::size_t>(column)];
        number = values[static_cast<std::size_t>(number)];
      }
    }
    // Then as many as share their scales.
    for (std::int64_t column = begin; column < end;) {
      const auto group = static_cast<std::size_t>(
          format.listed ? static_cast<std::int64_t>(listed[static_cast<std::size_t>(column)])
                        : column / of_group);
      std::int64_t stop = format.listed ? column + 1 : (column / of_group + 1) * of_group;
      if (format.outer > 0) stop = std::min(stop, (column / format.outer + 1) * format.outer);
      stop = std::min(stop, end);
      const auto in_units = [&](std::size_t which) {
        const double value = scale[group * each + which];
        if (format.outer == 0) return value * global;
        return value * outer[static_cast<std::size_t>(column / format.outer) * each + which];
      };
      const double times = in_units(0), less = format.minima ? in_units(1) : zero[group];
      const double* const from = numbers.data() + column;
      double* const to = out + done;
      const std::int64_t count_now = stop - column;
      if (format.minima)
        for (std::int64_t i = 0; i < count_now; ++i) to[i] = from[i] * times - less;
      else
        for (std::int64_t i = 0; i < count_now; ++i) to[i] = (from[i] - less) * times;
      column = stop, done += count_now;
    }
  }
}

double WeightFormat::typical(const WeightPart& part, std::int64_t columns, int which) const {
  const double element = 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(columns, 1)));
  if (which == 1 && part.kind == (format.outer > 0 ? Kind::outer : Kind::scales))
    return typical(part, columns) * middle_of(format.codes);
  switch (part.kind) {
    case Kind::elements:
      return element;
    case Kind::codes:
    case Kind::high:
      return traits_of(format.codes).typical;
    case Kind::scales:
      return format.global || format.outer > 0 ? kScales
                                               : element / traits_of(format.codes).typical;
    case Kind::outer:
    case Kind::global:
      return element / (traits_of(format.codes).typical * kScales);
    case Kind::groups:
      return 0;
    case Kind::zeros:
      return format.usual_zero();
  }
  AC_UNREACHABLE();
}

WeightFormat traits(const Format& format) {
  if (format.is_plain()) return {format, "plain", {{}}};
  const CodeTraits& codes = traits_of(format.codes);
  const int bits = bits_of(format.codes);
  WeightFormat made{format, name_of(format), {}};
  made.parts = {{.kind = Kind::codes, .dtype = codes.dtype, .in_byte = 8 / bits, .most = 255},
                {.kind = Kind::scales,
                 .dtype = dtype_of(format.scale),
                 .rows = format.rows,
                 .columns = format.columns,
                 .each = format.values_each()}};
  // A zero point can be one above the largest code: of GPTQ, it is stored minus one.
  if (format.zeros)
    made.parts.push_back({.kind = Kind::zeros,
                          .dtype = DType::u8,
                          .rows = format.rows,
                          .columns = format.columns,
                          .most = std::min(2.0 * middle_of(format.codes), 255.0)});
  if (format.global)
    made.parts.push_back({.kind = Kind::global, .dtype = DType::f32, .rows = 0, .columns = 0});
  if (format.outer > 0)
    made.parts.push_back({.kind = Kind::outer,
                          .dtype = DType::f16,
                          .columns = format.outer,
                          .each = format.values_each()});
  if (const int high = high_bits_of(format.codes); high > 0)
    made.parts.push_back(
        {.kind = Kind::high, .dtype = DType::u8, .in_byte = 8 / high, .most = 255});
  if (format.listed)
    made.parts.push_back({.kind = Kind::groups, .dtype = DType::i32, .rows = 0, .columns = 1});
  return made;
}

std::optional<WeightFormat> find_format(std::string_view name) {
  if (name == "plain") return traits({});
  std::vector<std::string_view> words;
  for (std::string_view rest = name; !rest.empty();) {
    words.push_back(rest.substr(0, rest.find('_')));
    rest.remove_prefix(std::min(rest.size(), words.back().size() + 1));
  }
  if (words.size() < 2) return std::nullopt;
  Format format;
  for (const CodeTraits& codes : kCodes)
    if (codes.name == words[0]) format.codes = codes.codes;
  if (format.is_plain() || !read_blocks(words[1], format)) return std::nullopt;
  for (const ScaleType type :
       {ScaleType::f16, ScaleType::bf16, ScaleType::e4m3, ScaleType::e8m0, ScaleType::i8})
    if (words.size() > 2 && words[2] == short_name(dtype_of(type))) format.scale = type;
  for (const std::string_view word : words)
    if (word.starts_with("in") && !read_int(word.substr(2), format.outer)) return std::nullopt;
  format.listed = words.back() == "listed";
  if (format.listed) words.pop_back();
  format.zeros = words.back() == "zeros";
  format.global = words.back() == "global";
  format.minima = words.back() == "minima";
  // What is said twice, or in another order, is no name.
  if (name_of(format) != name) return std::nullopt;
  if ((format.zeros || format.minima) && !is_whole(format.codes)) return std::nullopt;
  // Whole scales are multiples of something.
  if ((format.scale == ScaleType::i8) != (format.outer > 0)) return std::nullopt;
  if (format.outer > 0 && !format.has_whole_outer()) return std::nullopt;
  if (format.listed && high_bits_of(format.codes) > 0) return std::nullopt;
  return traits(format);
}

std::string why_impossible(const Format& format, std::span<const std::int64_t> shape) {
  if (format.is_plain()) return {};
  if (shape.size() != 2) return "a format is for matrices";
  if (shape[1] * bits_of(format.codes) % 8 != 0)
    return fmt::format("rows of {} codes are no whole bytes", shape[1]);
  if (shape[1] * high_bits_of(format.codes) % 8 != 0)
    return fmt::format("the high bits of rows of {} codes are no whole bytes", shape[1]);
  if (format.outer > 0 && shape[1] % format.outer != 0)
    return fmt::format("rows of {} have no whole outer scales of {}", shape[1], format.outer);
  if (format.listed && (format.rows != 1 || format.columns == 0))
    return "columns are listed of groups of a row alone";
  return {};
}

}  // namespace ac
