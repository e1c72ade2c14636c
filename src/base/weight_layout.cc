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
     {.suffix = ".weight_zero_point", .words = Words::along_rows}},
    {FileLayout::awq, "awq", kAwqCodes, kTransposedScales, zeros_of_words(true, 0)},
    {FileLayout::gptq, "gptq", kGptqCodes, kTransposedScales, zeros_of_words(false, 1)},
    {FileLayout::gptq_v2, "gptq_v2", kGptqCodes, kTransposedScales, zeros_of_words(false, 0)}};

// Rows that are made together of a transposed tensor, whose neighbours are theirs.
constexpr std::int64_t kRowsTogether = 64;

// The sizes of a part in elements: codes, not the bytes that hold some of them.
struct Sizes {
  std::int64_t rows, columns;
};
Sizes sizes_in(const PartInFile& in_file, std::span<const std::int64_t> shape) {
  AC_ASSERT(shape.size() == 2);
  return {shape[0], shape[1] * in_file.traits_of_part().in_byte};
}

const StoredPart& stored_of(const PartInFile& in_file) {
  return layout_traits(in_file.layout).part(in_file.traits_of_part().kind);
}

}  // namespace

const StoredPart& WeightLayout::part(Kind kind) const {
  return kind == Kind::scales ? scales : kind == Kind::zeros ? zeros : codes;
}

const WeightLayout& layout_traits(FileLayout layout) {
  return kLayouts[static_cast<std::size_t>(layout)];
}

const WeightLayout* find_layout(std::string_view name) {
  const auto* const found = std::ranges::find(kLayouts, name, &WeightLayout::name);
  return found == std::end(kLayouts) ? nullptr : found;
}

std::vector<std::int64_t> PartInFile::stored_shape(std::span<const std::int64_t> shape) const {
  const StoredPart& stored = stored_of(*this);
  auto [rows, columns] = sizes_in(*this, shape);
  const int of_word = 32 / bits_of(format.codes);
  if (stored.words == Words::along_rows) rows = (rows + of_word - 1) / of_word;
  if (stored.words == Words::along_columns) columns = (columns + of_word - 1) / of_word;
  return stored.transposed ? std::vector{columns, rows} : std::vector{rows, columns};
}

DType PartInFile::stored_dtype() const {
  const WeightPart part = traits_of_part();
  if (!part.is_whole()) return part.dtype;
  return stored_of(*this).words == Words::none ? DType::i8 : DType::i32;
}

bool PartInFile::is_as_stored(std::span<const std::int64_t> shape) const {
  const StoredPart& stored = stored_of(*this);
  const WeightPart part = traits_of_part();
  if (stored.transposed) return false;
  if (!part.is_whole()) return true;
  return part.kind == Kind::codes && stored.words == Words::along_columns && shape[1] % 4 == 0;
}

void PartInFile::read(std::span<const std::int64_t> shape, const std::byte* stored,
                      std::size_t element_bytes, std::int64_t begin, std::int64_t end,
                      std::byte* out) const {
  const StoredPart& how = stored_of(*this);
  const WeightPart part = traits_of_part();
  const Sizes size = sizes_in(*this, shape);
  const int bits = bits_of(format.codes), of_word = 32 / bits, mask = (1 << bits) - 1;
  const bool by_rows = how.words == Words::along_rows,
             by_columns = how.words == Words::along_columns;
  const std::int64_t words_down = by_rows ? (size.rows + of_word - 1) / of_word : size.rows,
                     words_along =
                         by_columns ? (size.columns + of_word - 1) / of_word : size.columns;
  const auto word_at = [&](std::int64_t row, std::int64_t column) {
    const std::int64_t down = by_rows ? row / of_word : row,
                       along = by_columns ? column / of_word : column;
    return stored + (how.transposed ? along * words_down + down : down * words_along + along) *
                        static_cast<std::int64_t>(element_bytes);
  };
  const auto whole_at = [&](std::int64_t row, std::int64_t column) {
    const std::byte* const from = word_at(row, column);
    if (how.words == Words::none)
      return static_cast<int>(static_cast<signed char>(*from)) + how.added;
    std::uint32_t word;
    std::memcpy(&word, from, sizeof word);
    auto place = static_cast<int>((by_rows ? row : column) % of_word);
    if (how.interleaved) place = place / 2 + place % 2 * of_word / 2;
    return static_cast<int>(word >> place * bits & static_cast<unsigned>(mask)) + how.added;
  };
  const std::int64_t pitch = shape[1];
  if (part.is_whole()) std::memset(out, 0, static_cast<std::size_t>((end - begin) * pitch));
  const std::int64_t together = how.transposed ? kRowsTogether : 1;
  for (std::int64_t first = begin; first < end; first += together)
    for (std::int64_t column = 0; column < size.columns; ++column)
      for (std::int64_t row = first; row < std::min(end, first + together); ++row) {
        std::byte* const to = out + (row - begin) * pitch * (part.is_whole() ? 1 : element_bytes);
        if (!part.is_whole())
          std::memcpy(to + column * element_bytes, word_at(row, column), element_bytes);
        else if (part.in_byte > 1)
          to[column / 2] |= static_cast<std::byte>(whole_at(row, column) << 4 * (column % 2));
        else
          to[column] = static_cast<std::byte>(whole_at(row, column));
      }
}

}  // namespace ac
