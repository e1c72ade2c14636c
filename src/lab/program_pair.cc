#include "lab/program_pair.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/half.h"
#include "ir/graph_text.h"

namespace ac {
namespace {

constexpr std::uint64_t kSeedOfPair = 20261123;
// Keys that are that large make some of a long context matter more than others.
constexpr double kLargeScores = 3;

// What one rounding costs, of a value of 1. Sums in float32 are rounded as often as they have
// terms, so that kernels with other orders differ by more than the last place.
double unit_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 0x1p-20;
    case DType::f16:
      return 0x1p-11;
    case DType::bf16:
      return 0x1p-8 / 2;
    default:
      AC_UNREACHABLE();
  }
}

// A number near a border between two codes is rounded to either of them. That moves one element of
// many by up to an eighth, whatever the type is.
double unit_of(KvStorage storage) { return storage == KvStorage::fp8 ? 0x1p-7 : 0; }

struct Moments {
  double spread = 0, largest = 0;
};

Moments moments_of(const std::vector<double>& values) {
  double sum = 0, squares = 0, largest = 0;
  for (const double value : values) {
    sum += value, squares += value * value;
    largest = std::max(largest, std::fabs(value));
  }
  const auto count = static_cast<double>(values.size());
  return {std::sqrt(std::max(squares / count - sum / count * (sum / count), 0.0)), largest};
}

// Of the chosen program, and of one that needs more room for what is between its ops.
std::int64_t bytes_of_two(const Program& program) {
  std::int64_t bytes = program.constant_bytes + 2 * program.arena_bytes;
  for (const Buffer& buffer : program.buffers)
    if (buffer.role != Buffer::Role::scratch && buffer.role != Buffer::Role::constant)
      bytes += buffer.bytes.at(program.longest_step());
  return 2 * bytes;
}

std::int64_t bytes_of_sequence(const Program& program) {
  std::int64_t bytes = 0;
  for (const Buffer& buffer : program.buffers)
    if (buffer.is_of_sequence()) bytes += buffer.bytes.at(program.longest_step());
  return bytes;
}

// Those that another engine has loaded.
class CopiedWeights : public WeightSource {
 public:
  explicit CopiedWeights(Engine& from) : from_(from) {}

  void load(const Buffer& buffer, void* to) override {
    const std::vector<Buffer>& buffers = from_.program().buffers;
    for (std::size_t i = 0; i < buffers.size(); ++i)
      if (buffers[i].role == buffer.role && buffers[i].store == buffer.store &&
          buffers[i].key == buffer.key && buffers[i].bytes == buffer.bytes)
        return from_.device().copy(to, from_.addresses()[i],
                                   static_cast<std::size_t>(buffer.bytes.fixed));
    bad_input("the program has no weight {} of {} bytes", buffer.key, buffer.bytes.fixed);
  }

 private:
  Engine& from_;
};

// Nothing where one is not finite: that is an error that says which.
std::optional<std::vector<double>> logits_of(Engine& engine, std::string& why,
                                             std::int64_t row = 0) {
  try {
    return engine.logits(row);
  } catch (const Error& error) {
    if (error.fault() != Fault::job_failed) throw;
    why = error.what();
    return std::nullopt;
  }
}

// What a state holds of `tokens` tokens, in their order; those that it forgot are 0.
std::vector<double> unrolled(const std::vector<std::byte>& bytes, const StateSpec& state,
                             const StateTensor& tensor, std::int64_t tokens) {
  const auto element = static_cast<std::int64_t>(bytes_of(tensor.dtype));
  std::vector<double> values(static_cast<std::size_t>(tokens * tensor.rows * tensor.size));
  for (std::int64_t token = std::max<std::int64_t>(tokens - state.slots, 0); token < tokens;
       ++token)
    for (std::int64_t row = 0; row < tensor.rows; ++row) {
      const std::int64_t first = element_at(tensor, state.slots, row, token);
      for (std::int64_t i = 0; i < tensor.size; ++i)
        values[static_cast<std::size_t>((token * tensor.rows + row) * tensor.size + i)] =
            load_element(tensor.dtype, bytes.data() + (first + i) * element);
    }
  return values;
}

Json to_json(const ProgramPair::Result& result) {
  return {{"compared", result.compared},
          {"worst", result.worst},
          {"worst_case", result.worst_case},
          {"fault", result.fault},
          {"phases", result.phases}};
}

}  // namespace

// A step is a chain of results, each of them rounded: that adds an error of one unit to it,
// relative to its own size. Errors are independent, so that their squares add up; two programs have
// each their own. What follows may make an error larger than it was, by how much nobody knows of
// weights that he has not seen: a factor of 4 for both is several times what models were seen to
// need. The logits themselves are rounded too, each by its size. One of many errors lies above
// their root mean square, as rows of the last product are not equally long: 8 times.
LogitBound rounding_bound(DType dtype, std::int64_t roundings, const std::vector<double>& logits,
                          KvStorage storage) {
  const auto [spread, largest] = moments_of(logits);
  const double unit = std::max(unit_of(dtype), unit_of(storage));
  const double bound =
      4 * unit * (std::sqrt(static_cast<double>(roundings)) * spread + largest) + 1e-30;
  return {bound, 8 * bound};
}

double LogitError::over(const LogitBound& bound) const {
  return std::max(mean_square / bound.mean_square, largest / bound.largest);
}

LogitError error_of(const std::vector<double>& got, const std::vector<double>& wanted) {
  AC_ASSERT(got.size() == wanted.size());
  LogitError error;
  double squares = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double off = std::fabs(got[i] - wanted[i]);
    squares += off * off;
    if (off > error.largest) error.largest = off, error.where = i;
  }
  error.mean_square = std::sqrt(squares / static_cast<double>(got.size()));
  return error;
}

ProgramPair::ProgramPair(Device& device, PairJob job)
    : device_(device), job_(std::move(job)), random_(device, job_.random) {
  const Program chosen = read_program(PackageFiles(job_.chosen));
  const auto needed = bytes_of_two(chosen) + job_.left_free;
  if (const auto free = static_cast<std::int64_t>(device.free_bytes()); needed > free) {
    why_not_ = fmt::format("{} has {} MiB free, and two programs need {}", device.name(),
                           free >> 20, needed >> 20);
    return;
  } else if (const std::int64_t most = chosen.longest_step(Rows::each); most > 1) {
    sequences_ = std::min(most, 1 + (free - needed) / bytes_of_sequence(chosen));
  }
  try {
    open(false);
  } catch (const Error& error) {
    if (error.fault() != Fault::bad_input) throw;
    why_random_ = error.what();
    open(true);
  }
  if (!job_.step) return;
  const Program& program = plain_->program();
  weights_.resize(program.buffers.size());
  truth_.emplace(*job_.step, [&](const Node& weight) -> WeightView {
    for (std::size_t i = 0; i < program.buffers.size(); ++i) {
      const Buffer& buffer = program.buffers[i];
      if (buffer.role != Buffer::Role::weight || buffer.store != weight.text("store") ||
          buffer.key != weight.text("key"))
        continue;
      if (weights_[i].empty()) {
        weights_[i].resize(static_cast<std::size_t>(buffer.bytes.at(1)));
        device_.download(weights_[i], plain_->addresses()[i]);
      }
      return {buffer.dtype, buffer.shape, weights_[i].data()};
    }
    AC_UNREACHABLE();
  });
}

void ProgramPair::open(bool has_random_weights) {
  EngineOptions options;
  options.checkpoint = job_.checkpoint;
  if (has_random_weights) options.weights = random_weights(random_, kSeedOfPair);
  options.sequences = sequences_;
  loaded_ = std::make_shared<LoadedProgram>(device_, job_.chosen, std::move(options));
  chosen_.emplace(loaded_);
  while (std::ssize(others_) + 1 < sequences_) others_.push_back(std::make_unique<Engine>(loaded_));
  EngineOptions same;
  same.weights = std::make_unique<CopiedWeights>(*chosen_);
  plain_.emplace(device_, job_.plain, std::move(same));
}

std::vector<std::int64_t> ProgramPair::ids(std::int64_t count) {
  const auto vocab = static_cast<std::uint64_t>(chosen_->program().vocab);
  std::vector<std::int64_t> made;
  for (std::int64_t i = 0; i < count; ++i) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    made.push_back(static_cast<std::int64_t>((state_ >> 33) % vocab));
  }
  return made;
}

// The same in both, in whichever order they have their buffers.
void ProgramPair::fill(Engine& engine) {
  const std::vector<Buffer>& buffers = engine.program().buffers;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const Buffer& buffer = buffers[i];
    if (buffer.role != Buffer::Role::state) continue;
    const StateSpec& state = engine.program().states[static_cast<std::size_t>(buffer.state)];
    const auto tensor = static_cast<std::size_t>(buffer.tensor);
    const RandomElements random = random_of(state, tensor);
    random_.fill(engine.addresses()[i], buffer.dtype,
                 buffer.bytes.fixed / static_cast<std::int64_t>(bytes_of(buffer.dtype)),
                 static_cast<std::uint64_t>(4 * buffer.state + buffer.tensor) << 40, random.offset,
                 random.scale * (tensor == kKeys ? kLargeScores : 1));
  }
}

// With what the plain program's states hold.
void ProgramPair::prime_truth() {
  if (!truth_) return;
  const Program& program = plain_->program();
  std::vector<StateData> states(program.states.size());
  for (std::size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& buffer = program.buffers[i];
    if (buffer.role != Buffer::Role::state) continue;
    const StateSpec& state = program.states[static_cast<std::size_t>(buffer.state)];
    const auto tensor = static_cast<std::size_t>(buffer.tensor);
    std::vector<std::byte> bytes(static_cast<std::size_t>(buffer.bytes.fixed));
    device_.download(bytes, plain_->addresses()[i]);
    StateData& data = states[static_cast<std::size_t>(buffer.state)];
    data.resize(state.tensors.size());
    data[tensor] = unrolled(bytes, state, state.tensors[tensor], plain_->position());
  }
  truth_->prime(plain_->position(), std::move(states));
}

ProgramPair::Result ProgramPair::run(const CheckStep& step) {
  result_ = {};
  state_ = kSeedOfPair + static_cast<std::uint64_t>(step.cached * 3 + step.tokens);
  switch (step.kind) {
    case CheckStep::Kind::after:
      run_after(step);
      break;
    case CheckStep::Kind::prompt:
      run_prompt(step);
      break;
    case CheckStep::Kind::rows:
      run_rows(step);
      break;
    case CheckStep::Kind::back:
      run_back(step);
      break;
    case CheckStep::Kind::together:
      run_together(step);
      break;
  }
  return result_;
}

void ProgramPair::run_after(const CheckStep& step) {
  if (!filled_) fill(*chosen_), fill(*plain_);
  filled_ = true;
  chosen_->pretend(step.cached), plain_->pretend(step.cached);
  prime_truth();
  run_both(ids(step.tokens), step.tokens == 1);
  for (std::int64_t i = 0; i < step.more; ++i) run_both(ids(1), true);
}

void ProgramPair::run_prompt(const CheckStep& step) {
  filled_ = false;
  chosen_->reset(), plain_->reset();
  prime_truth();
  run_both(ids(step.tokens), false);
  for (std::int64_t i = 0; i < step.more; ++i) run_both(ids(1), true);
}

// By the chosen program in one step, by the plain one token by token.
void ProgramPair::run_rows(const CheckStep& step) {
  if (!filled_) fill(*chosen_), fill(*plain_);
  filled_ = true;
  chosen_->pretend(step.cached), plain_->pretend(step.cached);
  prime_truth();
  const std::vector<std::int64_t> tokens = ids(step.tokens);
  result_.phases = phases_of(chosen_->program(), step.cached, step.tokens, Rows::all);
  chosen_->run_all(tokens);
  for (std::int64_t row = 0; row < step.tokens && !is_wrong(); ++row) {
    const std::int64_t id = tokens[static_cast<std::size_t>(row)];
    plain_->decode(id);
    std::vector<double> truth;
    if (truth_) truth = std::move(truth_->step({id}).begin()->second.data);
    const std::string what = fmt::format("row {} of {}", row, describe(step));
    std::string why;
    const Logits got = logits_of(*chosen_, why, row);
    if (agree(got, why, truth, what) && row + 1 == step.tokens) must_be_chosen(*got, what);
  }
}

// Each after another number of tokens.
void ProgramPair::run_together(const CheckStep& step) {
  const std::int64_t count = std::min(step.tokens, sequences_);
  if (count < 2) return;  // there is no room for more
  std::vector<Engine*> engines{&*chosen_};
  for (const auto& other : others_)
    if (std::ssize(engines) < count) engines.push_back(other.get());
  filled_ = false;
  const std::vector<std::int64_t> tokens = ids(count);
  const auto begin = [&](std::size_t i) {
    engines[i]->pretend(step.cached + static_cast<std::int64_t>(i));
  };
  struct Given {
    std::vector<double> logits;
    std::int64_t chosen = 0;
  };
  std::vector<Given> alone;
  result_.phases = phases_of(chosen_->program(), step.cached, 1);
  for (std::size_t i = 0; i < engines.size(); ++i) {
    fill(*engines[i]);
    begin(i);
    engines[i]->decode(tokens[i]);
    std::string why;
    const Logits logits = logits_of(*engines[i], why);
    if (!logits) return;  // a model whose logits are not finite gives nothing to compare
    alone.push_back({*logits, engines[i]->chosen()});
  }
  Together together(loaded_);
  result_.phases = phases_of(chosen_->program(), step.cached, count, Rows::each);
  for (std::size_t i = 0; i < engines.size(); ++i) {
    begin(i);
    engines[i]->tell(tokens[i]);
  }
  together.step(engines);
  const std::vector<std::int32_t> chosen = together.tokens();
  for (std::size_t i = 0; i < engines.size() && !is_wrong(); ++i) {
    ++result_.compared;
    const std::string what = fmt::format("sequence {} of {}", i, describe(step));
    const std::vector<double> logits = engines[i]->logits();
    const auto [differs, instead] = std::ranges::mismatch(alone[i].logits, logits);
    if (differs != alone[i].logits.end())
      result_.fault = fmt::format("{}: the logit of token {} is {:.9g}, and {:.9g} alone", what,
                                  differs - alone[i].logits.begin(), *instead, *differs);
    else if (chosen[i] != alone[i].chosen)
      result_.fault =
          fmt::format("{}: it chose token {}, and {} alone", what, chosen[i], alone[i].chosen);
  }
}

// The same steps must give the same bits, whatever came between.
void ProgramPair::run_back(const CheckStep& step) {
  const std::vector<std::int64_t> rest = ids(step.more), other = ids(step.more);
  const auto go_on = [&] {
    for (const std::int64_t id : rest) chosen_->decode(id);
  };
  run_prompt({CheckStep::Kind::prompt, 0, step.tokens, 0});
  const auto saved = device_.allocate(chosen_->piece_bytes(step.tokens));
  chosen_->save(0, step.tokens, *saved);
  for (const std::int64_t id : rest) run_both({id}, true);
  // A ring may have forgotten what it would go back to.
  if (is_wrong() || !chosen_->can_truncate(step.tokens)) return;
  const std::vector<double> once = chosen_->logits();
  const std::int64_t next = chosen_->chosen();
  chosen_->truncate(step.tokens), plain_->truncate(step.tokens);
  prime_truth();
  for (const std::int64_t id : other) run_both({id}, true);
  if (is_wrong()) return;
  chosen_->truncate(step.tokens);
  go_on();
  must_be_the_same(once, "after truncate");
  chosen_->decode(next);
  const std::int64_t after_next = chosen_->chosen();
  chosen_->reset();
  chosen_->append(*saved, step.tokens);
  go_on();
  must_be_the_same(once, "after it was brought back");
  // What a step leaves for the next one on the device is what the host would give it.
  std::vector<std::int64_t> generated;
  chosen_->generate(2, [&](std::int64_t id) {
    generated.push_back(id);
    return true;
  });
  if (!is_wrong() && generated != std::vector{next, after_next})
    result_.fault = fmt::format(
        "tokens that it generates after a prompt of {} are {}, and {} where each is given to it",
        step.tokens + step.more, fmt::join(generated, ", "),
        fmt::join(std::vector{next, after_next}, ", "));
}

void ProgramPair::must_be_the_same(const std::vector<double>& once, const std::string& what) {
  if (is_wrong()) return;
  const std::vector<double> now = chosen_->logits();
  ++result_.compared;
  const auto [differs, instead] = std::ranges::mismatch(once, now);
  if (differs != once.end())
    result_.fault =
        fmt::format("the same {} tokens have other logits {}: that of token {} was {}, and is {}",
                    chosen_->position(), what, differs - once.begin(), *differs, *instead);
}

void ProgramPair::run_both(const std::vector<std::int64_t>& tokens, bool decodes) {
  if (is_wrong()) return;
  const auto count = static_cast<std::int64_t>(tokens.size());
  const std::int64_t cached = chosen_->position();
  result_.phases = phases_of(chosen_->program(), cached, count);
  for (Engine* engine : {&*chosen_, &*plain_})
    if (decodes)
      engine->decode(tokens.at(0));
    else
      engine->prefill(tokens);
  std::vector<double> truth;
  if (truth_) truth = std::move(truth_->step(tokens).begin()->second.data);
  compare(truth,
          fmt::format("a step of {} token{} after {}", count, count == 1 ? "" : "s", cached));
}

void ProgramPair::note(double over, const std::string& what) {
  if (over > result_.worst) result_.worst = over, result_.worst_case = what;
}

void ProgramPair::compare(const std::vector<double>& truth, const std::string& what) {
  std::string why;
  const Logits got = logits_of(*chosen_, why);
  if (agree(got, why, truth, what)) must_be_chosen(*got, what);
}

// Whether there was something to compare, and it was right.
bool ProgramPair::agree(const Logits& got, const std::string& why, const std::vector<double>& truth,
                        const std::string& what) {
  std::string plain_why;
  const Logits plain = logits_of(*plain_, plain_why);
  if (!got && !plain) return false;  // whatever the model does there, both do
  if (!got || !plain) {
    result_.fault = fmt::format("{}: {}{}", what, got ? "by plain kernels alone " : "",
                                got ? plain_why : why + "; by plain kernels all are finite");
    return false;
  }
  ++result_.compared;
  const LogitError error = error_of(*got, *plain);
  const LogitBound bound = rounding_bound(chosen_->program().dtype, job_.roundings, *plain,
                                          storage_of(chosen_->program().states));
  note(error.over(bound), what);
  if (error.over(bound) > 1) {
    result_.fault = fmt::format(
        "{}: the logit of token {} is {:.6g}, and {:.6g} by plain kernels; all differ by {:.3g} "
        "(root mean square), where rounding makes {:.3g}",
        what, error.where, (*got)[error.where], (*plain)[error.where], error.mean_square,
        bound.mean_square);
    return false;
  }
  if (truth_) compare_with_truth(*got, *plain, truth, what);
  return !is_wrong();
}

void ProgramPair::must_be_chosen(const std::vector<double>& logits, const std::string& what) {
  const auto chosen = static_cast<std::size_t>(chosen_->chosen());
  if (const auto best = std::ranges::max_element(logits); logits[chosen] != *best)
    result_.fault = fmt::format("{}: it chose token {}, and the largest logit is that of {}", what,
                                chosen, best - logits.begin());
}

// As the gate does: an error may be a few times what a plain implementation of the type makes.
void ProgramPair::compare_with_truth(const std::vector<double>& got,
                                     const std::vector<double>& plain,
                                     const std::vector<double>& truth, const std::string& what) {
  const LogitError error = error_of(got, truth), plain_error = error_of(plain, truth);
  const LogitBound rounding = rounding_bound(chosen_->program().dtype, job_.roundings, truth,
                                             storage_of(chosen_->program().states));
  const LogitBound bound{std::max(4 * plain_error.mean_square, rounding.mean_square / 8),
                         std::max(4 * plain_error.largest, rounding.largest / 8)};
  const bool plain_is_wrong = plain_error.over(rounding) > 1;
  note(error.over(bound), what);
  if (plain_is_wrong || error.over(bound) > 1)
    result_.fault = fmt::format(
        "{}: the logit of token {} is {:.6g}{}, and {:.6g} in double precision", what, error.where,
        got[error.where],
        plain_is_wrong ? fmt::format(" ({:.6g} by plain kernels)", plain[error.where]) : "",
        truth[error.where]);
}

std::string loaded_question() { return "null"; }

Loaded loaded_of(const std::string& line) {
  const Json json = Json::parse(line);
  return {json.at("why_not"), json.at("why_random")};
}

std::string line_of(const CheckStep& step) { return to_json(step).dump(); }

ProgramPair::Result result_of(const std::string& line) {
  const Json json = Json::parse(line);
  return {.compared = json.at("compared"),
          .worst = json.at("worst"),
          .worst_case = json.at("worst_case"),
          .fault = json.at("fault"),
          .phases = json.at("phases")};
}

Conversation::Answer prepare(std::shared_ptr<Device> device, const PairJob& job) {
  struct Opened {
    std::shared_ptr<Device> device;
    std::unique_ptr<ProgramPair> pair;  // which goes before its device
  };
  const auto opened = std::make_shared<Opened>(device, std::make_unique<ProgramPair>(*device, job));
  return [opened](const std::string& line) {
    const Json asked = Json::parse(line);
    if (asked.is_null())
      return Json{{"why_not", opened->pair->why_not()}, {"why_random", opened->pair->why_random()}}
          .dump();
    return to_json(opened->pair->run(check_step_from_json(asked))).dump();
  };
}

}  // namespace ac
