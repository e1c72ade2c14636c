#include "prefix/prefix_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>

#include "base/error.h"
#include "base/warning.h"

namespace ac {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kDigits = 64;  // of a key
constexpr std::string_view kEnding = ".states";
constexpr std::array<char, 8> kMagic = {'A', 'C', 's', 't', 'a', 't', 'e', '2'};
// Prompts that wait to be written; of more, the first is forgotten.
constexpr std::size_t kMostWaiting = 64;
// That a server which ends waits for another one that holds the folder.
constexpr auto kLockPatience = std::chrono::seconds(2);

struct FileHeader {
  std::array<char, 8> magic = kMagic;
  std::uint64_t bytes = 0;
  std::array<char, kDigits> key{};
  std::array<unsigned char, 16> digest{};  // XXH3 of the key and what follows
};
static_assert(sizeof(FileHeader) == 96);

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

FileHeader header_of(const std::string& key, std::span<const std::byte> bytes) {
  FileHeader header;
  header.bytes = bytes.size();
  std::ranges::copy(key, header.key.begin());
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       XXH3_freeState);
  XXH3_128bits_reset(state.get());
  XXH3_128bits_update(state.get(), key.data(), key.size());
  XXH3_128bits_update(state.get(), bytes.data(), bytes.size());
  XXH128_canonical_t digest;
  XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(state.get()));
  std::ranges::copy(digest.digest, header.digest.begin());
  return header;
}

bool read_all(int fd, void* to, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t got = read(fd, static_cast<char*>(to) + done, bytes - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    done += static_cast<std::size_t>(got);
  }
  return true;
}

bool write_all(int fd, const void* from, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t wrote = ::write(fd, static_cast<const char*>(from) + done, bytes - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return false;
    done += static_cast<std::size_t>(wrote);
  }
  return true;
}

bool is_key(std::string_view name) {
  return name.size() == kDigits &&
         name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Ours, and what is left of one whose writer was killed.
bool is_states_file(std::string_view name) {
  return name.ends_with(kEnding) && is_key(name.substr(0, name.size() - kEnding.size()));
}
bool is_unfinished(std::string_view name) {
  return name.size() > kDigits && is_key(name.substr(0, kDigits)) &&
         name.substr(kDigits).starts_with(std::string(kEnding) + ".");
}

// The folder, while nobody else changes it.
class FolderLock {
 public:
  FolderLock(const fs::path& file, const std::function<bool()>& gives_up)
      : file_{open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)} {
    if (file_.fd < 0) job_failed("{}: {}", file.string(), std::strerror(errno));
    while (flock(file_.fd, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) return;  // a file system without locks
      if (gives_up()) job_failed("{}: another process holds it", file.string());
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

 private:
  const Descriptor file_;
};

struct KeptFile {
  std::size_t bytes = 0;
  timespec used{};
};
using Entries = std::map<std::string, KeptFile>;  // by key

// With the lock: removes what writers have left.
Entries entries_of(const fs::path& folder) {
  Entries entries;
  for (const auto& each : fs::directory_iterator(folder)) {
    const std::string name = each.path().filename().string();
    if (is_unfinished(name)) unlink(each.path().c_str());
    struct stat info{};
    if (is_states_file(name) && lstat(each.path().c_str(), &info) == 0 && S_ISREG(info.st_mode))
      entries[name.substr(0, kDigits)] = {static_cast<std::size_t>(info.st_size), info.st_mtim};
  }
  return entries;
}

Entries::iterator oldest_of(Entries& entries, const std::vector<PrefixFiles::Piece>& kept) {
  auto oldest = entries.end();
  for (auto each = entries.begin(); each != entries.end(); ++each) {
    const auto key = [&](const PrefixFiles::Piece& piece) { return piece.key == each->first; };
    if (std::ranges::any_of(kept, key)) continue;
    const auto time = [](const KeptFile& entry) {
      return std::pair(entry.used.tv_sec, entry.used.tv_nsec);
    };
    if (oldest == entries.end() || time(each->second) < time(oldest->second)) oldest = each;
  }
  return oldest;
}

void write_states(const fs::path& file, const std::string& key, std::span<const std::byte> bytes) {
  const FileHeader header = header_of(key, bytes);
  std::string unfinished = file.string() + ".XXXXXX";
  const Descriptor out{mkostemp(unfinished.data(), O_CLOEXEC)};
  const bool done = out.fd >= 0 && write_all(out.fd, &header, sizeof header) &&
                    write_all(out.fd, bytes.data(), bytes.size()) &&
                    rename(unfinished.c_str(), file.c_str()) == 0;
  if (done) return;
  const int why = errno;
  if (out.fd >= 0) unlink(unfinished.c_str());
  job_failed("{}: {}", file.parent_path().string(), std::strerror(why));
}

}  // namespace

PrefixFiles::PrefixFiles(fs::path folder, std::size_t room)
    : folder_(std::move(folder)), room_(room) {
  std::error_code error;
  if (fs::create_directories(folder_, error)) chmod(folder_.c_str(), 0700);
  struct stat info{};
  if (error || stat(folder_.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))
    wrong_usage("{}: is no folder, and none can be made there{}", folder_.string(),
                error ? ": " + error.message() : "");
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0 || (info.st_uid != geteuid() && info.st_uid != 0))
    wrong_usage(
        "{}: others may write into it, and whoever does decides what the model says: chmod "
        "go-w, or name another folder",
        folder_.string());
  thread_ = std::thread([this] { work(); });
}

PrefixFiles::~PrefixFiles() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

fs::path PrefixFiles::file_of(const std::string& key) const {
  AC_ASSERT(is_key(key));
  return folder_ / (key + std::string(kEnding));
}

bool PrefixFiles::has(const std::string& key) const {
  struct stat info{};
  return lstat(file_of(key).c_str(), &info) == 0;
}

bool PrefixFiles::load(const std::string& key, std::span<std::byte> to) {
  const fs::path file = file_of(key);
  const Descriptor in{open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW)};
  if (in.fd < 0 && errno == ENOENT) return false;
  const auto refuse = [&](const char* why) {
    unlink(file.c_str());
    warn("{}: {}; it is not used", file.string(), why);
    const std::lock_guard lock(mutex_);
    ++counts_.damaged;
    return false;
  };
  struct stat info{};
  if (in.fd < 0 || fstat(in.fd, &info) != 0) return refuse(std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return refuse("is no file");
  if (static_cast<std::size_t>(info.st_size) != sizeof(FileHeader) + to.size())
    return refuse("has not the length of the model's states");
  FileHeader header;
  if (!read_all(in.fd, &header, sizeof header) || !read_all(in.fd, to.data(), to.size()))
    return refuse("cannot be read");
  const FileHeader wanted = header_of(key, to);
  if (std::memcmp(&header, &wanted, sizeof header) != 0) return refuse("is damaged");
  return true;
}

void PrefixFiles::offer(std::vector<Piece> pieces) {
  if (pieces.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    // The same prompt, some pieces further.
    if (!waiting_.empty() && waiting_.back().size() <= pieces.size() &&
        waiting_.back().back().key == pieces[waiting_.back().size() - 1].key)
      waiting_.pop_back();
    waiting_.push_back(std::move(pieces));
    if (waiting_.size() > kMostWaiting) waiting_.pop_front();
  }
  changed_.notify_all();
}

PrefixFiles::Counts PrefixFiles::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void PrefixFiles::work() {
  // What is there already counts from the beginning, and may be more than there is room for.
  for (std::vector<Piece> pieces;;) {
    try {
      write(std::move(pieces));
    } catch (const std::exception& error) {
      warn("states are not kept on the disk: {}", error.what());
      const std::lock_guard lock(mutex_);
      if (closed_) waiting_.clear();  // the same would become of them
    }
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    pieces = std::move(waiting_.front());
    waiting_.pop_front();
  }
}

void PrefixFiles::write(std::vector<Piece> pieces) {
  const auto since_closed = [this, closed_at = std::chrono::steady_clock::time_point()]() mutable {
    const std::lock_guard lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    if (!closed_) return false;
    if (closed_at == decltype(closed_at)()) closed_at = now;
    return now - closed_at > kLockPatience;
  };
  const FolderLock lock(folder_ / "lock", since_closed);
  Entries entries = entries_of(folder_);
  std::size_t used = 0;
  for (const auto& [key, entry] : entries) used += entry.bytes;
  std::int64_t evictions = 0;
  const auto make_room = [&](std::size_t bytes) {
    while (used + bytes > room_) {
      const auto oldest = oldest_of(entries, pieces);
      if (oldest == entries.end()) return false;
      unlink(file_of(oldest->first).c_str());
      used -= oldest->second.bytes;
      entries.erase(oldest);
      ++evictions;
    }
    return true;
  };
  // As many as there is room for, if nothing else is there.
  std::size_t all = 0, fit = 0;
  while (fit < pieces.size() && (all += sizeof(FileHeader) + pieces[fit].bytes) <= room_) ++fit;
  pieces.resize(fit);
  std::string failure;
  make_room(0);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (entries.contains(pieces[i].key)) continue;
    const auto content = pieces[i].content.lock();
    const std::size_t bytes = sizeof(FileHeader) + pieces[i].bytes;
    if (content && make_room(bytes)) try {
        write_states(file_of(pieces[i].key), pieces[i].key, {content.get(), pieces[i].bytes});
        entries[pieces[i].key].bytes = bytes;
        used += bytes;
        continue;
      } catch (const Error& error) {
        failure = error.what();
      }
    pieces.resize(i);  // what follows is of no use without it
  }
  // Used now, the first one last.
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (time.tv_nsec-- == 0) time.tv_nsec = 999'999'999, --time.tv_sec;
    const std::array<timespec, 2> times = {time, time};
    utimensat(AT_FDCWD, file_of(pieces[i].key).c_str(), times.data(), 0);
  }
  {
    const std::lock_guard guard(mutex_);
    counts_.bytes = used, counts_.evictions += evictions;
  }
  if (!failure.empty()) job_failed("{}", failure);
}

}  // namespace ac
