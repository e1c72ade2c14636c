#include "capture/blob_store.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"

namespace ac {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const char* what) {
  const int code = errno;
  if (code == ENOSPC || code == EDQUOT)
    job_failed("{}: the disk is full; free some space and start again, it continues from here",
               path.string());
  job_failed("{}: cannot {}: {}", path.string(), what, std::strerror(code));
}

int open_or_fail(const std::filesystem::path& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) fail(path, "open");
  return fd;
}

class Digest {
 public:
  explicit Digest(const EVP_MD* kind) : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    check(context_ && EVP_DigestInit_ex(context_.get(), kind, nullptr) == 1);
  }
  void add(std::string_view bytes) {
    check(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
  }
  std::string hexadecimal() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned length = 0;
    check(EVP_DigestFinal_ex(context_.get(), digest.data(), &length) == 1);
    std::string text;
    for (unsigned i = 0; i < length; ++i) text += fmt::format("{:02x}", digest[i]);
    return text;
  }

 private:
  static void check(bool fine) {
    if (!fine) job_failed("OpenSSL cannot compute a hash");
  }
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

}  // namespace

BlobLock::BlobLock(const std::filesystem::path& lock_file, const std::function<void()>& on_wait)
    : fd_(open_or_fail(lock_file)) {
  bool taken = flock(fd_, LOCK_EX | LOCK_NB) == 0;
  if (!taken && errno == EWOULDBLOCK) {
    on_wait();
    do {
      taken = flock(fd_, LOCK_EX) == 0;
    } while (!taken && errno == EINTR);
  }
  if (taken) return;
  const int code = errno;
  close(fd_);
  errno = code;
  fail(lock_file, "lock");
}

BlobLock::~BlobLock() { close(fd_); }

PartialBlob::PartialBlob(const std::filesystem::path& folder, BlobId id)
    : final_path_(folder / id.hash),
      path_(folder / (id.hash + ".incomplete")),
      id_(std::move(id)),
      fd_(open_or_fail(path_)) {
  struct stat info{};
  if (fstat(fd_, &info) != 0) fail(path_, "stat");
  size_ = static_cast<std::uint64_t>(info.st_size);
  if (size_ > id_.size) restart();
}

PartialBlob::~PartialBlob() { close(fd_); }

void PartialBlob::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(size_));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail(path_, "write");
    size_ += static_cast<std::uint64_t>(wrote);
    bytes.remove_prefix(static_cast<std::size_t>(wrote));
  }
}

void PartialBlob::restart() {
  if (ftruncate(fd_, 0) != 0) fail(path_, "empty");
  size_ = 0;
}

bool PartialBlob::is_right() const {
  if (size_ != id_.size) return false;
  Digest digest(id_.is_sha256 ? EVP_sha256() : EVP_sha1());
  if (!id_.is_sha256) {
    const std::string header = fmt::format("blob {}", size_);
    digest.add({header.c_str(), header.size() + 1});  // git hashes the zero byte too
  }
  std::vector<char> buffer(1 << 20);
  for (std::uint64_t at = 0; at < size_;) {
    const ssize_t got = pread(fd_, buffer.data(), buffer.size(), static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path_, "read back");
    if (got == 0) return false;
    digest.add({buffer.data(), static_cast<std::size_t>(got)});
    at += static_cast<std::uint64_t>(got);
  }
  return digest.hexadecimal() == id_.hash;
}

void PartialBlob::publish() {
  if (fsync(fd_) != 0) fail(path_, "flush");
  if (rename(path_.c_str(), final_path_.c_str()) != 0) fail(path_, "rename");
}

}  // namespace ac
