// Pieces in a folder: what is written comes back or not at all, whatever becomes of the files.
#include "prefix/prefix_files.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include "base/files.h"
#include "base/temporary_folder.h"
#include "build/digest.h"
#include "tests/unit/contains.h"
#include "tests/unit/expect_error.h"

namespace ac::test {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::byte>;
using Content = PrefixFiles::Content;

constexpr std::size_t kBytes = 1000, kHeader = 96, kFile = kBytes + kHeader, kRoom = 100 * kFile;

std::string key_of(int number) { return sha256(std::to_string(number)); }

Bytes bytes_of(int number, std::size_t bytes = kBytes) {
  std::mt19937 random(static_cast<unsigned>(number));
  Bytes content(bytes);
  for (std::byte& byte : content) byte = static_cast<std::byte>(random());
  return content;
}

Content content_of(int number, std::size_t bytes) {
  const auto content = std::make_shared<Bytes>(bytes_of(number, bytes));
  return {content, content->data()};
}

// Nothing: it is not there.
std::optional<Bytes> loaded(PrefixFiles& files, int number, std::size_t bytes = kBytes) {
  Bytes content(bytes);
  return files.load(key_of(number), content) ? std::optional(content) : std::nullopt;
}

struct Folder {
  TemporaryFolder temporary;
  fs::path path = temporary.path() / "states";

  fs::path file(int number) const { return path / (key_of(number) + ".states"); }
  std::size_t files() const {
    std::size_t count = 0;
    for (const auto& each : fs::directory_iterator(path))
      count += each.path().extension() == ".states";
    return count;
  }
  // Whatever else than states, but for the lock.
  std::vector<std::string> others() const {
    std::vector<std::string> names;
    for (const auto& each : fs::directory_iterator(path))
      if (each.path().extension() != ".states" && each.path().filename() != "lock")
        names.push_back(each.path().filename());
    return names;
  }
};

// One prompt of these pieces, whose contents are kept until all is written.
struct Pieces {
  explicit Pieces(const std::vector<int>& numbers, std::size_t bytes = kBytes) {
    for (const int number : numbers) {
      contents.push_back(content_of(number, bytes));
      pieces.push_back({key_of(number), bytes, contents.back()});
    }
  }
  std::vector<Content> contents;
  std::vector<PrefixFiles::Piece> pieces;
};

void write(const Folder& folder, const std::vector<int>& numbers, std::size_t room = kRoom) {
  const Pieces prompt(numbers);
  PrefixFiles files(folder.path, room);
  files.offer(prompt.pieces);
}

bool is_there(PrefixFiles& files, int number) {
  const auto content = loaded(files, number);
  if (content) CHECK(*content == bytes_of(number));
  return content.has_value();
}

}  // namespace

TEST_CASE("prefix files: they are there for the next process, and for nobody else to read") {
  const Folder folder;
  write(folder, {1, 2, 3});
  PrefixFiles files(folder.path, kRoom);
  for (const int number : {1, 2, 3}) {
    CHECK(files.has(key_of(number)));
    CHECK(is_there(files, number));
  }
  CHECK_FALSE(files.has(key_of(4)));
  CHECK_FALSE(is_there(files, 4));
  CHECK(files.counts().damaged == 0);
  struct stat info{};
  REQUIRE(stat(folder.path.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0700);
  REQUIRE(stat(folder.file(1).c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  CHECK(folder.others().empty());
}

TEST_CASE("prefix files: a file that was harmed is found out, counted and removed") {
  const Folder folder;
  write(folder, {1});
  const std::string whole = read_file(folder.file(1), 1 << 20);
  REQUIRE(whole.size() == kFile);
  std::vector<std::string> harmed = {"",
                                     "x",
                                     whole.substr(0, kHeader),
                                     whole.substr(0, kFile - 1),
                                     whole + "x",
                                     std::string(kFile, '\0'),
                                     std::string(kFile, 'A')};
  for (std::size_t at = 0; at < kFile; at += at < kHeader ? 1 : 37) {
    harmed.push_back(whole);
    harmed.back()[at] = static_cast<char>(harmed.back()[at] ^ (1 << (at % 8)));
  }
  // Whole, and of another piece.
  write(folder, {2});
  harmed.push_back(read_file(folder.file(2), 1 << 20));
  PrefixFiles files(folder.path, kRoom);
  std::int64_t damaged = 0;
  for (const std::string& content : harmed) {
    write_file(folder.file(1), content);
    CHECK_FALSE(is_there(files, 1));
    CHECK(files.counts().damaged == ++damaged);
    CHECK_FALSE(fs::exists(folder.file(1)));
  }
  write_file(folder.file(1), whole);
  CHECK(is_there(files, 1));
  // What is no file.
  fs::remove(folder.file(1));
  fs::create_symlink(folder.file(2), folder.file(1));
  CHECK_FALSE(is_there(files, 1));
  CHECK(is_there(files, 2));
  REQUIRE(mkfifo(folder.file(3).c_str(), 0600) == 0);
  CHECK_FALSE(is_there(files, 3));
  fs::create_directory(folder.file(4));
  CHECK_FALSE(is_there(files, 4));
  // Of another length than the model's states are now.
  CHECK_FALSE(loaded(files, 2, kBytes + 1));
}

TEST_CASE("prefix files: what was not used for longest goes first, and the room is kept") {
  const Folder folder;
  const Pieces one({1, 2}), other({3}), third({4, 5});
  PrefixFiles files(folder.path, 4 * kFile);
  const auto offer = [&](const Pieces& prompt) {
    files.offer(prompt.pieces);
    for (int i = 0; i < 1000 && !files.has(prompt.pieces.back().key); ++i) usleep(10'000);
    usleep(50'000);  // and what comes after it
  };
  offer(one), offer(other), offer(one), offer(third);
  CHECK(is_there(files, 1));
  CHECK(is_there(files, 2));
  CHECK_FALSE(is_there(files, 3));
  CHECK(files.counts().evictions == 1);
  CHECK(files.counts().bytes == 4 * kFile);
  offer(other);  // the end of the oldest prompt goes before its beginning
  CHECK(is_there(files, 1));
  CHECK_FALSE(is_there(files, 2));
  CHECK(is_there(files, 3));
  // A prompt that is longer than there is room for: its beginning.
  const Pieces longer({11, 12, 13, 14, 15, 16});
  files.offer(longer.pieces);
  for (int i = 0; i < 1000 && !files.has(key_of(14)); ++i) usleep(10'000);
  usleep(50'000);
  CHECK(is_there(files, 11));
  CHECK(is_there(files, 14));
  CHECK_FALSE(is_there(files, 15));
  CHECK(folder.files() == 4);
}

TEST_CASE("prefix files: less room than there was, and files of others") {
  const Folder folder;
  write(folder, {1, 2, 3, 4, 5});
  write_file(folder.path / "notes.txt", std::string(10'000, 'x'));
  write_file(folder.path / (key_of(1) + ".states.AbCdEf"), "of a process that was killed");
  write(folder, {}, 2 * kFile);
  CHECK(folder.files() == 2);
  CHECK(folder.others() == std::vector<std::string>{"notes.txt"});
  PrefixFiles files(folder.path, 2 * kFile);
  CHECK(is_there(files, 1));
  CHECK(is_there(files, 2));
}

TEST_CASE("prefix files: what is gone from memory is not written, nor what follows it") {
  const Folder folder;
  {
    Pieces prompt({1, 2, 3});
    prompt.contents[1].reset();
    prompt.pieces[1].content.reset();
    PrefixFiles files(folder.path, kRoom);
    files.offer(prompt.pieces);
    // Destroyed with the contents there: what waits is written.
    for (int i = 0; i < 1000 && !files.has(key_of(1)); ++i) usleep(10'000);
  }
  PrefixFiles files(folder.path, kRoom);
  CHECK(is_there(files, 1));
  CHECK_FALSE(files.has(key_of(2)));
  CHECK_FALSE(files.has(key_of(3)));
}

TEST_CASE("prefix files: a full disk costs what does not fit, and nothing else") {
  const Folder folder;
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto old = signal(SIGXFSZ, SIG_IGN);
  const rlimit tight{kFile / 2, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &tight) == 0);
  write(folder, {1, 2});
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  signal(SIGXFSZ, old);
  CHECK(folder.files() == 0);
  CHECK(folder.others().empty());
  write(folder, {1, 2});
  CHECK(folder.files() == 2);
}

TEST_CASE("prefix files: a writer that is killed leaves whole files or none") {
  const Folder folder;
  std::mt19937 random(3);
  constexpr std::size_t kLarge = 200'000;
  for (int round = 0; round < 12; ++round) {
    const pid_t writer = fork();
    if (writer == 0) {
      std::vector<int> numbers(20);
      for (int i = 0; i < 20; ++i) numbers[static_cast<std::size_t>(i)] = 100 * round + i;
      const Pieces prompt(numbers, kLarge);
      {
        PrefixFiles files(folder.path, 30 * (kLarge + kHeader));
        files.offer(prompt.pieces);
      }
      _exit(0);
    }
    REQUIRE(writer > 0);
    usleep(static_cast<useconds_t>(random() % 60'000));
    kill(writer, SIGKILL);
    REQUIRE(waitpid(writer, nullptr, 0) == writer);
  }
  write(folder, {}, 30 * (kLarge + kHeader));
  CHECK(folder.others().empty());
  PrefixFiles files(folder.path, kRoom);
  for (int number = 0; number < 1200; ++number)
    if (const auto content = loaded(files, number, kLarge))
      CHECK(*content == bytes_of(number, kLarge));
  CHECK(files.counts().damaged == 0);
}

TEST_CASE("prefix files: two processes with one folder") {
  const Folder folder;
  constexpr std::size_t kLittle = 8 * kFile;
  std::vector<pid_t> writers;
  for (int which = 0; which < 2; ++which) {
    writers.push_back(fork());
    if (writers.back() != 0) continue;
    bool right = true;
    {
      PrefixFiles files(folder.path, kLittle);
      for (int round = 0; round < 60; ++round) {
        // Some prompts are of both.
        const int number = 10 * (round * (which + 1) % 7);
        const Pieces prompt({number, number + 1, number + 2});
        files.offer(prompt.pieces);
        usleep(2000);
        for (int i = 0; i < 3; ++i)
          if (const auto content = loaded(files, number + i))
            right &= *content == bytes_of(number + i);
      }
      right &= files.counts().damaged == 0;
    }
    _exit(right ? 0 : 1);
  }
  for (const pid_t writer : writers) {
    int status = 1;
    REQUIRE(waitpid(writer, &status, 0) == writer);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
  CHECK(folder.files() <= 8);
  CHECK(folder.files() > 0);
  CHECK(folder.others().empty());
}

TEST_CASE("prefix files: a folder that others may write into, and what is no folder, is refused") {
  const Folder folder;
  fs::create_directories(folder.path);
  REQUIRE(chmod(folder.path.c_str(), 0770) == 0);
  CHECK(contains(error_of(Fault::wrong_usage, [&] { PrefixFiles(folder.path, kRoom); }),
                 "chmod go-w"));
  REQUIRE(chmod(folder.path.c_str(), 0755) == 0);
  PrefixFiles(folder.path, kRoom);
  write_file(folder.path / "file", "");
  for (const char* name : {"file", "file/below"})
    CHECK(contains(error_of(Fault::wrong_usage, [&] { PrefixFiles(folder.path / name, kRoom); }),
                   "is no folder"));
}

}  // namespace ac::test
