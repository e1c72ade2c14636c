#include "base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace ac {
namespace {

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

// False with errno set.
bool write_all(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t wrote = write(fd, content.data(), content.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return false;
    content.remove_prefix(static_cast<std::size_t>(wrote));
  }
  return true;
}

std::string reason() { return std::strerror(errno); }

}  // namespace

std::string read_file(const std::filesystem::path& path, std::size_t max_bytes) {
  Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) bad_input("{}: cannot open: {}", path.string(), reason());
  struct stat info{};
  if (fstat(file.fd, &info) != 0) bad_input("{}: cannot stat: {}", path.string(), reason());
  if (!S_ISREG(info.st_mode)) bad_input("{}: not a regular file", path.string());
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size > max_bytes)
    bad_input("{}: {} bytes, more than the limit of {}", path.string(), size, max_bytes);
  std::string content(size, '\0');
  std::size_t done = 0;
  while (done < size) {
    const ssize_t got = read(file.fd, content.data() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) bad_input("{}: cannot read: {}", path.string(), reason());
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  content.resize(done);
  return content;
}

void write_file(const std::filesystem::path& path, std::string_view content) {
  Descriptor file{open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)};
  if (file.fd < 0) job_failed("{}: cannot create: {}", path.string(), reason());
  if (!write_all(file.fd, content)) job_failed("{}: cannot write: {}", path.string(), reason());
}

void write_file_atomically(const std::filesystem::path& given, std::string_view content) {
  std::error_code error;
  const std::filesystem::file_status there = std::filesystem::status(given, error);
  // A pipe or /dev/null is written to, and not replaced by a file.
  if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there))
    return write_file(given, content);
  // What a symbolic link leads to is replaced, and not the link.
  std::filesystem::path path = std::filesystem::canonical(given, error);
  if (error) path = given;
  std::string temporary;
  Descriptor file;
  for (static std::atomic<int> count = 0; file.fd < 0;) {
    temporary = fmt::format("{}.{}.{}", path.string(), getpid(), ++count);
    file.fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file.fd < 0 && errno != EEXIST)
      job_failed("{}: cannot create a file beside it: {}", path.string(), reason());
  }
  auto fail = [&](const char* what) {
    const std::string why = reason();
    unlink(temporary.c_str());
    job_failed("{}: cannot {}: {}", path.string(), what, why);
  };
  if (!write_all(file.fd, content)) fail("write");
  if (fsync(file.fd) != 0) fail("flush");
  if (rename(temporary.c_str(), path.c_str()) != 0) fail("rename into place");
}

}  // namespace ac
