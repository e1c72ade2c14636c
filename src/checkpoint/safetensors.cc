#include "checkpoint/safetensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"

namespace ac {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's limit
// name -> {dtype, shape: [...], data_offsets: [...]}; a few levels more for fields not known yet.
// Half a million tensors at eight values each: far above any model, and far below what a header
// of brackets and digits could make the parser allocate.
constexpr JsonLimits kHeaderLimits{.bytes = kMaxHeaderBytes, .depth = 8, .values = 4'000'000};

struct FormatDType {
  std::string_view name;
  std::size_t bits;
  std::optional<DType> dtype;
};
constexpr std::array kFormatDTypes = std::to_array<FormatDType>({
    {"F32", 32, DType::f32},
    {"F16", 16, DType::f16},
    {"BF16", 16, DType::bf16},
    {"I32", 32, DType::i32},
    {"I64", 64, DType::i64},
    {"BOOL", 8, DType::boolean},
    {"F64", 64, std::nullopt},
    {"C64", 64, std::nullopt},
    {"U64", 64, std::nullopt},
    {"U32", 32, std::nullopt},
    {"U16", 16, std::nullopt},
    {"I16", 16, std::nullopt},
    {"U8", 8, DType::u8},
    {"I8", 8, DType::i8},
    {"F8_E4M3", 8, DType::f8e4m3},
    {"F8_E5M2", 8, std::nullopt},
    {"F8_E8M0", 8, DType::f8e8m0},
    {"F8_E4M3FNUZ", 8, std::nullopt},
    {"F8_E5M2FNUZ", 8, std::nullopt},
    {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt},
    {"F4", 4, std::nullopt},
});

// "FILE: tensor "NAME"", the start of every message about one tensor.
std::string where(const std::string& file, std::string_view tensor) {
  return fmt::format("{}: tensor {}", file, quote(tensor));
}

std::size_t to_size(const Json& value, const std::string& context, std::string_view what) {
  if (!value.is_number_unsigned())
    bad_input("{}: {} must hold non-negative integers below 2^64", context, what);
  return value.get<std::size_t>();
}

const Json& member(const Json& object, const char* key, Json::value_t type,
                   const std::string& context) {
  const auto found = object.find(key);
  if (found == object.end()) bad_input("{}: has no \"{}\"", context, key);
  if (found->type() != type)
    bad_input("{}: \"{}\" must be {}", context, key,
              type == Json::value_t::array ? "an array" : "a string");
  return *found;
}

std::size_t checked_bytes(const std::vector<std::int64_t>& shape, std::size_t bits,
                          const std::string& context) {
  std::size_t total = bits;
  for (const std::int64_t dim : shape)
    if (__builtin_mul_overflow(total, static_cast<std::size_t>(dim), &total))
      bad_input("{}: shape {} is too large to address", context, show_shape(shape));
  if (total % 8 != 0)
    bad_input("{}: shape {} of {}-bit elements does not fill whole bytes", context,
              show_shape(shape), bits);
  return total / 8;
}

SafetensorsEntry read_entry(const std::string& file, const std::string& name, const Json& info,
                            std::size_t data_begin, std::size_t data_size) {
  const std::string context = where(file, name);
  if (!info.is_object()) bad_input("{}: the header entry must be an object", context);

  SafetensorsEntry entry;
  entry.name = name;
  entry.dtype_name = member(info, "dtype", Json::value_t::string, context).get<std::string>();
  const auto format = std::ranges::find(kFormatDTypes, entry.dtype_name, &FormatDType::name);
  if (format == kFormatDTypes.end())
    bad_input("{}: unknown dtype {}", context, quote(entry.dtype_name));
  entry.dtype = format->dtype;

  for (const Json& value : member(info, "shape", Json::value_t::array, context)) {
    const std::size_t dim = to_size(value, context, "shape");
    if (dim > static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max()))
      bad_input("{}: dimension {} is too large", context, dim);
    entry.shape.push_back(static_cast<std::int64_t>(dim));
  }

  const Json& offsets = member(info, "data_offsets", Json::value_t::array, context);
  if (offsets.size() != 2)
    bad_input("{}: data_offsets must hold two numbers, not {}", context, offsets.size());
  const std::size_t begin = to_size(offsets[0], context, "data_offsets");
  const std::size_t end = to_size(offsets[1], context, "data_offsets");
  if (begin > end) bad_input("{}: data_offsets [{}, {}] run backwards", context, begin, end);
  if (end > data_size)
    bad_input("{}: data_offsets [{}, {}] pass the end of the {} data bytes: is the file truncated?",
              context, begin, end, data_size);
  const std::size_t bytes = checked_bytes(entry.shape, format->bits, context);
  if (bytes != end - begin)
    bad_input("{}: {} {} takes {} bytes, but data_offsets [{}, {}] hold {}", context,
              entry.dtype_name, show_shape(entry.shape), bytes, begin, end, end - begin);
  entry.begin = data_begin + begin;
  entry.end = data_begin + end;
  return entry;
}

void check_metadata(const std::string& file, const Json& metadata) {
  if (!metadata.is_object()) bad_input("{}: __metadata__ must be an object", file);
  for (const auto& [key, value] : metadata.items())
    if (!value.is_string())
      bad_input("{}: __metadata__ entry {} must be a string", file, quote(key));
}

// Sorts by position and demands that the data section is tiled: no hole, overlap or rest.
void check_tiling(const std::string& file, std::vector<SafetensorsEntry>& entries,
                  std::size_t data_begin, std::size_t file_size) {
  std::ranges::sort(
      entries, {}, [](const SafetensorsEntry& entry) { return std::pair(entry.begin, entry.end); });
  std::size_t expected = data_begin;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != expected)
      bad_input("{}: data begins at byte {} of the data section, {} (expected {})",
                where(file, entry.name), entry.begin - data_begin,
                entry.begin < expected ? "overlapping another tensor" : "after a hole",
                expected - data_begin);
    expected = entry.end;
  }
  if (expected != file_size)
    bad_input("{}: {} bytes after the last tensor belong to none", file, file_size - expected);
}

std::size_t header_length(const std::string& file, std::span<const std::byte> bytes) {
  if (bytes.size() < kLengthBytes)
    bad_input("{}: {} bytes is too short for a safetensors file", file, bytes.size());
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    length |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  if (length > kMaxHeaderBytes)
    bad_input("{}: header length {} is over the limit of {} (is this a safetensors file?)", file,
              length, kMaxHeaderBytes);
  if (length > bytes.size() - kLengthBytes)
    bad_input("{}: header length {} passes the end of the file ({} bytes): is it truncated?", file,
              length, bytes.size());
  return static_cast<std::size_t>(length);
}

std::vector<SafetensorsEntry> read_header(const std::string& file,
                                          std::span<const std::byte> bytes) {
  const std::size_t length = header_length(file, bytes);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, length);
  if (!text.starts_with('{')) bad_input("{}: the header must start with '{{'", file);
  const Json header = parse_json(text, file + " (header)", kHeaderLimits);

  const std::size_t data_begin = kLengthBytes + length;
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, info] : header.items()) {
    if (name == "__metadata__")
      check_metadata(file, info);
    else
      entries.push_back(read_entry(file, name, info, data_begin, bytes.size() - data_begin));
  }
  check_tiling(file, entries, data_begin, bytes.size());
  return entries;
}

}  // namespace

std::string_view safetensors_name(DType dtype) {
  return std::ranges::find(kFormatDTypes, std::optional(dtype), &FormatDType::dtype)->name;
}

std::string show_shape(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

SafetensorsFile::SafetensorsFile(std::span<const std::byte> bytes, std::string name)
    : name_(std::move(name)), bytes_(bytes), entries_(read_header(name_, bytes)) {
  for (std::size_t i = 0; i < entries_.size(); ++i) by_name_.emplace(entries_[i].name, i);
}

SafetensorsFile::SafetensorsFile(MappedFile file) : SafetensorsFile(file.bytes(), file.name()) {
  mapped_ = std::move(file);
}

SafetensorsFile SafetensorsFile::from_bytes(std::span<const std::byte> bytes, std::string name) {
  return {bytes, std::move(name)};
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view tensor) const {
  const auto found = by_name_.find(tensor);
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

TensorView SafetensorsFile::view(const SafetensorsEntry& entry) const {
  if (!entry.dtype)
    bad_input(
        "{}: dtype {} is not supported (F32, F16, BF16, I32, I64, BOOL, U8, I8, F8_E4M3 and "
        "F8_E8M0 are)",
        where(name_, entry.name), entry.dtype_name);
  const std::span<const std::byte> all = mapped_ ? mapped_->bytes() : bytes_;
  return {entry.name, *entry.dtype, entry.shape, all.subspan(entry.begin, entry.end - entry.begin),
          name_,      nullptr};
}

}  // namespace ac
