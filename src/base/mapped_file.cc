#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/error.h"

namespace ac {
namespace {

// What the signal handler may look at: fixed storage, lock-free fields, no allocation. A file
// mapped when all slots are taken is merely not named by the handler.
struct GuardedRange {
  std::atomic<std::uintptr_t> begin{0}, end{0};  // end == 0: free
  std::array<char, 256> name{};
};
constexpr int kMaxGuarded = 1024;
std::array<GuardedRange, kMaxGuarded> guarded_ranges;
std::mutex guard_mutex;
struct sigaction previous_action;

void write_to_stderr(const char* text) {
  [[maybe_unused]] const ssize_t wrote = write(STDERR_FILENO, text, std::strlen(text));
}

void on_bus_error(int, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (const GuardedRange& range : guarded_ranges) {
    if (address < range.begin.load() || address >= range.end.load()) continue;
    write_to_stderr("agentcompile: ");
    write_to_stderr(range.name.data());
    write_to_stderr(": the file was truncated, or its disk failed, while it was being read\n");
    _exit(static_cast<int>(Fault::job_failed));
  }
  sigaction(SIGBUS, &previous_action, nullptr);  // returning repeats the access, and the fault
}

int guard(const std::byte* data, std::size_t size, const std::string& name) {
  const std::lock_guard lock(guard_mutex);
  static const bool installed = [] {
    struct sigaction action{};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGBUS, &action, &previous_action) == 0;
  }();
  if (!installed) return -1;
  for (int slot = 0; slot < kMaxGuarded; ++slot) {
    GuardedRange& range = guarded_ranges[static_cast<std::size_t>(slot)];
    if (range.end.load() != 0) continue;
    range.name.fill('\0');
    name.copy(range.name.data(), range.name.size() - 1);
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    range.begin.store(begin);
    range.end.store(begin + size);
    return slot;
  }
  return -1;
}

void unguard(int slot) {
  if (slot < 0) return;
  const std::lock_guard lock(guard_mutex);
  guarded_ranges[static_cast<std::size_t>(slot)].end.store(0);
}

// Since Linux 5.14, and not in older headers.
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

void advise(std::span<const std::byte> part, int advice) {
  static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  if (part.empty()) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(part.data()) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(part.data() + part.size());
  madvise(reinterpret_cast<void*>(begin), end - begin, advice);
}

}  // namespace

void expect_read(std::span<const std::byte> part) { advise(part, MADV_WILLNEED); }
void map_now(std::span<const std::byte> part) { advise(part, MADV_POPULATE_READ); }

MappedFile::MappedFile(const std::filesystem::path& path, std::string shown_as)
    : name_(std::move(shown_as)) {
  auto fail = [&](const char* what) {
    const std::string why = std::strerror(errno);
    release();
    bad_input("{}: cannot {}: {}", name_, what, why);
  };
  // O_NONBLOCK: a FIFO in the model's directory must not hang us.
  fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) fail("open");
  struct stat info{};
  if (fstat(fd_, &info) != 0) fail("stat");
  if (!S_ISREG(info.st_mode)) {
    release();
    bad_input("{}: not a regular file", name_);
  }
  size_ = static_cast<std::size_t>(info.st_size);
  if (size_ == 0) return;  // an empty mapping is an error to mmap
  void* mapped = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd_, 0);
  if (mapped == MAP_FAILED) fail("map into memory");
  data_ = static_cast<const std::byte*>(mapped);
  guard_slot_ = guard(data_, size_, name_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : name_(std::move(other.name_)),
      fd_(std::exchange(other.fd_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      guard_slot_(std::exchange(other.guard_slot_, -1)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this == &other) return *this;
  release();
  name_ = std::move(other.name_);
  fd_ = std::exchange(other.fd_, -1);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  guard_slot_ = std::exchange(other.guard_slot_, -1);
  return *this;
}

MappedFile::~MappedFile() { release(); }

void MappedFile::release() noexcept {
  unguard(std::exchange(guard_slot_, -1));
  if (data_) munmap(const_cast<std::byte*>(data_), size_);
  if (fd_ >= 0) close(fd_);
  data_ = nullptr;
  fd_ = -1;
}

std::span<const std::byte> MappedFile::bytes() const {
  struct stat info{};
  if (fstat(fd_, &info) != 0) job_failed("{}: cannot stat: {}", name_, std::strerror(errno));
  if (static_cast<std::size_t>(info.st_size) < size_)
    job_failed("{}: the file was truncated from {} to {} bytes while in use", name_, size_,
               info.st_size);
  return {data_, size_};
}

}  // namespace ac
