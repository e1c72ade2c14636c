#include "gguf/gguf_file.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace ac {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr std::size_t kLongestName = 1000;  // of keys and tensors
constexpr std::uint32_t kMostAxes = 4, kMostNested = 4;
constexpr std::uint64_t kMostTensors = 1u << 20, kMostKeys = 1u << 16;
constexpr std::uint64_t kMostAlignment = 1u << 20;

// Bytes of one value; 0: it says itself.
std::size_t size_of(GgufType type) {
  switch (type) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::boolean:
      return 1;
    case GgufType::u16:
    case GgufType::i16:
      return 2;
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::f32:
      return 4;
    case GgufType::u64:
    case GgufType::i64:
    case GgufType::f64:
      return 8;
    case GgufType::text:
    case GgufType::array:
      return 0;
  }
  AC_UNREACHABLE();
}

template <class T>
T load(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Reads from the file's beginning on. `what` names what is read, in errors.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  std::size_t at() const { return at_; }
  std::size_t left() const { return bytes_.size() - at_; }

  std::span<const std::byte> take(std::uint64_t count, std::string_view what) {
    if (count > left())
      bad_input("{}: {} passes the end of the file ({} bytes): is it truncated?", file_, what,
                bytes_.size());
    at_ += count;
    return bytes_.subspan(at_ - count, count);
  }
  template <class T>
  T number(std::string_view what) {
    return load<T>(take(sizeof(T), what));
  }
  std::string_view text(std::string_view what) {
    return as_text(take(number<std::uint64_t>(what), what));
  }
  std::string name(std::string_view what) {
    const std::string_view text = this->text(what);
    if (text.empty() || text.size() > kLongestName)
      bad_input("{}: {} has {} bytes, and not 1 to {}", file_, what, text.size(), kLongestName);
    if (!std::ranges::all_of(text, [](unsigned char c) { return c >= ' ' && c <= '~'; }))
      bad_input("{}: {} has other characters than printable ones of ASCII", file_, what);
    return std::string(text);
  }

  GgufType type(std::string_view what) {
    const auto type = number<std::uint32_t>(what);
    if (type > static_cast<std::uint32_t>(GgufType::f64))
      bad_input("{}: {} has the unknown type {}", file_, what, type);
    return static_cast<GgufType>(type);
  }

  GgufValue value(std::string_view what) { return value_of(type(what), what, 0); }

 private:
  GgufValue value_of(GgufType type, std::string_view what, std::uint32_t depth) {
    GgufValue value{.type = type, .bytes = {}};
    if (type == GgufType::text) {
      value.bytes = take(number<std::uint64_t>(what), what);
    } else if (type == GgufType::array) {
      if (depth == kMostNested)
        bad_input("{}: {} has lists in lists, more than {} deep", file_, what, kMostNested);
      value.of = this->type(what);
      value.count = number<std::uint64_t>(what);
      // A text or a list has its length at least.
      const std::size_t least = size_of(value.of) > 0 ? size_of(value.of) : sizeof(std::uint64_t);
      if (value.count > left() / least)
        bad_input("{}: {} passes the end of the file: a list of {} values", file_, what,
                  value.count);
      const std::size_t begin = at_;
      if (size_of(value.of) > 0)
        take(value.count * least, what);
      else
        for (std::uint64_t i = 0; i < value.count; ++i) value_of(value.of, what, depth + 1);
      value.bytes = bytes_.subspan(begin, at_ - begin);
    } else {
      value.bytes = take(size_of(type), what);
      if (type == GgufType::boolean && load<std::uint8_t>(value.bytes) > 1)
        bad_input("{}: {} is neither true nor false", file_, what);
    }
    return value;
  }

  std::span<const std::byte> bytes_;
  const std::string& file_;
  std::size_t at_ = 0;
};

// Whole numbers of any type.
std::optional<std::int64_t> as_integer(GgufType type, std::span<const std::byte> bytes) {
  switch (type) {
    case GgufType::u8:
      return load<std::uint8_t>(bytes);
    case GgufType::i8:
      return load<std::int8_t>(bytes);
    case GgufType::u16:
      return load<std::uint16_t>(bytes);
    case GgufType::i16:
      return load<std::int16_t>(bytes);
    case GgufType::u32:
      return load<std::uint32_t>(bytes);
    case GgufType::i32:
      return load<std::int32_t>(bytes);
    case GgufType::i64:
      return load<std::int64_t>(bytes);
    case GgufType::u64:
      if (const auto value = load<std::uint64_t>(bytes); std::in_range<std::int64_t>(value))
        return static_cast<std::int64_t>(value);
      return std::nullopt;
    case GgufType::f32:
    case GgufType::f64:
    case GgufType::boolean:
    case GgufType::text:
    case GgufType::array:
      return std::nullopt;
  }
  AC_UNREACHABLE();
}

std::optional<double> as_number(GgufType type, std::span<const std::byte> bytes) {
  if (type == GgufType::f32) return load<float>(bytes);
  if (type == GgufType::f64) return load<double>(bytes);
  if (const auto value = as_integer(type, bytes)) return static_cast<double>(*value);
  if (type == GgufType::boolean) return load<std::uint8_t>(bytes);
  return std::nullopt;
}

GgufTensor read_tensor(Cursor& cursor, const std::string& file) {
  GgufTensor tensor;
  tensor.name = cursor.name("a tensor's name");
  const std::string what = fmt::format("tensor {}", quote(tensor.name));
  const auto axes = cursor.number<std::uint32_t>(what);
  if (axes < 1 || axes > kMostAxes)
    bad_input("{}: {} has {} axes, and not 1 to {}", file, what, axes, kMostAxes);
  for (std::uint32_t axis = 0; axis < axes; ++axis) {
    const auto size = cursor.number<std::uint64_t>(what);
    if (size < 1 || !std::in_range<std::int64_t>(size))
      bad_input("{}: {} has an axis of {}", file, what, size);
    tensor.shape.insert(tensor.shape.begin(), static_cast<std::int64_t>(size));
  }
  const auto type = cursor.number<std::uint32_t>(what);
  tensor.type = find_block_type(type);
  if (!tensor.type) bad_input("{}: {} has the unknown type {}", file, what, type);
  const auto columns = static_cast<std::uint64_t>(tensor.shape.back());
  if (columns % tensor.type->elements != 0)
    bad_input("{}: {} has rows of {} elements, which are no whole blocks of {} ({})", file, what,
              columns, tensor.type->elements, tensor.type->name);
  std::size_t bytes = columns / tensor.type->elements;
  bool fits = !__builtin_mul_overflow(bytes, tensor.type->bytes, &bytes);
  for (std::size_t axis = 0; axis + 1 < tensor.shape.size(); ++axis)
    fits = fits &&
           !__builtin_mul_overflow(bytes, static_cast<std::size_t>(tensor.shape[axis]), &bytes);
  tensor.begin = cursor.number<std::uint64_t>(what);  // in the data, up to here
  fits = fits && !__builtin_add_overflow(tensor.begin, bytes, &tensor.end);
  if (!fits)
    bad_input("{}: {} of shape [{}] at {} is too large to address", file, what,
              fmt::join(tensor.shape, ", "), tensor.begin);
  return tensor;
}

// From places in the data, which begins there, to places in the file.
void place(std::vector<GgufTensor>& tensors, std::size_t data, std::size_t size,
           std::size_t alignment, const std::string& file) {
  for (GgufTensor& tensor : tensors) {
    if (tensor.begin % alignment != 0)
      bad_input("{}: tensor {} begins at byte {} of the data, no multiple of the alignment {}",
                file, quote(tensor.name), tensor.begin, alignment);
    if (data > size || tensor.end > size - data)
      bad_input("{}: tensor {} passes the end of the file ({} bytes): is it truncated?", file,
                quote(tensor.name), size);
    tensor.begin += data;
    tensor.end += data;
  }
  std::ranges::sort(tensors, {},
                    [](const GgufTensor& one) { return std::pair(one.begin, one.end); });
  for (std::size_t i = 1; i < tensors.size(); ++i)
    if (tensors[i].begin < tensors[i - 1].end)
      bad_input("{}: tensor {} overlaps tensor {}", file, quote(tensors[i].name),
                quote(tensors[i - 1].name));
}

}  // namespace

GgufFile::GgufFile(std::span<const std::byte> bytes, std::string name)
    : name_(std::move(name)), bytes_(bytes) {
  Cursor cursor(bytes, name_);
  if (bytes.size() < kMagic.size() || as_text(bytes.first(kMagic.size())) != kMagic)
    bad_input("{}: not a GGUF file: it does not begin with GGUF", name_);
  cursor.take(kMagic.size(), "the header");
  const auto version = cursor.number<std::uint32_t>("the header");
  if (version == __builtin_bswap32(2) || version == __builtin_bswap32(3))
    bad_input("{}: a big-endian GGUF file, which is not supported", name_);
  if (version != 2 && version != 3)
    bad_input("{}: GGUF version {}, and only 2 and 3 are supported", name_, version);
  const auto tensors = cursor.number<std::uint64_t>("the header");
  const auto keys = cursor.number<std::uint64_t>("the header");
  if (tensors > kMostTensors || keys > kMostKeys)
    bad_input("{}: {} tensors and {} keys, more than the limits of {} and {}", name_, tensors, keys,
              kMostTensors, kMostKeys);
  for (std::uint64_t i = 0; i < keys; ++i) {
    std::string key = cursor.name("a key's name");
    const std::string what = fmt::format("key {}", quote(key));
    const GgufValue value = cursor.value(what);
    if (!metadata_.emplace(std::move(key), value).second)
      bad_input("{}: {} is there twice", name_, what);
  }
  for (std::uint64_t i = 0; i < tensors; ++i) tensors_.push_back(read_tensor(cursor, name_));

  constexpr const char* kAlignment = "general.alignment";
  const std::int64_t alignment = integer(kAlignment).value_or(32);
  if (alignment < 8 || alignment > static_cast<std::int64_t>(kMostAlignment) ||
      (alignment & (alignment - 1)) != 0)
    fail(kAlignment,
         fmt::format("is {}, and no power of two from 8 to {}", alignment, kMostAlignment));
  const auto unit = static_cast<std::size_t>(alignment);
  place(tensors_, (cursor.at() + unit - 1) / unit * unit, bytes.size(), unit, name_);
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (!by_name_.emplace(tensors_[i].name, i).second)
      bad_input("{}: tensor {} is there twice", name_, quote(tensors_[i].name));
}

GgufFile::GgufFile(MappedFile file) : GgufFile(file.bytes(), file.name()) {
  mapped_ = std::move(file);
}
GgufFile::GgufFile(const std::filesystem::path& path) : GgufFile(MappedFile(path)) {}

GgufFile GgufFile::from_bytes(std::span<const std::byte> bytes, std::string name) {
  return {bytes, std::move(name)};
}

const GgufValue* GgufFile::find_value(std::string_view key) const {
  const auto found = metadata_.find(key);
  return found == metadata_.end() ? nullptr : &found->second;
}

void GgufFile::fail(std::string_view key, std::string_view problem) const {
  bad_input("{}: {} {}", name_, key, problem);
}

std::optional<std::int64_t> GgufFile::integer(std::string_view key) const {
  const GgufValue* const value = find_value(key);
  if (!value) return std::nullopt;
  const auto whole = as_integer(value->type, value->bytes);
  if (!whole) fail(key, "is no whole number of 64 bits");
  return whole;
}

std::optional<double> GgufFile::number(std::string_view key) const {
  const GgufValue* const value = find_value(key);
  if (!value) return std::nullopt;
  const auto number = as_number(value->type, value->bytes);
  if (!number || value->type == GgufType::boolean || !std::isfinite(*number))
    fail(key, "is no finite number");
  return number;
}

std::optional<bool> GgufFile::boolean(std::string_view key) const {
  const GgufValue* const value = find_value(key);
  if (!value) return std::nullopt;
  if (value->type != GgufType::boolean) fail(key, "is neither true nor false");
  return load<std::uint8_t>(value->bytes) == 1;
}

std::optional<std::string> GgufFile::text(std::string_view key) const {
  const GgufValue* const value = find_value(key);
  if (!value) return std::nullopt;
  if (value->type != GgufType::text) fail(key, "is no text");
  return std::string(as_text(value->bytes));
}

std::optional<std::vector<std::string_view>> GgufFile::texts(std::string_view key) const {
  const GgufValue* const value = find_value(key);
  if (!value) return std::nullopt;
  if (value->type != GgufType::array || value->of != GgufType::text)
    fail(key, "is no list of texts");
  std::vector<std::string_view> texts;
  texts.reserve(value->count);
  Cursor cursor(value->bytes, name_);
  for (std::uint64_t i = 0; i < value->count; ++i) texts.push_back(cursor.text(key));
  return texts;
}

std::optional<std::vector<double>> GgufFile::numbers(std::string_view key) const {
  const GgufValue* const value = find_value(key);
  if (!value) return std::nullopt;
  const std::size_t size = value->type == GgufType::array ? size_of(value->of) : 0;
  if (size == 0) fail(key, "is no list of numbers");
  std::vector<double> numbers;
  numbers.reserve(value->count);
  for (std::uint64_t i = 0; i < value->count; ++i) {
    const auto number = as_number(value->of, value->bytes.subspan(i * size, size));
    if (!number || std::isnan(*number)) fail(key, fmt::format("has no number at {}", i));
    numbers.push_back(*number);
  }
  return numbers;
}

const GgufTensor* GgufFile::find(std::string_view tensor) const {
  const auto found = by_name_.find(tensor);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

std::span<const std::byte> GgufFile::bytes(const GgufTensor& tensor) const {
  const std::span<const std::byte> all = mapped_ ? mapped_->bytes() : bytes_;
  return all.subspan(tensor.begin, tensor.end - tensor.begin);
}

bool is_gguf(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  std::array<char, kMagic.size()> begin{};
  std::ifstream file(path, std::ios::binary);
  return file.read(begin.data(), begin.size()) &&
         std::string_view(begin.data(), begin.size()) == kMagic;
}

}  // namespace ac
