#include "base/weight_layout.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace ac {
namespace {

using Kind = WeightPart::Kind;
using Words = StoredPart::Words;

constexpr int kSigned = 128;  // makes an int8 a whole number from 0 to 255
constexpr StoredPart kAwqCodes{
    .suffix = ".qweight", .transposed = true, .words = Words::along_rows, .interleaved = true};
constexpr StoredPart kGptqCodes{
    .suffix = ".qweight", .transposed = true, .words = Words::along_columns};
constexpr StoredPart kTransposedScales{.suffix = ".scales", .transposed = true};
constexpr StoredPart zeros_of_words(bool interleaved, int added) {
  return {.suffix = ".qzeros",
          .transposed = true,
          .words = Words::along_rows,
          .interleaved = interleaved,
          .added = added};
}

// In the order of the enumeration.
constexpr WeightLayout kLayouts[] = {
    {FileLayout::fine_grained, "fine_grained", {".weight"}, {".weight_scale_inv"}, {}},
    {FileLayout::compressed,
     "compressed",
     {.suffix = ".weight", .added = kSigned},
     {".weight_scale"},
     {.suffix = ".weight_zero_point", .added = kSigned}},
    {FileLayout::packed,
     "packed",
     {.suffix = ".weight_packed", .words = Words::along_columns},
     {".weight_scale"},
     {.suffix = ".weight_zero_point", .words = Words::along_rows},
     {},
     {".weight_g_idx"}},
    {FileLayout::awq, "awq", kAwqCodes, kTransposedScales, zeros_of_words(true, 0)},
    {FileLayout::gptq,
     "gptq",
     kGptqCodes,
     kTransposedScales,
     zeros_of_words(false, 1),
     {},
     {".g_idx"}},
    {FileLayout::gptq_v2,
     "gptq_v2",
     kGptqCodes,
     kTransposedScales,
     zeros_of_words(false, 0),
     {},
     {".g_idx"}},
    {FileLayout::packed_fp4,
     "packed_fp4",
     {.suffix = ".weight_packed", .words = Words::bytes},
     {".weight_scale"},
     {},
     {.suffix = ".weight_global_scale", .inverse = true}},
    {FileLayout::modelopt,
     "modelopt",
     {.suffix = ".weight", .words = Words::bytes},
     {".weight_scale"},
     {},
     {".weight_scale_2"}},
    {FileLayout::gguf,
     "gguf",
     {.suffix = ".weight.codes", .words = Words::bytes},
     {".weight.scales"},
     {},
     {},
     {},
     {".weight.outer"},
     {.suffix = ".weight.high", .words = Words::bytes}}};

// Rows that are made together of a transposed tensor, whose neighbours are theirs.
constexpr std::size_t kRowsTogether = 64;

// The sizes of a part in elements: codes, not the bytes that hold some of them.
struct Sizes {
  std::size_t rows, columns;
};
Sizes sizes_in(const PartInFile& in_file, std::span<const std::int64_t> shape) {
  AC_ASSERT(shape.size() == 2);
  return {static_cast<std::size_t>(shape[0]),
          static_cast<std::size_t>(shape[1] * in_file.traits_of_part().in_byte)};
}

const StoredPart& stored_of(const PartInFile& in_file) {
  return layout_traits(in_file.layout).part(in_file.traits_of_part().kind);
}

// A part that is made from the file's bytes.
struct Reading {
  StoredPart how;
  WeightPart part;
  Sizes size;
  const std::byte* stored;
  std::size_t element_bytes;
  std::size_t pitch;  // of the part's rows, in its elements

  // Makes rows begin .. end-1.
  template <std::size_t kBits>
  void rows(std::size_t begin, std::size_t end, std::byte* out) const {
    constexpr std::size_t of_word = 32 / kBits;
    const auto in_byte = static_cast<std::size_t>(part.in_byte);
    const std::size_t unit = part.is_whole() ? 1 : element_bytes;
    const bool whole_words = how.words == Words::along_columns && !how.interleaved &&
                             how.added == 0 && size.columns % of_word == 0;
    // Columns that one step makes.
    const std::size_t step = whole_words ? of_word : in_byte;
    const std::size_t together = how.transposed ? kRowsTogether : 1;
    for (std::size_t first = begin; first < end; first += together)
      for (std::size_t column = 0; column < size.columns; column += step)
        for (std::size_t row = first; row < std::min(end, first + together); ++row) {
          std::byte* const to = out + ((row - begin) * pitch + column / in_byte) * unit;
          if (whole_words) {
            std::memcpy(to, place<kBits>(row, column), of_word / in_byte);
          } else if (!part.is_whole()) {
            std::memcpy(to, place<kBits>(row, column), unit);
          } else {
            int byte = whole<kBits>(row, column);
            if (in_byte > 1) byte |= whole<kBits>(row, column + 1) << 4;
            *to = static_cast<std::byte>(byte);
          }
        }
  }

 private:
  template <std::size_t kBits>
  const std::byte* place(std::size_t row, std::size_t column) const {
    constexpr std::size_t of_word = 32 / kBits;
    std::size_t rows = size.rows, columns = size.columns;
    if (how.words == Words::along_rows) row /= of_word, rows = (rows + of_word - 1) / of_word;
    if (how.words == Words::along_columns)
      column /= of_word, columns = (columns + of_word - 1) / of_word;
    return stored + (how.transposed ? column * rows + row : row * columns + column) * element_bytes;
  }
  template <std::size_t kBits>
  int whole(std::size_t row, std::size_t column) const {
    constexpr std::size_t of_word = 32 / kBits;
    const std::byte* const from = place<kBits>(row, column);
    if (how.words == Words::none)
      return static_cast<int>(static_cast<signed char>(*from)) + how.added;
    std::uint32_t word;
    std::memcpy(&word, from, sizeof word);
    std::size_t at = (how.words == Words::along_rows ? row : column) % of_word;
    if (how.interleaved) at = at / 2 + at % 2 * of_word / 2;
    return static_cast<int>(word >> at * kBits & ((1u << kBits) - 1)) + how.added;
  }
};

}  // namespace

const StoredPart& WeightLayout::part(Kind kind) const {
  switch (kind) {
    case Kind::elements:
    case Kind::codes:
      return codes;
    case Kind::scales:
      return scales;
    case Kind::zeros:
      return zeros;
    case Kind::global:
      return global;
    case Kind::groups:
      return groups;
    case Kind::outer:
      return outer;
    case Kind::high:
      return high;
  }
  AC_UNREACHABLE();
}

const WeightLayout& layout_traits(FileLayout layout) {
  return kLayouts[static_cast<std::size_t>(layout)];
}

bool can_store(FileLayout layout, const Format& format) {
  const WeightLayout& traits = layout_traits(layout);
  if (format.listed && traits.groups.suffix.empty()) return false;
  if (layout == FileLayout::gguf)
    return is_whole(format.codes) && format.many_scales() && !format.zeros && !format.global;
  if (format.outer > 0 || format.minima || high_bits_of(format.codes) > 0) return false;
  const bool in_bytes = traits.codes.words == Words::bytes;
  if (in_bytes != is_small_float(format.codes)) return false;
  if (in_bytes) return !format.zeros && (!format.global || !traits.global.suffix.empty());
  if (format.global) return false;
  const bool in_words = traits.codes.words != Words::none;
  // Words are of whole numbers, and codes of less than a byte are in words.
  if (is_whole(format.codes) ? !in_words && bits_of(format.codes) < 8 : in_words) return false;
  return !format.zeros || !traits.zeros.suffix.empty();
}

const WeightLayout* find_layout(std::string_view name) {
  const auto* const found = std::ranges::find(kLayouts, name, &WeightLayout::name);
  return found == std::end(kLayouts) ? nullptr : found;
}

std::vector<std::int64_t> PartInFile::stored_shape(std::span<const std::int64_t> shape) const {
  const StoredPart& stored = stored_of(*this);
  auto [rows, columns] = sizes_in(*this, shape);
  const auto of_word = static_cast<std::size_t>(32 / bits_of(format.codes));
  if (stored.words == Words::along_rows) rows = (rows + of_word - 1) / of_word;
  if (stored.words == Words::along_columns) columns = (columns + of_word - 1) / of_word;
  if (stored.words == Words::bytes) columns = static_cast<std::size_t>(shape[1]);
  if (stored.transposed) std::swap(rows, columns);
  return {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)};
}

DType PartInFile::stored_dtype() const {
  const WeightPart part = traits_of_part();
  if (!part.is_whole()) return part.dtype;
  switch (stored_of(*this).words) {
    case Words::none:
      return DType::i8;
    case Words::bytes:
      return DType::u8;
    case Words::along_rows:
    case Words::along_columns:
      return DType::i32;
  }
  AC_UNREACHABLE();
}

bool PartInFile::is_as_stored(std::span<const std::int64_t> shape) const {
  const StoredPart& stored = stored_of(*this);
  const WeightPart part = traits_of_part();
  if (stored.transposed || stored.inverse) return false;
  if (!part.is_whole() || stored.words == Words::bytes) return true;
  return part.kind == Kind::codes && stored.words == Words::along_columns && shape[1] % 4 == 0;
}

void PartInFile::read(std::span<const std::int64_t> shape, const std::byte* stored,
                      std::size_t element_bytes, std::int64_t begin, std::int64_t end,
                      std::byte* out) const {
  if (stored_of(*this).inverse) {
    float inverse;
    std::memcpy(&inverse, stored, sizeof inverse);
    const float scale = 1 / inverse;
    std::memcpy(out, &scale, sizeof scale);
    return;
  }
  const Reading reading{stored_of(*this), traits_of_part(), sizes_in(*this, shape),
                        stored,           element_bytes,    static_cast<std::size_t>(shape[1])};
  const auto first = static_cast<std::size_t>(begin), last = static_cast<std::size_t>(end);
  if (bits_of(format.codes) == 4)
    reading.rows<4>(first, last, out);
  else
    reading.rows<8>(first, last, out);
}

}  // namespace ac
