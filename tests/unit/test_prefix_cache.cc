// Pieces of prompts between an engine and the places where they are kept, with a model that is easy
// to follow.
#include "prefix/prefix_cache.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <random>

#include "answer/generator.h"
#include "tests/unit/contains.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/running_toy.h"

namespace ac::test {
namespace {

using Ids = std::vector<std::int64_t>;
enum { kDevice, kMemory, kDisk };

constexpr std::size_t kOfPiece = 4 * (4 + 8);  // bytes of four tokens: a key, and the id in a tree

PrefixCounts::Place at(const PrefixCache& cache, int place) {
  return cache.counts().places[static_cast<std::size_t>(place)];
}

struct Asking {
  const Running& running;
  Engine engine = running.engine();
  PrefixCache cache;
  std::unique_ptr<Generator> generator = package_generator(engine, &cache);

  Asking(const Running& of, const PrefixOptions& options, const std::string& model = "toy")
      : running(of), cache(engine, options, model) {}

  // How many tokens were known; the answer must be right.
  std::int64_t ask(const Ids& ids, std::int64_t count = 3) {
    TokenRequest request{.ids = ids, .max_new_tokens = count, .reuse = Reuse::exact};
    Ids answer;
    const std::int64_t cached = generator->prompt(request, 0);
    generator->generate(request, [&](std::int64_t token) {
      answer.push_back(token);
      return true;
    });
    CHECK(answer == running.toy.follow(ids, count));
    generator->keep();
    return cached;
  }
};

Ids counted(std::int64_t from, std::int64_t count) {
  Ids ids;
  for (std::int64_t i = 0; i < count; ++i) ids.push_back((from + i * 7) % 50);
  return ids;
}

// Files are written by a thread of their own.
void wait_for(const PrefixCache& cache, std::size_t files) {
  for (int i = 0; i < 1000 && at(cache, kDisk).bytes < files * (96 + 16); ++i) usleep(10'000);
}

}  // namespace

TEST_CASE("prefix cache: prompts that alternate come back from memory, with windows and without") {
  for (const std::int64_t window : {0, 3, 7}) {
    const Running running({.chunk = 4, .window = window});
    Asking asking(running, {.memory_bytes = 100 * kOfPiece});
    const Ids one = counted(1, 19), other = counted(2, 23);
    CHECK(asking.ask(one) == 0);
    CHECK(asking.ask(other) == 0);
    CHECK(asking.ask(one) == 16);
    CHECK(asking.ask(other) == 20);
    CHECK(at(asking.cache, kMemory).tokens == 36);
    CHECK(at(asking.cache, kMemory).bytes == 9 * kOfPiece);
    Ids longer = one;
    longer.resize(16), longer.insert(longer.end(), {5, 5, 5, 5, 5});
    CHECK(asking.ask(longer) == 16);
    CHECK(asking.ask({one.begin(), one.begin() + 8}, 20) == 4);
    CHECK(asking.ask(one) == 16);
    CHECK(at(asking.cache, kDevice).tokens == 0);
    CHECK(asking.cache.counts().damaged_files == 0);
  }
}

TEST_CASE("prefix cache: random prompts are answered right, however little room there is") {
  std::mt19937 random(2);
  for (const std::int64_t window : {0, 3})
    for (const std::size_t pieces : {0, 3, 12}) {
      const Running running({.chunk = 4, .window = window});
      Asking asking(running,
                    {.device_bytes = pieces / 2 * kOfPiece, .memory_bytes = pieces * kOfPiece});
      std::int64_t known = 0;
      for (int round = 0; round < 150; ++round) {
        Ids ids = counted(static_cast<std::int64_t>(random() % 3),
                          1 + static_cast<std::int64_t>(random() % 30));
        if (random() % 3 == 0) ids.back() = 17;
        known += asking.ask(ids, 1 + static_cast<std::int64_t>(random() % 6));
        for (const PrefixCounts::Place& place : asking.cache.counts().places)
          CHECK(place.bytes <= place.room);
      }
      CHECK(known > 0);
      CHECK((at(asking.cache, kDevice).tokens > 0) == (pieces > 0));
      CHECK((at(asking.cache, kMemory).tokens > 0) == (pieces > 0));
    }
}

TEST_CASE("prefix cache: what was found far away is nearer the next time") {
  const Running running({.chunk = 4});
  const TemporaryFolder folder;
  const PrefixOptions options{.device_bytes = 1000,
                              .memory_bytes = 1000,
                              .disk_bytes = 10'000,
                              .folder = folder.path() / "states"};
  const Ids one = counted(1, 19), other = counted(2, 10);
  {
    Asking asking(running, options);
    CHECK(asking.ask(one) == 0);
    CHECK(asking.ask(other) == 0);
    CHECK(asking.ask(one) == 16);
    CHECK(at(asking.cache, kDevice).tokens == 16);
    wait_for(asking.cache, 6);
    CHECK(at(asking.cache, kDisk).bytes == 6 * (96 + 16));
  }
  {
    Asking asking(running, options);
    CHECK(asking.ask(one) == 16);
    CHECK(at(asking.cache, kDisk).tokens == 16);
    CHECK(at(asking.cache, kMemory).bytes == 4 * kOfPiece);
    CHECK(asking.ask(other) == 8);
    CHECK(asking.ask(one) == 16);
    CHECK(at(asking.cache, kDevice).tokens == 16);
  }
  // Another model, other steps.
  Asking another(running, options, "another");
  CHECK(another.ask(one) == 0);
  PrefixOptions shorter = options;
  shorter.step = 2;
  Asking in_steps(running, shorter);
  CHECK(in_steps.ask(one) == 0);
  CHECK(in_steps.ask(one) == 18);
}

TEST_CASE("prefix cache: a damaged file costs what follows it") {
  const Running running({.chunk = 4});
  const TemporaryFolder folder;
  const PrefixOptions options{
      .memory_bytes = 1000, .disk_bytes = 10'000, .folder = folder.path() / "states"};
  const Ids one = counted(1, 19);
  {
    Asking(running, options).ask(one);
  }
  int harmed = 0;
  std::int64_t known = 0;
  std::vector<std::filesystem::path> states;
  for (const auto& file : std::filesystem::directory_iterator(options.folder))
    if (file.path().extension() == ".states") states.push_back(file.path());
  for (const std::filesystem::path& file : states) {
    std::string content = read_file(file, 1000);
    content.back() = static_cast<char>(content.back() ^ 1);
    write_file(file, content);
    Asking asking(running, options);
    const std::int64_t cached = asking.ask(one);
    CHECK(cached < 16);
    CHECK(asking.cache.counts().damaged_files == 1);
    known += cached;
    ++harmed;
  }
  CHECK(harmed == 4);
  CHECK(known == 0 + 4 + 8 + 12);  // each was written again
}

TEST_CASE("prefix cache: files that take longer than running their tokens are not used") {
  const Running running({.chunk = 4});
  const Ids one = counted(1, 38), other = counted(2, 38);
  for (const bool slow : {false, true}) {
    const TemporaryFolder folder;
    PrefixOptions options{
        .memory_bytes = 10'000, .disk_bytes = 10'000, .folder = folder.path() / "states"};
    {
      Asking asking(running, options);
      asking.ask(one), asking.ask(other);
    }
    std::size_t looks = 0;
    options.seconds = [&] {
      // A load of 2 s, and runs of 9 s and then 1 or 3.
      const std::array<double, 6> times = {0, 2, 10, 19, 20, slow ? 21.0 : 23.0};
      return times[std::min<std::size_t>(looks++, 5)];
    };
    Asking asking(running, options);
    CHECK(asking.ask(one) == (slow ? 12 : 36));
    CHECK(at(asking.cache, kDisk).tokens == (slow ? 4 : 28));
    // What the memory has is used in any case.
    CHECK(asking.ask(other) == (slow ? 0 : 36));
    CHECK(asking.ask(one) == 36);
    CHECK(asking.ask(counted(3, 38)) == 0);
  }
}

TEST_CASE("prefix cache: a prompt that goes on does not wait for what is kept") {
  const Running running({.chunk = 4});
  Asking asking(running, {.memory_bytes = 100 * kOfPiece});
  const auto prompt = [&](const Ids& ids) {
    return asking.generator->prompt({.ids = ids, .reuse = Reuse::exact}, 0);
  };
  const auto kept = [&] { return at(asking.cache, kMemory).bytes / kOfPiece; };
  CHECK(prompt(counted(1, 19)) == 0);
  int times = 0;
  asking.generator->keep([&] { return times++ == 2; });
  CHECK(kept() == 2);
  CHECK(prompt(counted(1, 25)) == 16);
  CHECK(kept() == 2);
  CHECK(asking.ask(counted(2, 9)) == 0);
  CHECK(kept() == 6 + 2);
  CHECK(asking.ask(counted(1, 25)) == 24);
}

TEST_CASE("prefix cache: only what a place lacks of a prompt is kept, and where it has room") {
  const Running running({.chunk = 4});
  for (const std::size_t pieces_on_device : {0, 2, 100}) {
    Asking asking(running,
                  {.device_bytes = pieces_on_device * kOfPiece, .memory_bytes = 100 * kOfPiece});
    const auto times = [&](const Ids& ids) {
      int times = 0;
      asking.generator->prompt({.ids = ids, .reuse = Reuse::exact}, 0);
      asking.generator->keep([&] { return times++, false; });
      return times;
    };
    CHECK(times(counted(1, 30)) == 7);
    CHECK(at(asking.cache, kMemory).bytes == 7 * kOfPiece);
    CHECK(at(asking.cache, kDevice).bytes == std::min<std::size_t>(pieces_on_device, 7) * kOfPiece);
    // Once more where the device has to be asked for room.
    CHECK(times(counted(1, 30)) == (pieces_on_device < 7 ? 2 : 1));
    CHECK(times(counted(1, 39)) == (pieces_on_device < 7 ? 3 : 2));
    CHECK(at(asking.cache, kMemory).bytes == 9 * kOfPiece);
  }
}

TEST_CASE("prefix cache: steps that the package does not have are refused") {
  const Running running({.chunk = 4});
  Engine engine = running.engine();
  CHECK(contains(error_of(Fault::wrong_usage, [&] { PrefixCache(engine, {.step = 5}, "toy"); }),
                 "at most 4 tokens"));
}

}  // namespace ac::test
