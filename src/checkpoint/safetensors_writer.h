// Writes one safetensors file, whose tensors are known before their bytes are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace ac {

struct TensorToWrite {
  std::string name;
  DType dtype;
  std::vector<std::int64_t> shape;

  std::size_t bytes() const;
};

class SafetensorsWriter {
 public:
  // Writes the header. Larger elements come first in the file, so that all are aligned.
  SafetensorsWriter(std::filesystem::path path, std::vector<TensorToWrite> tensors);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // All bytes of a tensor, in any order of tensors.
  void write(const std::string& name, std::span<const std::byte> bytes);
  // Every tensor was written, and is on the disk.
  void finish();

 private:
  void write_at(std::size_t offset, std::span<const std::byte> bytes);
  [[noreturn]] void fail(const char* what) const;

  struct Place {
    std::size_t begin, bytes;
  };
  const std::filesystem::path path_;
  std::map<std::string, Place> left_;
  int fd_ = -1;
};

}  // namespace ac
