#include "reference/stored_weight.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/elements.h"
#include "base/error.h"
#include "base/half.h"
#include "base/text.h"

namespace ac {
namespace {

constexpr std::int64_t kBlock = 256;  // elements converted at a time, through the first-level cache

std::uint16_t load_u16(const std::byte* from) {
  std::uint16_t value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Every float format is exact in a float.
void widen(DType dtype, const std::byte* from, std::int64_t count, float* out) {
  if (dtype == DType::f32) {
    std::memcpy(out, from, static_cast<std::size_t>(count) * sizeof(float));
  } else if (dtype == DType::f16) {
    for (std::int64_t i = 0; i < count; ++i) out[i] = half_to_float(load_u16(from + 2 * i));
  } else {
    for (std::int64_t i = 0; i < count; ++i)
      out[i] = std::bit_cast<float>(std::uint32_t{load_u16(from + 2 * i)} << 16);
  }
}

}  // namespace

void StoredWeight::read(std::int64_t first, std::int64_t count, double* out) const {
  if (format_.is_plain()) return read_part(views_[0], dtype_, first, count, out);
  const auto part = [&](std::size_t i, std::int64_t from, std::int64_t some, double* to) {
    read_part(views_[i], format_.parts[i].dtype, from, some, to);
  };
  format_.read(shape_, first, count, part, out);
}

void StoredWeight::read_part(const WeightView& view, DType to, std::int64_t first,
                             std::int64_t count, double* out) const {
  if (view.elements) {
    std::copy_n(view.elements + first, count, out);
    return;
  }
  const std::byte* from = view.data + static_cast<std::size_t>(first) * bytes_of(view.dtype);
  if (!is_float(view.dtype))
    return load_elements(view.dtype, from, {out, static_cast<std::size_t>(count)});
  const bool narrower = to != view.dtype && to != DType::f32;
  float block[kBlock];
  for (std::int64_t at = 0; at < count; at += kBlock) {
    const std::int64_t size = std::min(kBlock, count - at);
    widen(view.dtype, from + static_cast<std::size_t>(at) * bytes_of(view.dtype), size, block);
    if (narrower)
      for (std::int64_t i = 0; i < size; ++i) {
        const float stored = block[i];
        block[i] = to == DType::f16 ? round_to_half(stored) : round_to_bfloat(stored);
        if (std::isinf(block[i]) && !std::isinf(stored))
          bad_input("the weight {} has the element {}, which {} cannot hold", quote(name_), stored,
                    torch_name(to));
      }
    for (std::int64_t i = 0; i < size; ++i) out[at + i] = block[i];
  }
}

Value StoredWeight::whole() const {
  Value value{dtype_, shape_, {}};
  value.data.resize(static_cast<std::size_t>(element_count(value.shape)));
  read(0, static_cast<std::int64_t>(value.data.size()), value.data.data());
  return value;
}

}  // namespace ac
