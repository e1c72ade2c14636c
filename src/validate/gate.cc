#include "validate/gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <set>

#include "base/error.h"
#include "validate/buffers.h"
#include "validate/compare.h"
#include "validate/scenario.h"

namespace ac::validate {

std::int64_t TensorSpec::count() const {
  std::int64_t product = 1;
  for (const std::int64_t size : shape) product *= size;
  return product;
}

std::size_t TensorSpec::bytes() const {
  const std::size_t all = static_cast<std::size_t>(count()) * bytes_of(dtype);
  if (repeated_to == 0) return all;
  return all / static_cast<std::size_t>(shape[repeated_axis]) *
         static_cast<std::size_t>(repeated_to);
}

std::string_view to_string(Stage stage) {
  constexpr std::string_view kNames[] = {"interface", "launch",        "memory",
                                         "numerics",  "repeatability", "same bits"};
  return kNames[static_cast<std::size_t>(stage)];
}

Figure Verdict::worst() const {
  if (figures.empty()) return {};
  return *std::ranges::max_element(figures, {}, &Figure::error);
}

namespace {

bool is_written(const TensorSpec& spec) {
  return spec.role == TensorRole::output || spec.role == TensorRole::state;
}

// Inputs and what should come of them, in all rows of the outputs or in some. `written`: the states
// that a launch left, where their codes count.
struct Expected {
  Scenario scenario;
  Rows rows;
  Elements elements, written, truth, plain;
};

// Errors of less than kNearly times their bounds may be bad luck: kOthers more plain results, on
// neighbouring inputs, say how large errors are. So may many that are within them: one rounding in
// a layer moves much of what the next ones compute.
constexpr double kNearly = 2;
constexpr unsigned kOthers = 4;

// The next number that the type has, above or below.
double neighbour(DType dtype, double x, bool above) {
  const double step = dtype == DType::f32 ? 0x1p-23 : dtype == DType::f16 ? 0x1p-10 : 0x1p-7;
  return round_to(dtype, x * (above ? 1 + step : 1 - step));
}

class Gate {
 public:
  Gate(const Subject& subject, const GateOptions& options)
      : subject_(subject), options_(options), launches_(options.first_launch) {}

  Verdict run() {
    check_interface();
    if (!verdict_.rejection && options_.asks_influence) check_influence();
    precision_.resize(subject_.tensors.size());
    if (!verdict_.rejection)
      for (const Scenario& scenario : all_scenarios()) {
        ++verdict_.scenarios;
        check_scenario(scenario);
        if (verdict_.rejection) break;
      }
    if (!verdict_.rejection) judge_precision();
    return std::move(verdict_);
  }

 private:
  const TensorSpec& spec(std::size_t t) const { return subject_.tensors[t]; }

  void reject(Rejection rejection) {
    if (!verdict_.rejection) verdict_.rejection = std::move(rejection);
  }
  void reject(Stage stage, const Scenario& scenario, std::string reason) {
    reject({.stage = stage,
            .reason = std::move(reason),
            .scenario = scenario.name,
            .seed = scenario.seed});
  }

  // ---- interface

  void check_interface() {
    AC_ASSERT(subject_.truth && subject_.plain && subject_.run);
    AC_ASSERT(!subject_.run_alone || subject_.rows > 0);
    AC_ASSERT(!is_by_rows() || (subject_.truth_of_rows && subject_.plain_of_rows));
    std::set<std::string> names;
    bool writes = false;
    for (const TensorSpec& tensor : subject_.tensors) {
      const auto refuse = [&](const std::string& why) {
        reject({.reason = fmt::format("{}: {}", tensor.name, why), .tensor = tensor.name});
      };
      if (!names.insert(tensor.name).second) refuse("two tensors have this name");
      for (const std::int64_t size : tensor.shape)
        if (size < 1) refuse(fmt::format("a size of {}", size));
      if (tensor.low > tensor.high) refuse("its range is empty");
      for (const std::int64_t edge : tensor.edges)
        if (edge < tensor.low || edge > tensor.high)
          refuse(fmt::format("its edge {} is outside its range", edge));
      writes = writes || is_written(tensor);
    }
    if (!writes) reject({.reason = "nothing that this kernel writes is an output or a state"});
  }

  // A fault in how the kernel reads a tensor can only show if some output moves with it.
  void check_influence() {
    GateOptions random_only = options_;
    random_only.structured = random_only.hostile = false;
    const std::vector<Scenario> scenarios = scenarios_for(subject_, random_only);
    std::set<std::size_t> silent, unmoved;
    for (std::size_t t = 0; t < subject_.tensors.size(); ++t) {
      const bool varies =
          is_float(spec(t).dtype) || is_code(spec(t).dtype) || spec(t).low < spec(t).high;
      if (spec(t).is_read() && varies) silent.insert(t);
      if (is_written(spec(t))) unmoved.insert(t);
    }
    for (const Scenario& scenario : scenarios) {
      if (silent.empty() && unmoved.empty()) return;
      const Expected base = expect(scenario, elements_of(subject_, scenario));
      if (verdict_.rejection) return;
      for (std::size_t t = 0; t < subject_.tensors.size(); ++t) {
        if (!spec(t).is_read() || (unmoved.empty() && !silent.contains(t))) continue;
        const Elements other = another(scenario, t);
        const Elements truth = truth_of(other, base.rows);
        for (std::size_t o = 0; o < subject_.tensors.size(); ++o) {
          if (!is_written(spec(o))) continue;
          // That a state keeps what it was is no influence.
          std::vector<double> now = truth[o];
          if (o == t)
            for (std::size_t i = 0; i < now.size(); ++i)
              if (now[i] == other[t][i]) now[i] = base.truth[o][i];
          if (!differs(spec(o), base.truth[o], base.plain[o], now, options_)) continue;
          silent.erase(t);
          unmoved.erase(o);
        }
      }
    }
    std::erase_if(silent, [&](std::size_t t) { return shows_nan(t); });
    if (!silent.empty())
      reject({.reason = fmt::format("{}: no output depends on it, so a kernel that ignores it "
                                    "cannot be told from one that reads it",
                                    spec(*silent.begin()).name),
              .tensor = spec(*silent.begin()).name});
    else if (!unmoved.empty())
      reject({.reason = fmt::format("{}: depends on nothing, so a constant would pass for it",
                                    spec(*unmoved.begin()).name),
              .tensor = spec(*unmoved.begin()).name});
  }

  // The scale of a whole matrix shows little behind a norm. A kernel that ignores it does not give
  // the NaN that a NaN in it gives. All tokens see it, so it is no matter whether one of theirs
  // spreads.
  bool shows_nan(std::size_t tensor) {
    if (spec(tensor).role != TensorRole::weight || spec(tensor).count() != 1) return false;
    const Rows rows{0,
                    is_by_rows() ? std::min(options_.rows_at_once, subject_.rows) : subject_.rows};
    Scenario scenario = with_nan(subject_, options_, tensor);
    const Elements with = truth_of(elements_of(subject_, scenario), rows);
    scenario.pattern = Pattern::random;
    const Elements without = truth_of(elements_of(subject_, scenario), rows);
    for (std::size_t o = 0; o < with.size(); ++o)
      for (std::size_t i = 0; is_written(spec(o)) && i < with[o].size(); ++i)
        if (std::isnan(with[o][i]) && !std::isnan(without[o][i])) {
          shown_by_nan_.push_back(tensor);
          return true;
        }
    return false;
  }
  // All that the kernel must pass.
  std::vector<Scenario> all_scenarios() const {
    std::vector<Scenario> all = scenarios_for(subject_, options_);
    for (const std::size_t tensor : shown_by_nan_) {
      Scenario scenario = with_nan(subject_, options_, tensor);
      if (std::ranges::find(all, scenario.name, &Scenario::name) == all.end())
        all.push_back(std::move(scenario));
    }
    return all;
  }

  // Integers move to another edge.
  Elements another(const Scenario& scenario, std::size_t tensor) const {
    Scenario moved = scenario;
    if (!spec(tensor).edges.empty()) ++moved.edge;
    return with_another(subject_, moved, tensor);
  }

  bool is_by_rows() const { return options_.rows_at_once > 0 && subject_.rows > 0; }

  // Those whose truth is computed in the next scenario.
  Rows next_rows() {
    if (!is_by_rows()) return {0, subject_.rows};
    const Rows rows{next_row_, std::min(options_.rows_at_once, subject_.rows - next_row_)};
    next_row_ = (next_row_ + rows.count) % subject_.rows;
    return rows;
  }

  // Scratch that follows the last output needs no entry.
  Elements with_scratch(Elements elements) const {
    elements.resize(subject_.tensors.size());
    return elements;
  }
  Elements truth_of(const Elements& in, const Rows& rows, const Elements& written = {}) const {
    if (!written.empty()) return with_scratch(subject_.truth_after(in, written));
    return with_scratch(is_by_rows() ? subject_.truth_of_rows(in, rows) : subject_.truth(in));
  }
  Elements plain_of(const Elements& in, const Rows& rows, const Elements& written = {}) const {
    if (!written.empty()) return with_scratch(subject_.plain_after(in, written));
    return with_scratch(is_by_rows() ? subject_.plain_of_rows(in, rows) : subject_.plain(in));
  }
  // What a launch left in the states, where that says what else is expected.
  Elements written_by(const BufferSet& set) const {
    if (!subject_.truth_after) return {};
    Elements written(subject_.tensors.size());
    for (std::size_t t = 0; t < written.size(); ++t)
      if (spec(t).role == TensorRole::state) written[t] = load_elements(spec(t), set.buffers()[t]);
    return written;
  }

  // What a scenario judges of a tensor, and where that begins.
  TensorSpec judged(std::size_t t, const Rows& rows) const {
    TensorSpec part = spec(t);
    if (is_by_rows() && is_written(part)) part.shape.at(0) = rows.count;
    return part;
  }
  std::int64_t first_judged(std::size_t t, const Rows& rows) const {
    return is_by_rows() ? rows.first * (spec(t).count() / subject_.rows) : 0;
  }

  Expected expect(const Scenario& scenario, Elements elements) {
    return expect(scenario, std::move(elements), next_rows());
  }
  Expected expect(const Scenario& scenario, Elements elements, const Rows& rows,
                  Elements written = {}) {
    Expected e{scenario, rows, std::move(elements), std::move(written), {}, {}};
    e.truth = truth_of(e.elements, e.rows, e.written);
    e.plain = plain_of(e.elements, e.rows, e.written);
    for (std::size_t t = 0; t < subject_.tensors.size(); ++t) {
      const auto count = static_cast<std::size_t>(judged(t, e.rows).count());
      if (is_written(spec(t)) && (e.truth[t].size() != count || e.plain[t].size() != count))
        reject({.reason = fmt::format("{}: the truth has {} elements and the plain implementation "
                                      "{}, but the kernel's interface {}",
                                      spec(t).name, e.truth[t].size(), e.plain[t].size(), count),
                .tensor = spec(t).name});
    }
    return e;
  }

  // ---- runs

  bool launch(const Scenario& scenario, const BufferSet& set) {
    return settle_launch(scenario, set, subject_.run(set.buffers(), launches_++));
  }
  bool settle_launch(const Scenario& scenario, const BufferSet& set, const std::string& error) {
    ++verdict_.launches;
    if (!error.empty()) {
      reject(Stage::launch, scenario, error);
    } else if (const auto damage = set.damage()) {
      const std::string& name = spec(damage->tensor).name;
      std::string where = name;
      if (damage->index >= 0) where += fmt::format("[{}]", damage->index);
      reject({.stage = Stage::memory,
              .reason = fmt::format("{}: {} (scenario \"{}\", seed {})", where, damage->what,
                                    scenario.name, scenario.seed),
              .scenario = scenario.name,
              .seed = scenario.seed,
              .tensor = name,
              .index = damage->index});
    }
    return !verdict_.rejection;
  }

  std::vector<std::byte> written(const BufferSet& set) const {
    std::vector<std::byte> all;
    for (std::size_t t = 0; t < subject_.tensors.size(); ++t)
      if (is_written(spec(t))) {
        const auto bytes = set.buffers()[t];
        all.insert(all.end(), bytes.begin(), bytes.end());
      }
    return all;
  }

  void check_scenario(const Scenario& scenario) {
    const Elements elements = elements_of(subject_, scenario);
    // The first run comes before the truth is known anywhere in this process.
    BufferSet first(subject_.tensors, launches_);
    first.load(elements);
    if (!launch(scenario, first)) return;
    if (subject_.run_alone) check_alone(scenario, elements, first);
    // What is left of such sums is rounding.
    if (verdict_.rejection || scenario.pattern == Pattern::cancelling) return;
    if (options_.samples > 1 && is_by_rows()) return check_samples(scenario, elements, first);
    const Expected expected = expect(scenario, elements, next_rows(), written_by(first));
    if (verdict_.rejection) return;
    check_results(expected, first, nullptr);
    if (verdict_.scenarios > options_.repeated) return;
    const std::vector<std::byte> bytes = written(first);
    for (int i = 0; i < options_.repeats && !verdict_.rejection; ++i) {
      BufferSet again(subject_.tensors, launches_);
      again.load(elements);
      if (!launch(scenario, again)) return;
      check_results(expected, again, "on the same inputs in fresh memory with other poison");
      check_same(scenario, bytes, first, again, false);
    }
    // What the last launch left behind must not show in the next.
    if (scenario.pattern == Pattern::random && !verdict_.rejection) check_in_row(scenario, first);
  }

  // Rows from the first to the last, as evenly spread as can be.
  void check_samples(const Scenario& scenario, const Elements& elements, const BufferSet& set) {
    check_all_written(scenario, elements, set);
    if (verdict_.rejection) return;
    const std::int64_t count = std::min(options_.rows_at_once, subject_.rows);
    const std::int64_t last = subject_.rows - count;
    std::int64_t before = -1;
    for (std::int64_t i = 0; i < options_.samples && !verdict_.rejection; ++i) {
      const std::int64_t at = last * i / (options_.samples - 1);
      if (at == before) continue;
      before = at;
      const Expected expected = expect(scenario, elements, {at, count});
      if (!verdict_.rejection) check_results(expected, set, nullptr);
    }
  }

  // Elements of results that hold the poison of before the launch, by tensor. A kernel may compute
  // the same NaN.
  using Untouched = std::vector<std::pair<std::size_t, std::int64_t>>;
  bool is_untouched(const BufferSet& set, std::size_t t, std::int64_t index) const {
    const std::size_t size = bytes_of(spec(t).dtype), at = static_cast<std::size_t>(index) * size;
    return std::memcmp(set.buffers()[t].data() + at, set.before(t).data() + at, size) == 0;
  }
  Untouched untouched(const BufferSet& set) const {
    Untouched all;
    for (std::size_t t = 0; t < subject_.tensors.size(); ++t) {
      if (spec(t).role != TensorRole::output || !is_float(spec(t).dtype)) continue;
      const auto count =
          static_cast<std::int64_t>(set.buffers()[t].size() / bytes_of(spec(t).dtype));
      for (std::int64_t i = 0; i < count; ++i)
        if (is_untouched(set, t, i)) all.emplace_back(t, i);
    }
    return all;
  }

  // What holds its poison after two launches with different poison was not written.
  void check_all_written(const Scenario& scenario, const Elements& elements, const BufferSet& set) {
    const Untouched suspects = untouched(set);
    if (suspects.empty()) return;
    BufferSet other(subject_.tensors, launches_);
    other.load(elements);
    if (!launch(scenario, other)) return;
    for (const auto& [t, index] : suspects) {
      if (!is_untouched(other, t, index)) continue;
      return reject({.stage = Stage::memory,
                     .reason = fmt::format("{}[{}] was left as it was (scenario \"{}\", seed {})",
                                           spec(t).name, index, scenario.name, scenario.seed),
                     .scenario = scenario.name,
                     .seed = scenario.seed,
                     .tensor = spec(t).name,
                     .index = index});
    }
  }

  // Different inputs one after another on the same buffers; each time, one tensor differs.
  void check_in_row(const Scenario& scenario, BufferSet& set) {
    std::vector<std::size_t> read;
    for (std::size_t t = 0; t < subject_.tensors.size(); ++t)
      if (spec(t).is_read()) read.push_back(t);
    if (read.empty()) return;
    const std::size_t changed = read[static_cast<std::size_t>(verdict_.scenarios) % read.size()];
    const Elements elements = another(scenario, changed);
    Scenario renamed = scenario;
    renamed.name += fmt::format(", another {}", spec(changed).name);
    BufferSet fresh(subject_.tensors, launches_);
    fresh.load(elements);
    if (!launch(renamed, fresh)) return;
    const Expected expected = expect(renamed, elements, next_rows(), written_by(fresh));
    check_results(expected, fresh, nullptr);
    if (verdict_.rejection) return;
    set.load(expected.elements);
    if (!launch(expected.scenario, set)) return;
    check_results(expected, set, "after a launch with other inputs on the same buffers");
    if (!verdict_.rejection) check_same(expected.scenario, written(fresh), fresh, set, true);
  }

  // Each row by itself, in other memory.
  void check_alone(const Scenario& scenario, const Elements& elements, const BufferSet& together) {
    BufferSet alone(subject_.tensors, launches_);
    alone.load(elements);
    for (std::int64_t row = 0; row < subject_.rows && !verdict_.rejection; ++row)
      settle_launch(scenario, alone, subject_.run_alone(alone.buffers(), row, launches_++));
    for (std::size_t t = 0; t < subject_.tensors.size() && !verdict_.rejection; ++t) {
      if (spec(t).role != TensorRole::output) continue;
      const std::span<const std::byte> some = together.buffers()[t], one = alone.buffers()[t];
      const std::size_t size = bytes_of(spec(t).dtype);
      for (std::size_t i = 0; i < some.size(); i += size) {
        if (std::memcmp(some.data() + i, one.data() + i, size) == 0) continue;
        const double among = element(spec(t), some.data() + i),
                     by_itself = element(spec(t), one.data() + i);
        if (among != among && by_itself != by_itself) continue;  // which NaN means nothing
        const auto index = static_cast<std::int64_t>(i / size);
        return reject({.stage = Stage::same_bits,
                       .reason = fmt::format(
                           "{}[{}]: {} where its row is computed with others, and "
                           "{} by itself (scenario \"{}\", seed {})",
                           spec(t).name, index, among, by_itself, scenario.name, scenario.seed),
                       .scenario = scenario.name,
                       .seed = scenario.seed,
                       .tensor = spec(t).name,
                       .index = index,
                       .got = among,
                       .wanted = by_itself});
      }
    }
  }

  void check_same(const Scenario& scenario, const std::vector<std::byte>& bytes,
                  const BufferSet& one, const BufferSet& other, bool after_launch) {
    std::size_t at = 0;
    for (std::size_t t = 0; t < subject_.tensors.size(); ++t) {
      if (!is_written(spec(t))) continue;
      const auto now = other.buffers()[t];
      // All at once first, as there is seldom a difference.
      const std::size_t size = bytes_of(spec(t).dtype);
      const bool is_same = std::memcmp(now.data(), bytes.data() + at, now.size()) == 0;
      for (std::size_t i = 0; !is_same && i < now.size(); i += size) {
        if (std::memcmp(now.data() + i, bytes.data() + at + i, size) == 0) continue;
        // Poison that stays poison is equal.
        if (std::memcmp(now.data() + i, other.before(t).data() + i, size) == 0 &&
            std::memcmp(bytes.data() + at + i, one.before(t).data() + i, size) == 0)
          continue;
        const double a = element(spec(t), bytes.data() + at + i);
        const double b = element(spec(t), now.data() + i);
        if (a != a && b != b) continue;  // which NaN means nothing
        const auto index = static_cast<std::int64_t>(i / size);
        reject({.stage = Stage::repeatability,
                .reason = fmt::format(
                    "{}[{}]: {} and {} in two runs on the same inputs{} (scenario \"{}\", seed "
                    "{}): it depends on the order of threads, on what was in memory, or on "
                    "earlier launches",
                    spec(t).name, index, a, b, after_launch ? ", one of them on used buffers" : "",
                    scenario.name, scenario.seed),
                .scenario = scenario.name,
                .seed = scenario.seed,
                .tensor = spec(t).name,
                .index = index,
                .got = b,
                .wanted = a});
        return;
      }
      at += now.size();
    }
  }

  static double element(const TensorSpec& tensor, const std::byte* from) {
    TensorSpec one = tensor;
    one.shape = {};
    return load_elements(one, {from, bytes_of(tensor.dtype)})[0];
  }

  // ---- results

  // The plain implementation's result with the largest error that it makes at each element, on
  // these inputs or on their neighbours: what rounding happens to do differs from one to the next.
  std::vector<double> unluckiest(const Expected& e, std::size_t tensor) const {
    std::vector<double> worst = e.plain[tensor];
    std::minstd_rand random(kOthers);
    for (unsigned other = 0; other < kOthers; ++other) {
      Elements near = e.elements;
      for (std::size_t t = 0; t < near.size(); ++t)
        if (spec(t).is_read() && is_float(spec(t).dtype))
          for (double& x : near[t]) x = neighbour(spec(t).dtype, x, random() % 2 == 0);
      const std::vector<double> truth = truth_of(near, e.rows, e.written)[tensor],
                                plain = plain_of(near, e.rows, e.written)[tensor];
      for (std::size_t i = 0; i < worst.size(); ++i) {
        const double error = std::fabs(plain[i] - truth[i]);
        if (std::isfinite(error) && error > std::fabs(worst[i] - e.truth[tensor][i]))
          worst[i] = e.truth[tensor][i] + error;
      }
    }
    return worst;
  }

  // `circumstances` are null for the first run of a scenario. A later one that goes wrong is a
  // fault of repeatability, as the first went well.
  void check_results(const Expected& e, const BufferSet& set, const char* circumstances) {
    const Pattern pattern = e.scenario.pattern;
    for (std::size_t t = 0; t < subject_.tensors.size() && !verdict_.rejection; ++t) {
      if (!is_written(spec(t))) continue;
      const TensorSpec part = judged(t, e.rows);
      const std::int64_t first = first_judged(t, e.rows);
      const auto bytes = static_cast<std::size_t>(first) * bytes_of(part.dtype);
      const std::vector<double> got =
          load_elements(part, set.buffers()[t].subspan(bytes, part.bytes()));
      const auto comparison = [&](const std::vector<double>& plain) -> Comparison {
        return {.spec = part,
                .got = got,
                .truth = e.truth[t],
                .plain = plain,
                .old = spec(t).role == TensorRole::state ? &e.elements[t] : nullptr,
                .exact = subject_.linear && pattern == Pattern::bits,
                .independent = !subject_.constrain};
      };
      const Comparison c = comparison(e.plain[t]);
      const bool hostile = is_hostile(pattern);
      if (c.old != nullptr && !hostile) check_empty_slots(e, set, t);
      if (verdict_.rejection) return;
      Compared compared = compare(c, options_);
      if (compared.is_inexact && compared.error < kNearly && !hostile)
        compared = compare(comparison(unluckiest(e, t)), options_);
      if (compared.mismatch && compared.mismatch->index >= 0) compared.mismatch->index += first;
      if (compared.mismatch) reject_mismatch(e.scenario, t, *compared.mismatch, set, circumstances);
      if (circumstances != nullptr) continue;
      verdict_.figures.push_back(
          {e.scenario.name, spec(t).name, compared.error, compared.plain_error});
      if (pattern == Pattern::random) precision_[t].add(c);
    }
  }

  void check_empty_slots(const Expected& e, const BufferSet& set, std::size_t t) {
    const std::size_t size = bytes_of(spec(t).dtype);
    for (std::size_t i = 0; i < e.elements[t].size(); ++i) {
      const bool empty = e.elements[t][i] != e.elements[t][i] && e.truth[t][i] != e.truth[t][i];
      if (!empty || std::memcmp(set.buffers()[t].data() + i * size, set.before(t).data() + i * size,
                                size) == 0)
        continue;
      const auto index = static_cast<std::int64_t>(i);
      return reject({.stage = Stage::memory,
                     .reason = fmt::format("{}[{}]: written, but it should hold nothing (scenario "
                                           "\"{}\", seed {})",
                                           spec(t).name, index, e.scenario.name, e.scenario.seed),
                     .scenario = e.scenario.name,
                     .seed = e.scenario.seed,
                     .tensor = spec(t).name,
                     .index = index});
    }
  }

  void reject_mismatch(const Scenario& scenario, std::size_t t, const Mismatch& m,
                       const BufferSet& set, const char* circumstances) {
    Stage stage = circumstances ? Stage::repeatability : Stage::numerics;
    std::string why = m.why;
    if (m.index >= 0) {
      const std::size_t size = bytes_of(spec(t).dtype),
                        at = static_cast<std::size_t>(m.index) * size;
      if (std::memcmp(set.buffers()[t].data() + at, set.before(t).data() + at, size) == 0)
        stage = Stage::memory, why = std::isnan(m.got)
                                         ? "was left as it was, or is a NaN of the same bits"
                                         : "was left as it was";
    }
    if (circumstances) why += std::string(" ") + circumstances;
    reject({.stage = stage,
            .reason = fmt::format(
                "{}{} {}: got {}, wanted {}, bound {:.3g} (scenario \"{}\", seed {})", spec(t).name,
                m.index >= 0 ? fmt::format("[{}]", m.index) : std::string(), why, m.got, m.wanted,
                m.bound, scenario.name, scenario.seed),
            .scenario = scenario.name,
            .seed = scenario.seed,
            .tensor = spec(t).name,
            .index = m.index,
            .got = m.got,
            .wanted = m.wanted,
            .bound = m.bound});
  }

  void judge_precision() {
    for (std::size_t t = 0; t < subject_.tensors.size() && !verdict_.rejection; ++t)
      if (const auto found = precision_[t].judge(spec(t), options_))
        reject({.stage = Stage::numerics,
                .reason = fmt::format("{} {}", spec(t).name, found->why),
                .scenario = "all random",
                .tensor = spec(t).name,
                .got = found->got,
                .wanted = found->wanted,
                .bound = found->bound});
  }

  const Subject& subject_;
  const GateOptions& options_;
  unsigned launches_;
  std::int64_t next_row_ = 0;
  std::vector<std::size_t> shown_by_nan_;  // weights that show by a NaN alone
  std::vector<Precision> precision_;
  Verdict verdict_;
};

}  // namespace

Verdict admit(const Subject& subject, const GateOptions& options) {
  return Gate(subject, options).run();
}

}  // namespace ac::validate
