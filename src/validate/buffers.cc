#include "validate/buffers.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/elements.h"
#include "base/error.h"

namespace ac::validate {
namespace {

constexpr std::size_t kCanary = 1024;
constexpr std::size_t kAlignment = 256;  // the buffer starts at an odd multiple of 16 within it
constexpr std::size_t kPage = 4096, kWord = 16;

// Calls f(offset in memory, offset in the elements, bytes) for all parts of a tensor.
template <class F>
void for_each_part(const TensorSpec& spec, const F& f) {
  if (spec.repeated_to == 0) return f(std::size_t{0}, std::size_t{0}, spec.bytes());
  std::size_t rows = 1, inner = bytes_of(spec.dtype);
  for (std::size_t axis = 0; axis < spec.shape.size(); ++axis)
    if (axis != spec.repeated_axis)
      (axis < spec.repeated_axis ? rows : inner) *= static_cast<std::size_t>(spec.shape[axis]);
  const std::size_t period = inner * static_cast<std::size_t>(spec.shape[spec.repeated_axis]),
                    whole = inner * static_cast<std::size_t>(spec.repeated_to);
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t at = 0; at < whole; at += period)
      f(row * whole + at, row * period, std::min(period, whole - at));
}

// Poison where a state holds nothing.
void empty_slots(const TensorSpec& spec, const std::vector<double>& elements,
                 std::span<std::byte> bytes, int poison) {
  const std::size_t size = bytes_of(spec.dtype);
  for (std::size_t i = 0; i < elements.size(); ++i) {
    if (!std::isnan(elements[i])) continue;
    for (std::size_t at = i * size; at < (i + 1) * size; ++at)
      bytes[at] = static_cast<std::byte>(kPoisons[poison][at % 2]);
  }
}

}  // namespace

void fill_poison(std::span<std::byte> bytes, int poison) {
  const std::size_t few = std::min<std::size_t>(bytes.size(), 256);
  for (std::size_t i = 0; i < few; ++i) bytes[i] = static_cast<std::byte>(kPoisons[poison][i % 2]);
  // What is there already is copied, and doubles each time.
  for (std::size_t done = few; done < bytes.size();) {
    const std::size_t more = std::min(done, bytes.size() - done);
    std::memcpy(bytes.data() + done, bytes.data(), more);
    done += more;
  }
}

std::vector<double> load_elements(const TensorSpec& spec, std::span<const std::byte> bytes) {
  std::vector<double> elements(static_cast<std::size_t>(spec.count()));
  if (spec.dtype == DType::boolean)  // poison is no bool: it must not pass for one
    for (std::size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<double>(bytes[i]);
  else
    load_elements(spec.dtype, bytes.data(), elements);
  return elements;
}

BufferSet::Pages::Pages(std::size_t bytes) {
  const std::size_t size = (bytes + kPage - 1) / kPage * kPage + 2 * kPage;
  void* const memory = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) job_failed("no memory for a trial: {}", std::strerror(errno));
  all_ = {static_cast<std::byte*>(memory), size};
  const std::span<std::byte> inner = this->bytes();
  if (mprotect(inner.data(), inner.size(), PROT_READ | PROT_WRITE) != 0)
    job_failed("no memory for a trial: {}", std::strerror(errno));
  madvise(inner.data(), inner.size(), MADV_HUGEPAGE);  // weights take thousands of faults otherwise
}
BufferSet::Pages::~Pages() {
  if (!all_.empty()) munmap(all_.data(), all_.size());
}
std::span<std::byte> BufferSet::Pages::bytes() const {
  return all_.subspan(kPage, all_.size() - 2 * kPage);
}

void BufferSet::Pages::share(std::size_t begin, std::size_t end, std::size_t period) {
  const int file = memfd_create("trial", MFD_CLOEXEC);
  bool ok = file >= 0 && ftruncate(file, static_cast<off_t>(period)) == 0;
  for (std::size_t at = begin; ok && at < end; at += period)
    ok = mmap(bytes().data() + at, std::min(period, end - at), PROT_READ | PROT_WRITE,
              MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED;
  const int error = errno;
  if (file >= 0) close(file);
  if (!ok) job_failed("no memory for a trial: {}", std::strerror(error));
}

BufferSet::BufferSet(const std::vector<TensorSpec>& specs, unsigned variation)
    : specs_(specs), poison_(static_cast<int>(variation % 2)), is_small_(variation % 4 == 3) {
  unsigned offset = variation;
  for (const TensorSpec& spec : specs) {
    const std::size_t words = (spec.bytes() + kWord - 1) / kWord * kWord;
    Allocation& a = allocations_.emplace_back(Pages(kCanary + words + kCanary + 2 * kAlignment));
    a.bytes = a.pages.bytes();
    if (variation % 4 < 2) {
      a.start = kCanary + kWord * (2 * (offset++ % 8) + 1);
      a.start += (kAlignment - kCanary % kAlignment) % kAlignment;
    } else {
      a.start = variation % 4 == 2 ? a.bytes.size() - words : 0;
    }
    buffers_.push_back(a.bytes.subspan(a.start, spec.bytes()));
    if (spec.repeated_to > 0 && spec.repeated_axis == 0) {
      const std::size_t period = static_cast<std::size_t>(spec.count()) * bytes_of(spec.dtype),
                        begin = (a.start + kPage - 1) / kPage * kPage,
                        end = (a.start + spec.bytes()) / kPage * kPage;
      if (period % kPage == 0 && begin + period < end) a.pages.share(begin, end, period);
    }
    // What is read will be loaded; whose first byte has an even place, as the start has.
    if (!spec.is_read()) {
      fill_poison(a.bytes, poison_);
    } else {
      fill_poison(a.bytes.first(a.start), poison_);
      fill_poison(a.bytes.subspan(a.start + spec.bytes() / 2 * 2), poison_);
    }
    before_.emplace_back();
  }
}

void BufferSet::load(const Elements& elements) {
  for (std::size_t t = 0; t < specs_.size(); ++t) {
    const TensorSpec& spec = specs_[t];
    const std::span<std::byte> bytes = buffers_[t];
    if (spec.role == TensorRole::output || (spec.role == TensorRole::workspace && !loaded_))
      fill_poison(bytes, poison_);
    // What a kernel takes for a number of its own may be small.
    if (spec.role == TensorRole::workspace && !loaded_ && is_small_)
      std::ranges::fill(bytes, std::byte{0});
    if (spec.role == TensorRole::counter && !loaded_) std::ranges::fill(bytes, std::byte{0});
    if (spec.role == TensorRole::input || spec.role == TensorRole::weight ||
        spec.role == TensorRole::state) {
      AC_ASSERT(elements[t].size() == static_cast<std::size_t>(spec.count()));
      before_[t].resize(elements[t].size() * bytes_of(spec.dtype));
      store_elements(spec.dtype, elements[t], before_[t].data());
      if (spec.role == TensorRole::state) empty_slots(spec, elements[t], before_[t], poison_);
      for_each_part(spec, [&](std::size_t at, std::size_t from, std::size_t size) {
        std::memcpy(bytes.data() + at, before_[t].data() + from, size);
      });
    } else {
      before_[t].assign(bytes.begin(), bytes.end());
    }
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
  const std::span<const std::byte> now = buffers_[t];
  const auto element_at = [&](auto byte) {
    return (byte - now.begin()) / static_cast<std::int64_t>(bytes_of(spec.dtype));
  };
  if (spec.role == TensorRole::input || spec.role == TensorRole::weight) {
    std::optional<Damage> modified;
    for_each_part(spec, [&](std::size_t at, std::size_t from, std::size_t size) {
      const std::span<const std::byte> part = now.subspan(at, size);
      const std::byte* const before = before_[t].data() + from;
      if (!modified && std::memcmp(part.data(), before, size) != 0)
        modified = {
            t,
            element_at(now.begin() +
                       (std::mismatch(part.begin(), part.end(), before).first - part.begin()) +
                       static_cast<std::ptrdiff_t>(at)),
            "modified what it may only read"};
    });
    if (modified) return modified;
  }
  if (spec.role == TensorRole::counter) {
    const auto left = std::ranges::find_if(now, [](std::byte b) { return b != std::byte{0}; });
    if (left != now.end()) return Damage{t, element_at(left), "did not leave a counter at 0"};
  }
  return std::nullopt;
}

std::optional<BufferSet::Damage> BufferSet::damage() const {
  for (std::size_t t = 0; t < specs_.size(); ++t)
    if (auto found = damage_of(t)) return found;
  return std::nullopt;
}

}  // namespace ac::validate
