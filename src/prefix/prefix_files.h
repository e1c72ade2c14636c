// What was kept of prompts, in a folder: a file for each piece, named by a digest of the model and
// of all tokens up to the piece's end. Servers may share a folder, and it outlives them.
//
// Files are written in a thread of their own, each beside its place and renamed into it. A file
// says its name and the digest of what it holds: one that is torn, cut off, of another name or
// otherwise not what was written is found out when it is read, removed, said once, and counted. No
// file is synced to the disk, as a crash of the machine only costs files. Who may write into the
// folder is trusted: a digest guards against damage, and not against someone who makes a new one.
//
// A file's time says when it was last used, those before it in the prompt later: where there is no
// room, the oldest goes. What waits to be written is held by nobody here; what is gone from
// memory meanwhile is not written.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace ac {

class PrefixFiles {
 public:
  // The first byte of a piece's content.
  using Content = std::shared_ptr<const std::byte>;

  // Makes the folder, for this user alone. One that others may write into is an error
  // (wrong_usage).
  PrefixFiles(std::filesystem::path folder, std::size_t room);
  // Writes what still waits.
  ~PrefixFiles();
  PrefixFiles(const PrefixFiles&) = delete;
  PrefixFiles& operator=(const PrefixFiles&) = delete;

  // Keys are 64 hexadecimal digits.
  bool has(const std::string& key) const;
  // False: it is not there, or cannot be used; then what is in `to` means nothing.
  bool load(const std::string& key, std::span<std::byte> to);
  struct Piece {
    std::string key;
    std::size_t bytes = 0;
    std::weak_ptr<const std::byte> content;
  };
  // Of a prompt, from its first one on: those that are not there are written later, as many as
  // there is room for; those that are have been used now.
  void offer(std::vector<Piece> pieces);

  struct Counts {
    std::int64_t evictions = 0, damaged = 0;
    std::size_t bytes = 0;  // in the folder, when it was last looked at
  };
  Counts counts() const;
  std::size_t room() const { return room_; }

 private:
  void work();
  void write(std::vector<Piece> pieces);
  std::filesystem::path file_of(const std::string& key) const;

  const std::filesystem::path folder_;
  const std::size_t room_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::vector<Piece>> waiting_;
  bool closed_ = false;
  Counts counts_;
  std::thread thread_;
};

}  // namespace ac
