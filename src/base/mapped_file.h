// A regular file mapped read-only into memory.
//
// A mapped page behind the end of a file that someone truncates meanwhile raises SIGBUS. Two
// guards: `bytes()` checks the size of the file before it hands out the span, and the first
// mapping installs a SIGBUS handler that names the file and exits with code 1. A SIGBUS elsewhere
// goes to whoever handled it before.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace ac {

// Tells the system that this part of a mapped file will be read soon: it begins to fetch what is
// not in memory yet. Then, that it is read now: all its pages are mapped at once, which costs less
// than a fault for each few of them. Both only matter for speed, and may do nothing.
void expect_read(std::span<const std::byte> part);
void map_now(std::span<const std::byte> part);

class MappedFile {
 public:
  // `shown_as` names the file in messages (a symlink says more than the blob behind it).
  MappedFile(const std::filesystem::path& path, std::string shown_as);
  explicit MappedFile(const std::filesystem::path& path) : MappedFile(path, path.string()) {}
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::string& name() const { return name_; }
  // Page aligned. Throws if the file has become shorter than it was when mapped.
  std::span<const std::byte> bytes() const;

 private:
  void release() noexcept;

  std::string name_;
  int fd_ = -1;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  int guard_slot_ = -1;
};

}  // namespace ac
