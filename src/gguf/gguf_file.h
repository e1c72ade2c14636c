// One GGUF file (llama.cpp's format, versions 2 and 3, little endian): metadata by key, the
// tensors' names, shapes and types, then their data.
//
// All of it but the data is validated before anything of it is used: every length fits the file,
// every tensor's bytes lie in it and overlap no other's. So a span that is handed out always lies
// in the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "gguf/gguf_blocks.h"

namespace ac {

// As the format numbers them.
enum class GgufType : std::uint32_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  text,
  array,
  u64,
  i64,
  f64,
};

struct GgufValue {
  GgufType type;
  GgufType of = {};                  // of an array: its elements
  std::uint64_t count = 0;           // of an array
  std::span<const std::byte> bytes;  // of an array: its elements'; of a text: its characters
};

struct GgufTensor {
  std::string name;
  const BlockType* type;
  std::vector<std::int64_t> shape;  // as PyTorch has it: rows, columns
  std::size_t begin = 0, end = 0;   // bytes from the start of the file
};

class GgufFile {
 public:
  // Maps the file read-only; see MappedFile for what happens when it is truncated meanwhile.
  explicit GgufFile(const std::filesystem::path& path);
  // For bytes that are in memory already and outlive the object.
  static GgufFile from_bytes(std::span<const std::byte> bytes, std::string name);

  const std::string& name() const { return name_; }
  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return metadata_; }
  bool has(std::string_view key) const { return metadata_.contains(key); }

  // The value of a key, or nothing where it is absent. Another type is an error (bad_input).
  std::optional<std::int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;
  // The values of a list. Texts point into the file.
  std::optional<std::vector<std::string_view>> texts(std::string_view key) const;
  std::optional<std::vector<double>> numbers(std::string_view key) const;
  // "FILE: KEY PROBLEM"
  [[noreturn]] void fail(std::string_view key, std::string_view problem) const;

  // In the order of their data.
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* find(std::string_view tensor) const;
  std::span<const std::byte> bytes(const GgufTensor& tensor) const;

 private:
  GgufFile(std::span<const std::byte> bytes, std::string name);
  explicit GgufFile(MappedFile file);
  const GgufValue* find_value(std::string_view key) const;

  std::string name_;
  std::optional<MappedFile> mapped_;
  std::span<const std::byte> bytes_;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
};

// Whether a regular file begins as GGUF files do.
bool is_gguf(const std::filesystem::path& path);

}  // namespace ac
