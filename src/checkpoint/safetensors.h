// One safetensors file: an 8-byte little-endian header length, a JSON header that maps tensor names
// to {dtype, shape, data_offsets}, then the data.
//
// The whole header is validated before anything of it is used, with the rules of the reference
// implementation: offsets tile the data section from its first byte to the last of the file, and
// every size is the product of its shape. So a span that is handed out always lies in the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/mapped_file.h"

namespace ac {

struct SafetensorsEntry {
  std::string name;
  std::string dtype_name;
  std::optional<DType> dtype;  // none: a dtype of the format that this program does not compute in
  std::vector<std::int64_t> shape;
  std::size_t begin = 0, end = 0;  // bytes from the start of the file
};

// `bytes` points into the file and need not be aligned to the element size.
struct TensorView {
  std::string name;
  DType dtype;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
  std::string file;
  // What holds the bytes, if no file does.
  std::shared_ptr<const std::vector<std::byte>> made = nullptr;
};

class SafetensorsFile {
 public:
  // Maps the file read-only; see MappedFile for what happens when it is truncated meanwhile.
  explicit SafetensorsFile(const std::filesystem::path& path) : SafetensorsFile(MappedFile(path)) {}
  explicit SafetensorsFile(MappedFile file);

  // For bytes that are in memory already and outlive the object.
  static SafetensorsFile from_bytes(std::span<const std::byte> bytes, std::string name);

  const std::string& name() const { return name_; }
  // In the order of their data in the file.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  const SafetensorsEntry* find(std::string_view tensor) const;
  // Throws for a dtype that this program does not compute in.
  TensorView view(const SafetensorsEntry& entry) const;

 private:
  SafetensorsFile(std::span<const std::byte> bytes, std::string name);

  std::string name_;
  std::optional<MappedFile> mapped_;
  std::span<const std::byte> bytes_;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
};

// As headers spell it: "BF16".
std::string_view safetensors_name(DType dtype);
// "[2, 3]", for messages.
std::string show_shape(std::span<const std::int64_t> shape);

}  // namespace ac
