#include "gguf/gguf_blocks.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/half.h"

namespace ac {
namespace {

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
float half(const std::byte* from) { return half_to_float(load<std::uint16_t>(from)); }
int whole(std::byte byte) { return std::to_integer<int>(byte); }

void read_f32(const std::byte* block, float* out) { *out = load<float>(block); }
void read_f16(const std::byte* block, float* out) { *out = half(block); }
void read_bf16(const std::byte* block, float* out) {
  const std::uint32_t bits = static_cast<std::uint32_t>(load<std::uint16_t>(block)) << 16;
  std::memcpy(out, &bits, sizeof bits);
}

// Of 32 elements: a scale, with kMin what is added, with kHigh a fifth bit of each code, and 4 bits
// of each. The low halves of bytes are the first 16.
template <bool kMin, bool kHigh>
struct Small {
  const std::byte* block;

  const std::byte* high() const { return block + (kMin ? 4 : 2); }
  int code(std::size_t i) const {
    const std::byte* const at = high() + (kHigh ? 4 : 0);
    const int low = i < 16 ? whole(at[i]) & 15 : whole(at[i - 16]) >> 4;
    return kHigh ? low | static_cast<int>(load<std::uint32_t>(high()) >> i & 1) << 4 : low;
  }
};

template <bool kMin, bool kHigh>
void read_small(const std::byte* block, float* out) {
  const Small<kMin, kHigh> from{block};
  const float scale = half(block);
  const float added = kMin ? half(block + 2) : 0;
  for (std::size_t i = 0; i < 32; ++i)
    out[i] = kMin ? scale * static_cast<float>(from.code(i)) + added
                  : scale * static_cast<float>(from.code(i) - (kHigh ? 16 : 8));
}

void read_q8_0(const std::byte* block, float* out) {
  const float scale = half(block);
  for (int i = 0; i < 32; ++i)
    out[i] = static_cast<float>(load<std::int8_t>(block + 2 + i)) * scale;
}

// Of 256 elements, from here on: groups whose scales are multiples of d, and, where there are any,
// whose minima are multiples of dmin.
struct Super {
  bool with_codes = true;  // or without
  std::array<int, 256> codes;
  std::array<int, 16> scales, minima;
  const std::byte *d, *dmin = nullptr;

  std::size_t wanted_codes() const { return with_codes ? codes.size() : 0; }
};

// 16 groups of 16: 4 bits a scale and a minimum, 2 bits a code.
void take_q2_k(const std::byte* block, Super& to) {
  const std::byte *const scales = block, *const codes = block + 16;
  to.d = block + 80, to.dmin = block + 82;
  for (std::size_t i = 0; i < to.wanted_codes(); ++i)
    to.codes[i] = whole(codes[i / 128 * 32 + i % 32]) >> (i / 32 % 4 * 2) & 3;
  for (std::size_t group = 0; group < 16; ++group)
    to.scales[group] = whole(scales[group]) & 15, to.minima[group] = whole(scales[group]) >> 4;
}

// 16 groups of 16: 6 bits a scale, 2 bits a code and a third in a mask.
void take_q3_k(const std::byte* block, Super& to) {
  const std::byte *const mask = block, *const codes = block + 32, *const scales = block + 96;
  to.d = block + 108;
  for (std::size_t i = 0; i < to.wanted_codes(); ++i)
    to.codes[i] = (whole(codes[i / 128 * 32 + i % 32]) >> (i / 32 % 4 * 2) & 3) |
                  (whole(mask[i % 32]) >> (i / 32) & 1) << 2;
  for (std::size_t group = 0; group < 16; ++group) {
    const int low = whole(scales[group % 8]) >> (group / 8 * 4) & 15;
    const int high = whole(scales[8 + group % 4]) >> (group / 4 * 2) & 3;
    to.scales[group] = (low | high << 4) - 32;
  }
}

// 8 groups of 32: 6 bits a scale and a minimum, 4 bits a code, and of Q5_K a fifth.
template <bool kHigh>
void take_q45_k(const std::byte* block, Super& to) {
  const std::byte *const packed = block + 4, *const high = block + 16;
  const std::byte* const codes = high + (kHigh ? 32 : 0);
  to.d = block, to.dmin = block + 2;
  for (std::size_t group = 0; group < 8; ++group) {
    if (group < 4) {
      to.scales[group] = whole(packed[group]) & 63;
      to.minima[group] = whole(packed[group + 4]) & 63;
    } else {
      const int rest = whole(packed[group + 4]);
      to.scales[group] = (rest & 15) | (whole(packed[group - 4]) >> 2 & 48);
      to.minima[group] = rest >> 4 | (whole(packed[group]) >> 2 & 48);
    }
    for (std::size_t i = 0; i < to.wanted_codes() / 8; ++i) {
      const int low = whole(codes[group / 2 * 32 + i]) >> (group % 2 * 4) & 15;
      to.codes[group * 32 + i] = kHigh ? low | (whole(high[i]) >> group & 1) << 4 : low;
    }
  }
}

// 16 groups of 16: 8 bits a scale, 4 and 2 bits a code.
void take_q6_k(const std::byte* block, Super& to) {
  const std::byte *const low = block, *const high = block + 128, *const scales = block + 192;
  to.d = block + 208;
  for (std::size_t i = 0; i < to.wanted_codes(); ++i) {
    const std::size_t part = i / 128, place = i % 128;
    const int four = whole(low[part * 64 + place % 64]) >> (place / 64 * 4) & 15;
    const int two = whole(high[part * 32 + place % 32]) >> (place / 32 * 2) & 3;
    to.codes[i] = four | two << 4;
  }
  for (std::size_t group = 0; group < 16; ++group)
    to.scales[group] = load<std::int8_t>(scales + group);
}

// ---- blocks as parts

constexpr Format kFour{.codes = Codes::u4, .scale = ScaleType::f16, .columns = 32};
constexpr Format kFive{.codes = Codes::u5, .scale = ScaleType::f16, .columns = 32};
constexpr Format kEight{.codes = Codes::u8, .scale = ScaleType::f16, .columns = 32};
constexpr Format with_minima(Format format) {
  format.minima = true;
  return format;
}
constexpr Format in_super(Codes codes, int columns) {
  return {.codes = codes, .scale = ScaleType::i8, .columns = columns, .outer = 256};
}

// Codes that count from `middle`, counted from the format's zero point: bits first_bit and
// following.
template <Format format, unsigned bits, unsigned first_bit, class Code>
void pack(std::byte* to, std::size_t count, int middle, const Code& code_at) {
  constexpr unsigned in_byte = 8 / bits, mask = (1u << bits) - 1;
  for (std::size_t i = 0; i < count; i += in_byte) {
    unsigned byte = 0;
    for (unsigned j = 0; j < in_byte; ++j) {
      const auto code = static_cast<unsigned>(code_at(i + j) - middle + format.usual_zero());
      byte |= (code >> first_bit & mask) << j * bits;
    }
    *to++ = static_cast<std::byte>(byte);
  }
}
template <Format format, class Code>
void pack(const BlockParts& to, std::size_t count, int middle, const Code& code_at) {
  constexpr unsigned low = bits_of(format.codes), high = high_bits_of(format.codes);
  if (to.codes) pack<format, low, 0>(to.codes, count, middle, code_at);
  if constexpr (high > 0)
    if (to.high) pack<format, high, low>(to.high, count, middle, code_at);
}

template <bool kMin, bool kHigh, Format format>
void split_small(const std::byte* block, const BlockParts& to) {
  const Small<kMin, kHigh> from{block};
  if (to.scales) std::memcpy(to.scales, block, kMin ? 4 : 2);
  // What is added is the minimum with the other sign.
  if (to.scales && kMin) to.scales[3] ^= std::byte{0x80};
  pack<format>(to, 32, kMin ? 0 : kHigh ? 16 : 8, [&](std::size_t i) { return from.code(i); });
}

void split_q8_0(const std::byte* block, const BlockParts& to) {
  if (to.scales) std::memcpy(to.scales, block, 2);
  pack<kEight>(to, 32, 0, [&](std::size_t i) { return int{load<std::int8_t>(block + 2 + i)}; });
}

template <auto take, int middle, Format format>
void read_super(const std::byte* block, float* out) {
  Super from;
  take(block, from);
  const float d = half(from.d), dmin = format.minima ? half(from.dmin) : 0;
  for (std::size_t i = 0; i < 256; ++i) {
    const std::size_t group = i / format.columns;
    const float scale = d * static_cast<float>(from.scales[group]);
    out[i] = scale * static_cast<float>(from.codes[i] - middle);
    if (format.minima) out[i] -= dmin * static_cast<float>(from.minima[group]);
  }
}

template <auto take, int middle, Format format>
void split_super(const std::byte* block, const BlockParts& to) {
  Super from;
  from.with_codes = to.codes || to.high;
  take(block, from);
  pack<format>(to, 256, middle, [&](std::size_t i) { return from.codes[i]; });
  if (to.outer) {
    std::memcpy(to.outer, from.d, 2);
    if (format.minima) std::memcpy(to.outer + 2, from.dmin, 2);
  }
  if (!to.scales) return;
  std::byte* at = to.scales;
  for (std::size_t group = 0; group < 256 / format.columns; ++group) {
    *at++ = static_cast<std::byte>(from.scales[group]);
    if (format.minima) *at++ = static_cast<std::byte>(from.minima[group]);
  }
}

template <bool kMin, bool kHigh, Format format>
constexpr BlockType small_type(std::uint32_t id, std::string_view name, std::size_t bytes) {
  return {id, name, 32, bytes, read_small<kMin, kHigh>, format, split_small<kMin, kHigh, format>};
}
template <auto take, int middle, Format format>
constexpr BlockType super_type(std::uint32_t id, std::string_view name, std::size_t bytes) {
  return {id,
          name,
          256,
          bytes,
          read_super<take, middle, format>,
          format,
          split_super<take, middle, format>};
}

constexpr BlockType kTypes[] = {
    {0, "F32", 1, 4, read_f32},
    {1, "F16", 1, 2, read_f16},
    small_type<false, false, kFour>(2, "Q4_0", 18),
    small_type<true, false, with_minima(kFour)>(3, "Q4_1", 20),
    small_type<false, true, kFive>(6, "Q5_0", 22),
    small_type<true, true, with_minima(kFive)>(7, "Q5_1", 24),
    {8, "Q8_0", 32, 34, read_q8_0, kEight, split_q8_0},
    {9, "Q8_1", 32, 40},
    super_type<take_q2_k, 0, with_minima(in_super(Codes::u4, 16))>(10, "Q2_K", 84),
    super_type<take_q3_k, 4, in_super(Codes::u4, 16)>(11, "Q3_K", 110),
    super_type<take_q45_k<false>, 0, with_minima(in_super(Codes::u4, 32))>(12, "Q4_K", 144),
    super_type<take_q45_k<true>, 0, with_minima(in_super(Codes::u5, 32))>(13, "Q5_K", 176),
    super_type<take_q6_k, 32, in_super(Codes::u6, 16)>(14, "Q6_K", 210),
    {15, "Q8_K", 256, 292},
    {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98},
    {19, "IQ1_S", 256, 50},
    {20, "IQ4_NL", 32, 18},
    {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},
    {23, "IQ4_XS", 256, 136},
    {24, "I8", 1, 1},
    {25, "I16", 1, 2},
    {26, "I32", 1, 4},
    {27, "I64", 1, 8},
    {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56},
    {30, "BF16", 1, 2, read_bf16},
    {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},
    {39, "MXFP4", 32, 17},
    {40, "NVFP4", 64, 36},
    {41, "Q1_0", 128, 18},
};

}  // namespace

std::size_t BlockType::part_bytes(WeightPart::Kind kind) const {
  const WeightFormat parts = traits(format);
  const std::optional<std::size_t> index = parts.index_of(kind);
  if (!index) return 0;
  const WeightPart& part = parts.parts[*index];
  const std::vector<std::int64_t> shape =
      part.shape(std::array<std::int64_t, 2>{1, static_cast<std::int64_t>(elements)});
  return static_cast<std::size_t>(shape[1]) * bytes_of(part.dtype);
}

const BlockType* find_block_type(std::uint32_t id) {
  const auto* const found = std::ranges::find(kTypes, id, &BlockType::id);
  return found == std::end(kTypes) ? nullptr : found;
}

}  // namespace ac
