// Runs a sequence through a package: the prompt in chunks, then token after token, with keys and
// values kept on the device. Knows launches and buffers, and no kernel family, graph or compiler.
//
// A decode step is recorded once and replayed for every token. What a step needs, the one before it
// left on the device (kernels/advance_plan.h); the host only looks on, some tokens behind. A step
// of a prompt is recorded when one of as many tokens comes again: launches of a short one take the
// host longer than the device.
#pragma once

#include <filesystem>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "program/sampling.h"
#include "runtime/loaded_program.h"

namespace ac {

class Engine {
 public:
  // Of a package that is loaded for it alone.
  Engine(Device& device, const std::filesystem::path& package, EngineOptions options = {});
  // Of one that other sequences share. One engine after the other may be asked for something: what
  // it leaves, logits included, is there when it is asked again.
  explicit Engine(std::shared_ptr<LoadedProgram> loaded);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Device& device() const { return device_; }
  const Program& program() const { return program_; }
  const PackageFiles& files() const { return loaded_->files(); }
  const LoadedProgram::Loaded& loaded() const { return loaded_->loaded(); }
  // What further engines of the same program are made of.
  const std::shared_ptr<LoadedProgram>& shared() const { return loaded_; }
  const std::vector<void*>& addresses() const { return addresses_; }  // of each buffer

  std::int64_t position() const { return position_; }  // tokens that are cached
  void reset() { truncate(0); }
  // Forgets all tokens but the first so many. What a window no longer holds is an error.
  void truncate(std::int64_t tokens);
  bool can_truncate(std::int64_t tokens) const;

  // A piece: what some tokens of a sequence left in the states. Pieces that follow one another
  // bring the sequence back, also in another engine of the same program, and whatever a window has
  // forgotten since.
  std::size_t piece_bytes(std::int64_t tokens) const;
  // Whether the states still have what the cached tokens `begin` to `end` left.
  bool holds(std::int64_t begin, std::int64_t end) const;
  // Copies that, within the device; neither waits.
  void save(std::int64_t begin, std::int64_t end, const Device::Memory& to);
  // As if the piece's tokens were run now. There are no logits then, until a token is run.
  void append(const Device::Memory& piece, std::int64_t tokens);

  // For measurements: random keys and values, and as if so many tokens were cached.
  void fill_caches(const RandomValues& random);
  void pretend(std::int64_t tokens);

  // How steps choose their token from now on; greedily at first. What the package or the program
  // cannot do is an error.
  void sample(const Sampling& sampling);

  // Runs these tokens; what follows them is in logits() and chosen() after it.
  void prefill(const std::vector<std::int64_t>& ids, std::int64_t chunk = 0);
  void decode(std::int64_t id);
  // As prefill, but in one step that leaves the logits after each of the tokens. A package without
  // such steps, or with shorter ones, is an error (wrong_usage).
  void run_all(const std::vector<std::int64_t>& ids);
  // Gives the token that the last step chose, and those that follow it, until there are `count`,
  // one of them is in `stops` or `on_token` returns false. All of them but the last one given are
  // cached then. A text that ends by its count or by an id ends on the device: nothing is to be
  // truncated.
  void generate(std::int64_t count, const std::function<bool(std::int64_t)>& on_token,
                const std::vector<std::int64_t>& stops = {});
  // So many steps that take the token before them; does not wait for them.
  void replay(std::int64_t steps);
  // Waits for the last so many steps. That one of them had a logit that is not finite is an error
  // (job_failed) that names the logit, as it is of generate(), logits() and chosen().
  void check_tokens(std::int64_t steps);

  std::vector<double> logits();  // after the last token that was run
  // After the token `row` of the last step, if run_all() ran it.
  std::vector<double> logits(std::int64_t row);
  std::int64_t chosen();  // from them
  // Chooses again after the last step, among the tokens that `allowed` has a bit for
  // (kernels/mask_logits_plan.h), and goes on from that token. The logits stay as they are. No
  // allowed token, and another size of mask, are errors (wrong_usage).
  std::int64_t choose(std::span<const std::uint32_t> allowed, const Sampling& sampling);

  // ---- for steps with other sequences (runtime/together.h)

  // The token that the next step runs, in place of the one that the last step chose.
  void tell(std::int64_t id);
  // Among which tokens steps with others choose from now on (as choose()); none: among all.
  void allow(std::span<const std::uint32_t> allowed);
  // When such steps end on the device: after they have chosen so many more tokens, below 0 never,
  // or one of `stops`. Steps beyond are void.
  void end_after(std::int64_t left, const std::vector<std::int64_t>& stops);
  // After them: finds out which were void, and forgets all tokens but the first so many.
  void settle(std::int64_t tokens);
  // Tokens that may be run and forgotten without loss.
  std::int64_t slack() const;

  // One launch of the program, for a step of so many tokens.
  void enqueue(const Launch& launch, std::int64_t tokens, bool overlaps);
  // The same launch by launch: what replay() records, with the drawing of a token if one is drawn.
  void enqueue(const Phase& phase, std::int64_t tokens);
  // What chooses under a mask after such a step.
  void enqueue_masked(const Phase& phase, std::int64_t tokens, bool draws);

 private:
  friend class LoadedProgram;
  friend class Together;
  // Before and after a step in which this is a row.
  void begin_row();
  void end_row(const Phase& phase, std::size_t row);
  // Of the last step's rows, in the work space.
  std::byte* logits_place(std::int64_t row) const;
  std::size_t bytes_of_logits() const;  // of one row
  // Before each step, and before the work space is asked for something.
  void begin_step();
  // Another engine's step comes, and this one may be asked for its logits.
  void keep_logits();
  void bring_logits_back();
  void check_step(std::int64_t tokens) const;
  void check_ids(const std::vector<std::int64_t>& ids) const;
  void write_ids(const std::vector<std::int64_t>& ids);
  void run_step(const Phase& phase, std::int64_t tokens);
  // In steps of `most` tokens.
  void run(const std::vector<std::int64_t>& ids, std::int64_t most, Rows rows);
  void set_position(std::int64_t position);
  void set_until(std::int64_t left, const std::vector<std::int64_t>& stops);
  void set_settings(const Sampling& sampling);
  void set_allowed(std::span<const std::uint32_t> allowed);
  void replay_steps(std::int64_t steps);
  // How many tokens it gave.
  std::int64_t follow(std::int64_t count, const std::function<bool(std::int64_t)>& on_token,
                      const std::vector<std::int64_t>& stops);
  // After steps that may have been void: where they stopped.
  void read_position(std::int64_t reached_before);
  void check_truncate(std::int64_t tokens) const;
  // Parts of a piece as they lie in the states: `count` parts of `bytes` bytes, each `pitch` bytes
  // behind the one before. In the piece they follow one another.
  struct Parts {
    std::byte* first = nullptr;
    std::size_t bytes = 0, count = 0, pitch = 0;
  };
  // Calls `copy` for all, with their place in the piece.
  void parts_of(std::int64_t begin, std::int64_t end,
                const std::function<void(std::size_t at, const Parts& in_states)>& copy) const;
  void* address_of(Buffer::Role role) const;  // of which there is one
  // The state that cannot go back to so many tokens; null if all can.
  const StateSpec* forgetful(std::int64_t tokens) const;

  const std::shared_ptr<LoadedProgram> loaded_;
  Device& device_;
  const Program& program_;
  Launcher& launcher_;
  std::vector<std::unique_ptr<Device::Memory>> memory_;
  std::vector<void*> addresses_;
  std::unique_ptr<Device::Memory> kept_;  // logits, while those of others lie in the work space
  bool has_kept_ = false;
  std::unique_ptr<Device::Memory> ids_;  // staging
  std::unique_ptr<Device::Mark> ids_sent_;
  std::unique_ptr<Device::Memory> until_;  // staging
  std::unique_ptr<Device::Mark> until_sent_;
  std::unique_ptr<Device::Memory> allowed_;  // staging
  std::unique_ptr<Device::Mark> allowed_sent_;
  bool ends_ = true;  // whether the device may end a text: until it is told, it may
  // Decode steps of one token and of kBatch. Greedy ones have nothing of those that draw.
  struct Recorded {
    std::unique_ptr<Device::Recording> one, many;
  };
  std::map<std::pair<const Phase*, bool>, Recorded> recorded_;  // by phase and whether it draws
  std::map<std::pair<const Phase*, bool>, std::unique_ptr<Device::Recording>> masked_;  // likewise
  // Steps of prompts, the last one first; those that came once are not recorded.
  struct PromptStep {
    const Phase* phase = nullptr;
    std::int64_t tokens = 0;
    bool draws = false;
    std::unique_ptr<Device::Recording> recording = {};
  };
  std::list<PromptStep> prompt_steps_;
  bool draws_ = false;
  std::optional<Sampling> settings_;            // that the device has
  std::int64_t position_ = 0, reached_ = 0;     // reached_: the most since the caches were new
  const Phase* last_ = nullptr;                 // that left logits and a chosen token
  std::int64_t first_row_ = 0, last_rows_ = 1;  // of those logits
  bool allows_all_ = false, has_mask_ = false;  // what the device's mask is, and the next step's
  std::int64_t reached_before_ = 0;             // the steps that may be void
};

}  // namespace ac
