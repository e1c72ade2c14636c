// What was run of earlier prompts, brought back where another one begins alike.
//
// A prompt is run in whole steps of a fixed number of tokens, and what is left of it in a shorter
// one. What a whole step leaves in the states of a sequence is a piece, and depends on nothing but
// the tokens up to its end: an engine that takes pieces from here has the same bits as one that has
// run the prompt from its beginning. What was generated, or run in the last, shorter step, is not
// kept: another prompt would compute it in other steps, and not to the bit.
//
// A piece holds its own tokens alone, and follows those before it: what prompts have in common is
// kept once. So are windows, since an engine takes all pieces of a prompt, one after the other.
//
// There are three places for pieces, each with its own room: the device's memory, the host's, and a
// folder (prefix_files.h). Each keeps what was used last. A piece that is found in one goes to
// those that are faster. Files are used where a piece comes from one sooner than it is run: the
// first time, one is loaded and the next ones are run.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "prefix/prefix_files.h"
#include "prefix/prefix_tree.h"
#include "runtime/engine.h"

namespace ac {

struct PrefixOptions {
  // Room on the device. If it is not given: a quarter of the device's free memory, at most 8 GiB,
  // and none on the host device, whose memory is the host's.
  std::optional<std::size_t> device_bytes = {};
  std::size_t memory_bytes = 0, disk_bytes = 0;
  std::filesystem::path folder = {};     // empty: none
  std::int64_t step = 0;                 // tokens; 0: of the program's steps the longest, up to 512
  std::function<double()> seconds = {};  // a clock; empty: the machine's
};

struct PrefixCounts {
  struct Place {
    std::int64_t tokens = 0, evictions = 0;  // brought back from there; pieces that had to go
    std::size_t bytes = 0, room = 0;
  };
  static constexpr std::array<std::string_view, 3> kPlaces = {"device", "memory", "disk"};
  std::array<Place, kPlaces.size()> places;
  std::int64_t damaged_files = 0;
};

class PrefixCache {
 public:
  // For all engines that share this one's program; the device outlives it. `model` names all that
  // their states follow from but tokens (identity_of, runtime/fingerprint.h): a folder's pieces are
  // found by it. A step that the program does not have, and a folder that cannot be used, are
  // errors (wrong_usage).
  PrefixCache(const Engine& engine, const PrefixOptions& options, const std::string& model);

  std::int64_t step() const { return step_; }
  // How many tokens of a prompt could be brought back, if no file is damaged. The last one is not
  // among them: it is to be run.
  std::int64_t known(Tokens prompt) const;
  // The engine has so many of the first ones, in whole steps. Brings back those that follow, and
  // says how many there are then.
  std::int64_t recall(Engine& engine, Tokens prompt, std::int64_t cached);
  // recall() must get so many pieces more of a prompt than there are cached, or all.
  std::int64_t pieces_to_recall() const { return files_ && !files_pay_ ? 1 + kTimedRuns : 1; }
  // Keeps one more piece of these tokens, all of which the engine has; they are whole pieces. The
  // first `kept` tokens were offered before. Says how many tokens are kept afterwards.
  std::int64_t keep(Engine& engine, Tokens tokens, std::int64_t kept);

  PrefixCounts counts() const;

 private:
  // Memory that the device copies from and to by itself. What is not used any more is used again:
  // to make such memory takes longer than to fill it.
  using Kept = std::shared_ptr<std::byte>;
  struct Unused {
    std::mutex mutex;
    std::vector<std::unique_ptr<Device::Memory>> memory;
  };
  using Key = std::string;
  // Of each of the first pieces.
  std::vector<Key> keys_of(Tokens tokens) const;
  // The last of these pieces; false if the engine has it not, or there is no room.
  bool keep_on_device(Engine& engine, Tokens pieces);
  bool keep_in_memory(Engine& engine, Tokens pieces);
  Kept take_memory();
  Kept load(const Key& key);  // null: there is no such file
  // A piece came from a file in so many seconds. Runs those that follow, and says how many tokens
  // there are then.
  std::int64_t judge_files(Engine& engine, Tokens prompt, std::int64_t cached, double loaded);

  static constexpr std::int64_t kTimedRuns = 2;  // the first one may be slower than others

  Device& on_;
  const std::function<double()> seconds_;
  const std::int64_t step_;
  const std::size_t bytes_;  // of a piece
  const Key root_;
  const std::shared_ptr<Unused> unused_ = std::make_shared<Unused>();
  PrefixTree<std::unique_ptr<Device::Memory>> device_;
  PrefixTree<Kept> memory_;
  std::unique_ptr<Device::Memory> between_;  // a piece on its way
  std::array<std::int64_t, PrefixCounts::kPlaces.size()> tokens_{};
  std::optional<bool> files_pay_;       // nothing: that is not known yet
  std::unique_ptr<PrefixFiles> files_;  // last: what it writes is in memory_
};

}  // namespace ac
