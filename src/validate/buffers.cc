#include "validate/buffers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace ac::validate {
namespace {

constexpr std::size_t kCanary = 1024;
constexpr std::size_t kAlignment = 256;  // the buffer starts at an odd multiple of 16 within it

}  // namespace

void fill_poison(std::span<std::byte> bytes, int poison) {
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(kPoisons[poison][i % 2]);
}

std::vector<double> load_elements(const TensorSpec& spec, std::span<const std::byte> bytes) {
  std::vector<double> elements(static_cast<std::size_t>(spec.count()));
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const std::byte* from = bytes.data() + i * bytes_of(spec.dtype);
    // Poison is no bool: it must not pass for one.
    elements[i] =
        spec.dtype == DType::boolean ? static_cast<double>(*from) : load_element(spec.dtype, from);
  }
  return elements;
}

BufferSet::BufferSet(const std::vector<TensorSpec>& specs, unsigned variation)
    : specs_(specs), poison_(static_cast<int>(variation % 2)) {
  unsigned offset = variation;
  for (const TensorSpec& spec : specs) {
    Allocation& a = allocations_.emplace_back();
    a.bytes.resize(kCanary + spec.bytes() + kCanary + 2 * kAlignment);
    const auto address = reinterpret_cast<std::uintptr_t>(a.bytes.data()) + kCanary;
    a.start = kCanary + (kAlignment - address % kAlignment) % kAlignment;
    a.start += 16 * (2 * (offset++ % 8) + 1);
    fill_poison(a.bytes, poison_);
    buffers_.push_back(std::span(a.bytes).subspan(a.start, spec.bytes()));
    before_.emplace_back();
  }
}

void BufferSet::load(const Elements& elements) {
  for (std::size_t t = 0; t < specs_.size(); ++t) {
    const TensorSpec& spec = specs_[t];
    const std::span<std::byte> bytes = buffers_[t];
    if (spec.role == Role::output || (spec.role == Role::workspace && !loaded_))
      fill_poison(bytes, poison_);
    if (spec.role == Role::counter && !loaded_) std::ranges::fill(bytes, std::byte{0});
    if (spec.role == Role::input || spec.role == Role::weight || spec.role == Role::state) {
      AC_ASSERT(elements[t].size() == static_cast<std::size_t>(spec.count()));
      fill_poison(bytes, poison_);
      for (std::size_t i = 0; i < elements[t].size(); ++i)
        if (spec.role != Role::state || !std::isnan(elements[t][i]))
          store_element(spec.dtype, elements[t][i], bytes.data() + i * bytes_of(spec.dtype));
    }
    before_[t].assign(bytes.begin(), bytes.end());
  }
  loaded_ = true;
}

std::optional<BufferSet::Damage> BufferSet::damage_of(std::size_t t) const {
  const TensorSpec& spec = specs_[t];
  const Allocation& a = allocations_[t];
  const std::size_t end = a.start + spec.bytes();
  for (std::size_t i = 0; i < a.bytes.size(); ++i) {
    if (i == a.start) i = end;
    if (i >= a.bytes.size()) break;
    // Poison was laid over the whole allocation, and again from the buffer's start, which is even.
    if (a.bytes[i] != static_cast<std::byte>(kPoisons[poison_][i % 2]))
      return Damage{t, -1,
                    i < a.start ? fmt::format("wrote {} bytes before the start", a.start - i)
                                : fmt::format("wrote {} bytes past the end", i - end + 1)};
  }
  const std::size_t size = bytes_of(spec.dtype);
  for (std::size_t i = 0; i < static_cast<std::size_t>(spec.count()); ++i) {
    const std::byte* now = buffers_[t].data() + i * size;
    const auto element = static_cast<std::int64_t>(i);
    const bool unchanged = std::memcmp(now, before_[t].data() + i * size, size) == 0;
    if ((spec.role == Role::input || spec.role == Role::weight) && !unchanged)
      return Damage{t, element, "modified what it may only read"};
    if (spec.role == Role::counter &&
        std::any_of(now, now + size, [](std::byte byte) { return byte != std::byte{0}; }))
      return Damage{t, element, "did not leave a counter at 0"};
  }
  return std::nullopt;
}

std::optional<BufferSet::Damage> BufferSet::damage() const {
  for (std::size_t t = 0; t < specs_.size(); ++t)
    if (auto found = damage_of(t)) return found;
  return std::nullopt;
}

}  // namespace ac::validate
