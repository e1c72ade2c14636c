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
void read_small(const std::byte* block, float* out) {
  const float scale = half(block);
  const float added = kMin ? half(block + 2) : 0;
  const std::byte* at = block + (kMin ? 4 : 2);
  std::uint32_t high = 0;
  if (kHigh) high = load<std::uint32_t>(at), at += 4;
  for (int i = 0; i < 32; ++i) {
    int code = i < 16 ? whole(at[i]) & 15 : whole(at[i - 16]) >> 4;
    if (kHigh) code |= static_cast<int>(high >> i & 1) << 4;
    out[i] = kMin ? scale * static_cast<float>(code) + added
                  : scale * static_cast<float>(code - (kHigh ? 16 : 8));
  }
}

void read_q8_0(const std::byte* block, float* out) {
  const float scale = half(block);
  for (int i = 0; i < 32; ++i)
    out[i] = static_cast<float>(load<std::int8_t>(block + 2 + i)) * scale;
}

// Of 256 elements, from here on. Here 16 groups of 16: 4 bits a scale and a minimum, 2 bits a code.
void read_q2_k(const std::byte* block, float* out) {
  const std::byte *const scales = block, *const codes = block + 16;
  const float d = half(block + 80), dmin = half(block + 82);
  for (int i = 0; i < 256; ++i) {
    const int both = whole(scales[i / 16]);
    const int code = whole(codes[i / 128 * 32 + i % 32]) >> (i / 32 % 4 * 2) & 3;
    const float scale = d * static_cast<float>(both & 15),
                least = dmin * static_cast<float>(both >> 4);
    out[i] = scale * static_cast<float>(code) - least;
  }
}

// 16 groups of 16: 6 bits a scale, 2 bits a code and a third in a mask.
void read_q3_k(const std::byte* block, float* out) {
  const std::byte *const mask = block, *const codes = block + 32, *const scales = block + 96;
  const float d = half(block + 108);
  for (int i = 0; i < 256; ++i) {
    const int group = i / 16;
    const int low = whole(scales[group % 8]) >> (group / 8 * 4) & 15;
    const int high = whole(scales[8 + group % 4]) >> (group / 4 * 2) & 3;
    const float scale = d * static_cast<float>((low | high << 4) - 32);
    int code = whole(codes[i / 128 * 32 + i % 32]) >> (i / 32 % 4 * 2) & 3;
    if ((whole(mask[i % 32]) >> (i / 32) & 1) == 0) code -= 4;
    out[i] = scale * static_cast<float>(code);
  }
}

// 8 groups of 32: 6 bits a scale and a minimum, 4 bits a code, and of Q5_K a fifth.
template <bool kHigh>
void read_q45_k(const std::byte* block, float* out) {
  const float d = half(block), dmin = half(block + 2);
  const std::byte *const packed = block + 4, *const high = block + 16;
  const std::byte* const codes = high + (kHigh ? 32 : 0);
  for (int group = 0; group < 8; ++group) {
    int scale = 0, least = 0;
    if (group < 4) {
      scale = whole(packed[group]) & 63;
      least = whole(packed[group + 4]) & 63;
    } else {
      const int rest = whole(packed[group + 4]);
      scale = (rest & 15) | (whole(packed[group - 4]) >> 2 & 48);
      least = rest >> 4 | (whole(packed[group]) >> 2 & 48);
    }
    const float by = d * static_cast<float>(scale), minus = dmin * static_cast<float>(least);
    for (int i = 0; i < 32; ++i) {
      int code = whole(codes[group / 2 * 32 + i]) >> (group % 2 * 4) & 15;
      if (kHigh) code |= (whole(high[i]) >> group & 1) << 4;
      out[group * 32 + i] = by * static_cast<float>(code) - minus;
    }
  }
}

// 16 groups of 16: 8 bits a scale, 4 and 2 bits a code.
void read_q6_k(const std::byte* block, float* out) {
  const std::byte *const low = block, *const high = block + 128, *const scales = block + 192;
  const float d = half(block + 208);
  for (int i = 0; i < 256; ++i) {
    const int part = i / 128, place = i % 128;
    const int four = whole(low[part * 64 + place % 64]) >> (place / 64 * 4) & 15;
    const int two = whole(high[part * 32 + place % 32]) >> (place / 32 * 2) & 3;
    const float scale = d * static_cast<float>(load<std::int8_t>(scales + i / 16));
    out[i] = scale * static_cast<float>((four | two << 4) - 32);
  }
}

// ---- blocks as parts

// Codes of 4 bits, the first of two in the low bits.
template <class Code>
void pack(std::byte* to, std::size_t count, const Code& code) {
  for (std::size_t i = 0; i < count; i += 2)
    to[i / 2] = static_cast<std::byte>(code(i) | code(i + 1) << 4);
}
void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (to) std::memcpy(to, from, bytes);
}

constexpr Format kGroups4{.codes = Codes::u4, .scale = ScaleType::f16, .columns = 32};
constexpr Format kGroups8{.codes = Codes::u8, .scale = ScaleType::f16, .columns = 32};

void split_q4_0(const std::byte* block, const BlockParts& to) {
  copy(to.scales, block, 2);
  const std::byte* const codes = block + 2;
  if (to.codes)
    pack(to.codes, 32,
         [&](std::size_t i) { return i < 16 ? whole(codes[i]) & 15 : whole(codes[i - 16]) >> 4; });
}

void split_q8_0(const std::byte* block, const BlockParts& to) {
  copy(to.scales, block, 2);
  if (to.codes)
    for (int i = 0; i < 32; ++i) to.codes[i] = block[2 + i] ^ std::byte{0x80};
}

constexpr BlockType kTypes[] = {
    {0, "F32", 1, 4, read_f32},
    {1, "F16", 1, 2, read_f16},
    {2, "Q4_0", 32, 18, read_small<false, false>, kGroups4, split_q4_0},
    {3, "Q4_1", 32, 20, read_small<true, false>},
    {6, "Q5_0", 32, 22, read_small<false, true>},
    {7, "Q5_1", 32, 24, read_small<true, true>},
    {8, "Q8_0", 32, 34, read_q8_0, kGroups8, split_q8_0},
    {9, "Q8_1", 32, 40},
    {10, "Q2_K", 256, 84, read_q2_k},
    {11, "Q3_K", 256, 110, read_q3_k},
    {12, "Q4_K", 256, 144, read_q45_k<false>},
    {13, "Q5_K", 256, 176, read_q45_k<true>},
    {14, "Q6_K", 256, 210, read_q6_k},
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
  const auto part = std::ranges::find(parts.parts, kind, &WeightPart::kind);
  if (part == parts.parts.end()) return 0;
  const std::vector<std::int64_t> shape =
      part->shape(std::array<std::int64_t, 2>{1, static_cast<std::int64_t>(elements)});
  return static_cast<std::size_t>(shape[1]) * bytes_of(part->dtype);
}

const BlockType* find_block_type(std::uint32_t id) {
  const auto* const found = std::ranges::find(kTypes, id, &BlockType::id);
  return found == std::end(kTypes) ? nullptr : found;
}

}  // namespace ac
