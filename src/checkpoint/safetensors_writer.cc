#include "checkpoint/safetensors_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/safetensors.h"

namespace ac {

std::size_t TensorToWrite::bytes() const {
  std::size_t size = bytes_of(dtype);
  for (const std::int64_t of_axis : shape) size *= static_cast<std::size_t>(of_axis);
  return size;
}

SafetensorsWriter::SafetensorsWriter(std::filesystem::path path, std::vector<TensorToWrite> tensors)
    : path_(std::move(path)) {
  std::ranges::stable_sort(tensors, std::greater{},
                           [](const TensorToWrite& tensor) { return bytes_of(tensor.dtype); });
  Json header{{"__metadata__", {{"format", "pt"}}}};
  std::size_t end = 0;
  for (const TensorToWrite& tensor : tensors) {
    const std::size_t begin = end;
    end += tensor.bytes();
    header[tensor.name] = {{"dtype", safetensors_name(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {begin, end}}};
    AC_ASSERT(left_.emplace(tensor.name, Place{begin, end - begin}).second);
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::uint64_t length = text.size();
  for (auto& [name, place] : left_) place.begin += sizeof length + text.size();
  text.insert(0, reinterpret_cast<const char*>(&length), sizeof length);
  fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) fail("create");
  try {
    write_at(0, std::as_bytes(std::span(text)));
  } catch (...) {
    close(fd_);
    throw;
  }
}

SafetensorsWriter::~SafetensorsWriter() { close(fd_); }

void SafetensorsWriter::fail(const char* what) const {
  job_failed("{}: cannot {}: {}", path_.string(), what, std::strerror(errno));
}

void SafetensorsWriter::write_at(std::size_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail("write");
    bytes = bytes.subspan(static_cast<std::size_t>(wrote));
    offset += static_cast<std::size_t>(wrote);
  }
}

void SafetensorsWriter::write(const std::string& name, std::span<const std::byte> bytes) {
  const auto place = left_.find(name);
  AC_ASSERT(place != left_.end() && place->second.bytes == bytes.size());
  write_at(place->second.begin, bytes);
  left_.erase(place);
}

void SafetensorsWriter::finish() {
  AC_ASSERT(left_.empty());
  if (fsync(fd_) != 0) fail("flush");
}

}  // namespace ac
