// Builds safetensors files for tests, right ones and deliberately wrong ones.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"

namespace ac::test {

struct TensorBytes {
  std::string name;
  DType dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};

template <class T>
std::string bytes_of_values(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// The file with exactly this header text, whatever it says.
inline std::string safetensors_bytes(std::string_view header, std::string_view data) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>((header.size() >> (8 * i)) & 0xff);
  return file.append(header).append(data);
}

inline std::string format_dtype(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "F32";
    case DType::f16:
      return "F16";
    case DType::bf16:
      return "BF16";
    case DType::i32:
      return "I32";
    case DType::i64:
      return "I64";
    case DType::boolean:
      return "BOOL";
    case DType::f8e4m3:
      return "F8_E4M3";
    case DType::f8e8m0:
      return "F8_E8M0";
    case DType::u8:
      return "U8";
    case DType::i8:
      return "I8";
  }
  AC_UNREACHABLE();
}

inline std::string safetensors_bytes(const std::vector<TensorBytes>& tensors) {
  Json header = Json::object();
  std::string data;
  for (const TensorBytes& tensor : tensors) {
    header[tensor.name] = {{"dtype", format_dtype(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  return safetensors_bytes(header.dump(), data);
}

inline void write_safetensors(const std::filesystem::path& path,
                              const std::vector<TensorBytes>& tensors) {
  write_file_atomically(path, safetensors_bytes(tensors));
}

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// A directory that goes away with the object.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "agentcompile-XXXXXX").string();
    AC_ASSERT(mkdtemp(pattern.data()) != nullptr);
    path_ = std::filesystem::canonical(pattern);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace ac::test
