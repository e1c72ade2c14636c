#include "admit/trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "admit/draw_subject.h"
#include "admit/mask_subject.h"
#include "admit/trial_step.h"
#include "analyze/fragment.h"
#include "base/error.h"
#include "ir/graph_text.h"
#include "program/program.h"
#include "program/sampling.h"
#include "validate/buffers.h"
#include "validate/ending_subject.h"
#include "validate/graph_subject.h"
#include "validate/repeated_subject.h"

namespace ac {
namespace {

using validate::Buffers;
using validate::Elements;
using validate::Subject;
using validate::TensorSpec;

// Rows whose truth is computed together, and how often in each launch, from its first row to its
// last.
constexpr std::int64_t kFewRows = 4, kSamples = kJudgedRows / kFewRows;

// A trial with more elements than this takes a good part of a second to draw them, in each
// scenario.
constexpr std::int64_t kManyElements = 32'000'000;

std::int64_t elements_of(const Subject& subject) {
  std::int64_t all = 0;
  for (const TensorSpec& spec : subject.tensors)
    if (spec.is_read()) all += spec.count();
  return all;
}

constexpr std::array<std::string_view, 3> kPurposes = {"quick", "as used", "races"};

// The largest logit goes where it is a block's alone: of one beside those that a warp, or a block,
// has threads for. One at the very end stays there.
void move_largest(std::vector<double>& logits, std::int64_t blocks, std::int64_t threads) {
  const std::int32_t at = greedy_token(logits);
  if (at < 0 || at + 1 == std::ssize(logits)) return;  // one is not finite; the end
  const auto chance = std::bit_cast<std::uint64_t>(logits.front()) >> 29;  // float32's last bits
  const auto of = [&](std::uint64_t count) { return static_cast<std::int64_t>(chance % count); };
  const std::array<std::int64_t, 4> chosen = {30 + of(5), threads - 1 + of(5), blocks - 1 - of(2),
                                              0};
  const std::int64_t block = chosen[chance / 5 % chosen.size()];
  if (block < 0 || block >= blocks) return;
  const auto to = static_cast<std::size_t>((2 * block + 1) * std::ssize(logits) / (2 * blocks));
  std::swap(logits[to], logits[static_cast<std::size_t>(at)]);
}

// The largest logit, if it is alone, gets a neighbour that comes before it and differs in the last
// bit; one that is nearly 0 gets zeros about it.
void make_close(DType dtype, std::vector<double>& logits) {
  const std::int32_t at = greedy_token(logits);
  if (at < 0) return;  // one is not finite
  double& largest = logits[static_cast<std::size_t>(at)];
  if (largest == 0 || std::ranges::count(logits, largest) > 1) return;
  const auto with_last_bit = [&](bool set) {
    std::array<unsigned char, 4> bytes{};
    store_element(dtype, largest, bytes.data());
    bytes[0] = static_cast<unsigned char>((bytes[0] & 0xfe) | (set ? 1 : 0));
    return load_element(dtype, bytes.data());
  };
  if (largest > 0 && largest < 0x1p-100) {
    const double least = std::ldexp(1.0, dtype == DType::f32 ? -149 : -133);
    for (double& logit : logits) logit = std::min(logit, 0.0);
    largest = least;
  } else if (at > 0) {
    const double larger = with_last_bit(largest > 0);
    logits[static_cast<std::size_t>(at / 2)] = with_last_bit(largest < 0);
    largest = larger;
  }
}

Subject subject_of_step(const Trial& trial, const StepGraph& step) {
  return validate::subject_of(step, {.tokens = trial.tokens,
                                     .capacity = trial.capacity,
                                     .positions = trial.positions,
                                     .limits = trial.limits,
                                     .rounds_weights = trial.rounds_weights});
}

struct Repeated {
  StepGraph step;  // with few rows
  Subject subject;
};
std::optional<Repeated> with_repeated_rows(const Trial& trial, const StepGraph& step,
                                           std::int64_t rows) {
  StepGraph few = with_fewer_rows(with_short_tables(step, rows),
                                  [&](std::int64_t n) { return std::min(n, rows); });
  Trial of_few = trial;
  for (auto& [name, limit] : of_few.limits) limit = std::min(limit, rows);
  auto subject = validate::repeated(subject_of_step(of_few, few), subject_of_step(trial, step));
  if (!subject) return std::nullopt;
  return Repeated{std::move(few), *std::move(subject)};
}

class TrialRun {
 public:
  TrialRun(const Trial& trial, const RunLaunches& launch)
      : trial_(trial), launch_(launch), token_(std::make_shared<std::int32_t>()) {
    if (trial.draws)
      subject_ = draw_subject(trial);
    else if (trial.masks)
      make_masking();
    else if (trial.vocab > 0)
      make_sampling();
    else if (trial.log > 0)
      make_ending();
    else
      make_step();
    for (const Buffer& buffer : trial.buffers) places_.push_back(place_of(buffer));
    subject_.run = [this](const Buffers& buffers, unsigned order) { return run(buffers, order); };
    if (!trial.alone.empty() && trial.purpose != Purpose::races)
      subject_.run_alone = [this](const Buffers& buffers, std::int64_t row, unsigned order) {
        return run_alone(buffers, row, order);
      };
  }

  const Subject& subject() const { return subject_; }

 private:
  // A tensor of the subject, or memory of our own.
  struct Place {
    std::size_t tensor = 0;
    std::span<std::byte> own = {};
  };

  void make_step() {
    step_ = parse_step(trial_.step, "trial");
    subject_ = subject_of_step(trial_, step_);
    if (trial_.distinct_rows == 0) return;
    auto repeated = with_repeated_rows(trial_, step_, trial_.distinct_rows);
    if (!repeated) bad_input("a trial: its rows cannot repeat {}", trial_.distinct_rows);
    subject_ = std::move(repeated->subject);
  }

  void make_sampling() {
    subject_.tensors = {
        {.name = "logits", .dtype = trial_.logits, .shape = {trial_.vocab}},
        {.name = "token", .dtype = DType::i32, .shape = {1}, .role = validate::TensorRole::output}};
    subject_.constrain = hard_to_choose();
    subject_.truth = subject_.plain = [](const Elements& in) {
      return Elements{{}, {static_cast<double>(greedy_token(in[0]))}};
    };
  }

  void make_masking() {
    subject_ = mask_subject(trial_);
    subject_.constrain = [hard = hard_to_choose(), mask = subject_.constrain](Elements& in) {
      hard(in);
      mask(in);
    };
  }

  // Makes logits of which it takes care to choose the largest.
  std::function<void(Elements&)> hard_to_choose() const {
    const Launch& first = trial_.launches.front();
    return [dtype = trial_.logits, blocks = first.grid[0].at(1),
            threads = first.threads](Elements& in) {
      move_largest(in[0], blocks, threads);
      make_close(dtype, in[0]);
    };
  }

  void make_ending() {
    step_ = parse_step(trial_.step, "trial");
    subject_ = validate::subject_of_ending(step_.graph.type(0).dtype, trial_.tokens, trial_.log,
                                           trial_.positions);
  }

  Place scratch(const char* name, const Buffer& buffer,
                validate::TensorRole role = validate::TensorRole::workspace) {
    const std::int64_t bytes = buffer.bytes.at(trial_.tokens);
    subject_.tensors.push_back({.name = fmt::format("{}{}", name, subject_.tensors.size()),
                                .dtype = DType::i32,
                                .shape = {std::max<std::int64_t>((bytes + 3) / 4, 1)},
                                .role = role});
    return {subject_.tensors.size() - 1};
  }

  Place place_of(const Buffer& buffer) {
    using BufferRole = Buffer::Role;
    const auto tensor = [&](const std::string& name) {
      return Place{validate::index_of(subject_, name)};
    };
    switch (buffer.role) {
      case BufferRole::ids:
      case BufferRole::position:
      case BufferRole::log:
      case BufferRole::until:
      case BufferRole::settings:
      case BufferRole::allowed:
        return tensor(std::string(to_string(buffer.role)));
      case BufferRole::weight:
        return tensor(buffer.key);
      case BufferRole::state: {
        const StateSpec& state = step_.states[static_cast<std::size_t>(buffer.state)];
        const auto number = static_cast<std::size_t>(buffer.tensor);
        return tensor(validate::name_of_state(buffer.state, state.tensors[number]));
      }
      case BufferRole::token:
        if (trial_.vocab > 0 || trial_.log > 0) return tensor("token");
        chooses_ = true;
        return {0, std::as_writable_bytes(std::span(token_.get(), 1))};
      case BufferRole::constant:
      case BufferRole::rope_table:
        return own(*contents_of(step_, buffer, std::ranges::max(trial_.positions) + trial_.tokens));
      case BufferRole::scratch:
        return buffer.is_workspace() ? scratch("workspace", buffer) : place_of_value(buffer);
      case BufferRole::counters:
        return scratch("counters", buffer, validate::TensorRole::counter);
      case BufferRole::kept:  // from launch to launch of all that is tried
        return own(
            std::vector<std::byte>(static_cast<std::size_t>(buffer.bytes.at(trial_.tokens))));
    }
    AC_UNREACHABLE();
  }

  Place place_of_value(const Buffer& buffer) {
    if (trial_.masks) return {validate::index_of(subject_, buffer.node == 0 ? "logits" : "masked")};
    if (trial_.vocab > 0) return {0};
    const Node& node = step_.graph[buffer.node];
    if (node.op == Op::input) return {validate::index_of(subject_, node.text("name"))};
    for (const Output& output : step_.graph.outputs)
      if (output.node == buffer.node) {
        logits_ = validate::index_of(subject_, output.name);
        return {logits_};
      }
    return scratch("inner", buffer);
  }

  Place own(std::span<const std::byte> bytes) {
    // Words of 16 bytes, for their alignment.
    struct alignas(16) Word {
      std::byte bytes[16];
    };
    const auto memory = std::make_shared<std::vector<Word>>(bytes.size() / 16 + 1);
    std::memcpy(memory->data(), bytes.data(), bytes.size());
    own_.push_back(memory);
    return {0, std::as_writable_bytes(std::span(*memory)).first(bytes.size())};
  }

  // The launches of a step of one token, on what belongs to token `row`.
  std::string run_alone(const Buffers& buffers, std::int64_t row, unsigned order) const {
    Trial one = trial_;
    one.tokens = 1;
    one.launches = trial_.alone;
    std::vector<std::span<std::byte>> places;
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const Place& place = places_[i];
      places.push_back(place.own.empty() ? buffers[place.tensor] : place.own);
      const auto of_token = static_cast<std::size_t>(trial_.buffers[i].bytes.per_token);
      if (of_token > 0)
        places.back() = places.back().subspan(static_cast<std::size_t>(row) * of_token, of_token);
    }
    return launch_(one, places, order);
  }

  // As one row of several: the others have other values, and write to memory of their own.
  std::vector<std::span<std::byte>> among_others(const std::vector<std::span<std::byte>>& places,
                                                 unsigned order) const {
    const auto rows = static_cast<std::size_t>(trial_.rows);
    others_.resize((rows - 1) * places.size());
    std::vector<std::span<std::byte>> all;
    for (std::size_t row = 0, other = 0; row < rows; ++row)
      if (row == order % rows)
        all.insert(all.end(), places.begin(), places.end());
      else
        for (std::size_t i = 0; i < places.size(); ++i, ++other)
          all.push_back(place_of_other(trial_.buffers[i], places[i], others_[other]));
    return all;
  }

  static std::span<std::byte> place_of_other(const Buffer& buffer, std::span<std::byte> judged,
                                             std::vector<std::byte>& memory) {
    using BufferRole = Buffer::Role;
    if (buffer.role == BufferRole::weight || buffer.role == BufferRole::constant ||
        buffer.role == BufferRole::rope_table)
      return judged;
    const bool is_new = memory.size() != judged.size();
    memory.resize(judged.size());
    // Numbers of every type; else zeros: no token is cached, and every id is the first. Launches
    // leave counters as they have to be.
    if (buffer.role == BufferRole::scratch)
      for (std::size_t i = 0; i < memory.size(); ++i)
        memory[i] = static_cast<std::byte>(0x30 + i * 7 % 13);
    else if ((buffer.role != BufferRole::counters && buffer.role != BufferRole::kept) || is_new)
      std::ranges::fill(memory, std::byte{0});
    return memory;
  }

  std::string run(const Buffers& buffers, unsigned order) const {
    std::vector<std::span<std::byte>> places;
    for (const Place& place : places_)
      places.push_back(place.own.empty() ? buffers[place.tensor] : place.own);
    *token_ = -1;
    const std::string error =
        launch_(trial_, trial_.rows > 1 ? among_others(places, order) : places, order);
    if (!error.empty()) return error;
    if (trial_.draws) return settle_draw(subject_, trial_, buffers, workspace(places));
    if (trial_.masks) return check_masked(subject_, buffers);
    if (!chooses_) return {};
    const TensorSpec& spec = subject_.tensors[logits_];
    const std::int32_t wanted = greedy_token(validate::load_elements(spec, buffers[logits_]));
    if (*token_ != wanted)
      return fmt::format("it chose {} where its logits say {}", *token_, wanted);
    return {};
  }

  // The first that the trial has.
  std::span<const std::byte> workspace(const std::vector<std::span<std::byte>>& places) const {
    for (std::size_t i = 0; i < places.size(); ++i)
      if (trial_.buffers[i].is_workspace()) return places[i];
    return {};
  }

  const Trial& trial_;
  const RunLaunches& launch_;
  StepGraph step_;
  Subject subject_;
  std::vector<Place> places_;
  std::vector<std::shared_ptr<void>> own_;
  mutable std::vector<std::vector<std::byte>> others_;  // by row, without the judged one's
  std::shared_ptr<std::int32_t> token_;
  bool chooses_ = false;
  std::size_t logits_ = 0;
};

// The trial with a step of its other_tokens, at two of the positions that leave it room.
Trial at_tokens(const Trial& trial, std::size_t i) {
  Trial other = trial;
  other.tokens = trial.other_tokens[i];
  other.other_tokens.clear();
  // A windowed cache takes any position, as it forgets; another one has room for so many.
  const bool wraps = std::ranges::max(trial.positions) + trial.tokens > trial.capacity;
  std::erase_if(other.positions, [&](std::int64_t position) {
    return !wraps && position + other.tokens > trial.capacity;
  });
  if (other.positions.size() > 2)
    other.positions = {other.positions[i % other.positions.size()], other.positions.back()};
  return other;
}

}  // namespace

std::string_view to_string(Purpose purpose) { return kPurposes[static_cast<std::size_t>(purpose)]; }

std::optional<StepGraph> with_distinct_rows(const Trial& trial, std::int64_t rows) {
  auto repeated = with_repeated_rows(trial, parse_step(trial.step, "trial"), rows);
  if (!repeated) return std::nullopt;
  return std::move(repeated->step);
}

std::vector<const Launch*> Trial::all_launches() const {
  std::vector<const Launch*> all;
  for (const std::vector<Launch>* some : {&launches, &alone})
    for (const Launch& launch : *some) all.push_back(&launch);
  return all;
}

validate::GateOptions gate_for(const Trial& trial) {
  validate::GateOptions options;
  if (trial.purpose != Purpose::quick) {
    // The quick trial has asked all other questions. One run of a kernel that chooses or draws a
    // token says little.
    const bool as_used = trial.purpose == Purpose::as_used;
    const bool chooses = trial.vocab > 0 && !trial.draws && as_used;
    options.seeds = chooses ? 16 : trial.vocab > 0 ? 4 : 1;
    options.scales = {1}, options.repeated = 0, options.asks_influence = false;
    options.structured = as_used && !trial.vast && trial.vocab == 0, options.essential = true;
    // For races, what ids outside of a table do is code of its own.
    options.hostile = !trial.spreads && (as_used ? options.structured : !trial.limits.empty());
    options.rows_at_once = kFewRows;
    options.samples = as_used ? kSamples : 1;
    return options;
  }
  // Rounding is judged by eight random scenarios. What is drawn says little of what was left out:
  // many requests say more. So do many masks.
  options.seeds = trial.draws ? 12 : trial.masks ? 6 : 2;
  options.hostile = !trial.spreads;
  options.repeated = trial.expensive ? 3 : 5;
  options.rows_at_once = trial.expensive ? 16 : 0;
  if (trial.vast) options.seeds = 1, options.repeated = 1, options.essential = true;
  if (trial.thorough) options.seeds = 5, options.repeated *= 3, options.essential = false;
  return options;
}

validate::Verdict run_trial(const Trial& trial, const RunLaunches& launch) {
  validate::GateOptions usual = gate_for(trial);
  const TrialRun run(trial, launch);
  usual.one_of_a_shape = elements_of(run.subject()) > kManyElements;
  validate::Verdict verdict = validate::admit(run.subject(), usual);
  for (std::size_t i = 0; i < trial.other_tokens.size() && verdict.admitted(); ++i) {
    const Trial other = at_tokens(trial, i);
    validate::GateOptions few = usual;
    few.seeds = 1, few.scales = {1}, few.structured = few.hostile = false;
    few.repeated = 0, few.asks_influence = false;
    // Just before a page that may not be touched; of one token, just behind one.
    few.first_launch = other.tokens > 1 ? 2 : 3;
    few.first_seed = usual.first_seed + 1000 * (static_cast<unsigned>(i) + 1);
    validate::Verdict more = validate::admit(TrialRun(other, launch).subject(), few);
    if (more.rejection)
      more.rejection->reason =
          fmt::format("a step of {} tokens: {}", other.tokens, more.rejection->reason);
    verdict.rejection = std::move(more.rejection);
    verdict.scenarios += more.scenarios, verdict.launches += more.launches;
    verdict.figures.insert(verdict.figures.end(), more.figures.begin(), more.figures.end());
  }
  return verdict;
}

Json to_json(const Trial& trial) {
  Json buffers = Json::array(), launches = Json::array(), alone = Json::array();
  for (const Buffer& buffer : trial.buffers) buffers.push_back(to_json(buffer));
  for (const Launch& launch : trial.launches) launches.push_back(to_json(launch));
  for (const Launch& launch : trial.alone) alone.push_back(to_json(launch));
  Json json{{"purpose", to_string(trial.purpose)},
            {"tokens", trial.tokens},
            {"capacity", trial.capacity},
            {"positions", trial.positions},
            {"limits", trial.limits},
            {"other_tokens", trial.other_tokens},
            {"distinct_rows", trial.distinct_rows},
            {"expensive", trial.expensive},
            {"vast", trial.vast},
            {"thorough", trial.thorough},
            {"spreads", trial.spreads},
            {"rounds_weights", trial.rounds_weights},
            {"log", trial.log},
            {"buffers", std::move(buffers)},
            {"launches", std::move(launches)}};
  if (!alone.empty()) json["alone"] = std::move(alone);
  if (trial.rows > 1) json["rows"] = trial.rows;
  if (trial.vocab > 0) {
    json["vocab"] = trial.vocab;
    json["logits"] = short_name(trial.logits);
    json["draws"] = trial.draws;
    json["masks"] = trial.masks;
  } else {
    json["step"] = trial.step;
  }
  return json;
}

Trial trial_from_json(const Json& json, const std::string& origin) {
  try {
    Trial trial;
    const auto purpose = std::ranges::find(kPurposes, json.value("purpose", "quick"));
    if (purpose == kPurposes.end()) bad_input("{}: no trial has this purpose", origin);
    trial.purpose = static_cast<Purpose>(purpose - kPurposes.begin());
    trial.tokens = json.at("tokens").get<std::int64_t>();
    trial.capacity = json.at("capacity").get<std::int64_t>();
    trial.positions = json.at("positions").get<std::vector<std::int64_t>>();
    trial.limits = json.at("limits").get<std::map<std::string, std::int64_t>>();
    trial.other_tokens = json.value("other_tokens", std::vector<std::int64_t>());
    trial.distinct_rows = json.value("distinct_rows", std::int64_t{0});
    trial.expensive = json.at("expensive").get<bool>();
    trial.vast = json.at("vast").get<bool>();
    trial.thorough = json.value("thorough", false);
    trial.spreads = json.at("spreads").get<bool>();
    trial.rounds_weights = json.value("rounds_weights", false);
    trial.log = json.value("log", std::int64_t{0});
    trial.rows = json.value("rows", std::int64_t{1});
    if (json.contains("vocab")) {
      trial.vocab = json.at("vocab").get<std::int64_t>();
      const auto dtype = dtype_from_short_name(json.at("logits").get<std::string>());
      if (!dtype) bad_input("{}: \"logits\" is no element type", origin);
      trial.logits = *dtype;
      trial.draws = json.at("draws").get<bool>();
      trial.masks = json.at("masks").get<bool>();
    } else {
      trial.step = json.at("step").get<std::string>();
    }
    for (const Json& entry : json.at("buffers"))
      trial.buffers.push_back(buffer_from_json(entry, origin));
    for (const Json& entry : json.at("launches"))
      trial.launches.push_back(launch_from_json(entry, origin));
    for (const Json& entry : json.value("alone", Json::array()))
      trial.alone.push_back(launch_from_json(entry, origin));
    verify(trial, origin);
    return trial;
  } catch (const Json::exception& error) {
    bad_input("{}: {}", origin, error.what());
  }
}

}  // namespace ac
