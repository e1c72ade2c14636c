#include "validate/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

#include "base/elements.h"
#include "base/error.h"
#include "base/half.h"
#include "reference/parallel.h"

namespace ac::validate {
namespace {

// SplitMix64, as a trial draws hundreds of millions of numbers. Own distributions, because the
// standard leaves its open: the same seed, the same scenario.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) { next(), next(); }
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  // One of many that were drawn before: caches have millions of elements.
  double normal() {
    if (left_ == 0) bits_ = next(), left_ = 4;
    --left_;
    return normals()[bits_ >> 16 * left_ & (kNormals - 1)];
  }
  std::int64_t integer(std::int64_t low, std::int64_t high) {
    const auto span = static_cast<std::uint64_t>(high - low) + 1;
    // Codes are millions, and division is slow: most spans are powers of two.
    const bool is_power = (span & (span - 1)) == 0;
    return low + static_cast<std::int64_t>(is_power ? next() & (span - 1) : next() % span);
  }
  double sign() { return next() & 1 ? 1 : -1; }

 private:
  static constexpr std::size_t kNormals = 1 << 16;
  static const std::vector<double>& normals() {
    static const std::vector<double> all = [] {
      std::vector<double> drawn(kNormals);
      Random random(1);
      for (std::size_t i = 0; i < kNormals; i += 2) {
        const double radius = std::sqrt(-2 * std::log(1 - random.uniform()));
        const double angle = 2 * std::numbers::pi * random.uniform();
        drawn[i] = radius * std::cos(angle), drawn[i + 1] = radius * std::sin(angle);
      }
      return drawn;
    }();
    return all;
  }

  std::uint64_t state_;
  std::uint64_t bits_ = 0;  // for so many normals
  unsigned left_ = 0;
};

double smallest_normal(DType dtype) { return dtype == DType::f16 ? 0x1p-14 : 0x1p-126; }

double least_of(DType dtype) {
  return dtype == DType::f16 ? -65504 : dtype == DType::bf16 ? -0x1.fep127 : -0x1.fffffep127;
}

// So large that statistics and sums need the range of float32; their squares fit in it.
double huge_scale(const TensorSpec& spec) {
  if (!spec.may_be_huge) return 1;
  return spec.dtype == DType::f16 ? 0x1p8 : 0x1p18;
}

void fill_activation(std::vector<double>& out, const TensorSpec& spec, const Scenario& s,
                     Random& random) {
  const auto columns = spec.shape.empty() ? 1 : static_cast<std::size_t>(spec.shape.back());
  const double one_value = random.uniform(0.5, 1.5);
  const auto chosen =
      static_cast<std::size_t>(random.integer(0, std::max<std::int64_t>(0, spec.count() - 1)));
  // Each element from its index and a normal number that was drawn for it.
  const auto fill = [&](auto value) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      const double drawn = random.normal();
      out[i] = s.scale * value(i, drawn);
    }
  };
  switch (s.pattern == Pattern::masked && !spec.may_be_masked ? Pattern::random : s.pattern) {
    case Pattern::equal:
      return fill([&](std::size_t, double) { return one_value; });
    case Pattern::one_hot:
      return fill([&](std::size_t i, double) { return i == chosen ? 1 : 0; });
    case Pattern::alternating:
      return fill([](std::size_t i, double) { return i % 2 == 0 ? 1 : -1; });
    case Pattern::bits:
      return fill([&](std::size_t, double) { return random.uniform() < 0.5 ? 1 : 0; });
    case Pattern::repeated_rows:
      return fill([&](std::size_t, double) { return static_cast<double>(random.integer(-2, 2)); });
    case Pattern::dynamic_range:
      return fill([&](std::size_t, double) {
        const double sign = random.sign();
        return sign * std::exp2(random.uniform(-12, 4));
      });
    case Pattern::denormal:
      return fill([unit = smallest_normal(spec.dtype) * 0x1p-4](std::size_t, double drawn) {
        return drawn * unit;
      });
    case Pattern::outliers:
      return fill([&](std::size_t i, double drawn) {
        return i % columns % 61 == chosen % 61 ? 60 * drawn : drawn;
      });
    case Pattern::large:
      return fill([&](std::size_t, double) { return 8 + 2 * random.uniform(); });
    case Pattern::negative:
      return fill([&](std::size_t, double) { return -1 - random.uniform(); });
    case Pattern::tiny:
      return fill([](std::size_t, double drawn) { return drawn * 0x1p-10; });
    case Pattern::huge:
      return fill([scale = huge_scale(spec)](std::size_t, double drawn) { return drawn * scale; });
    case Pattern::rows_apart:
      return fill([&, row = 1.0](std::size_t i, double drawn) mutable {
        if (i % columns == 0)
          row = std::exp2(std::floor(random.uniform(-8, spec.may_be_huge ? 4 : 1)));
        return drawn * row;
      });
    case Pattern::signed_zeros:
      return fill([&](std::size_t i, double) { return (i == 0 ? -1 : random.sign()) * 0.0; });
    case Pattern::masked:
      return fill([&](std::size_t i, double drawn) {
        constexpr double infinity = std::numeric_limits<double>::infinity();
        switch ((i / columns + chosen) % 3) {
          case 0:
            return i % columns < columns / 2 ? -infinity : drawn;
          case 1:
            return least_of(spec.dtype);
          default:
            return -infinity;
        }
      });
    default:
      fill([](std::size_t, double drawn) { return drawn; });
  }
  if (s.pattern == Pattern::sorted) std::ranges::sort(out);
}

// Uniform in (-bound, bound), of 24 bits: most of what a trial draws.
void fill_matrix(std::vector<double>& out, double bound, Random& random) {
  const double unit = bound * 0x1p-23;
  const auto centred = [](std::uint64_t bits) {
    return static_cast<double>(static_cast<std::int32_t>(bits & 0xffffff) - (1 << 23)) + 0.5;
  };
  std::size_t i = 0;
  for (; i + 2 <= out.size(); i += 2) {
    const std::uint64_t bits = random.next();
    out[i] = unit * centred(bits);
    out[i + 1] = unit * centred(bits >> 32);
  }
  if (i < out.size()) out[i] = unit * centred(random.next());
}

// Away from 0 and from 1: an op that is left out must show.
void fill_weight(std::vector<double>& out, const TensorSpec& spec, const Scenario& s,
                 Random& random) {
  const bool matrix = spec.shape.size() > 1;
  const auto columns = spec.shape.empty() ? 1 : static_cast<std::size_t>(spec.shape.back());
  const double bound = std::sqrt(3.0 / static_cast<double>(std::max<std::size_t>(columns, 1)));
  const double density =
      std::min(0.5, 100.0 / static_cast<double>(std::max<std::size_t>(columns, 1)));
  const bool by_row = s.pattern == Pattern::rows_apart;
  if (matrix && !by_row && s.pattern != Pattern::bits && s.pattern != Pattern::repeated_rows)
    return fill_matrix(out, bound, random);
  double row = 1;
  for (std::size_t i = 0; i < out.size(); ++i) {
    double& w = out[i];
    if (by_row && i % columns == 0) row = std::exp2(std::floor(random.uniform(-5, 1)));
    if (s.pattern == Pattern::bits) {
      w = random.uniform() < density ? 1 : 0;
    } else if (s.pattern == Pattern::repeated_rows) {
      // Powers of two, so that sums are exact in any order and equal rows give equal outputs.
      if (!matrix)
        w = random.sign() * (random.uniform() < 0.5 ? 0.5 : 2);
      else if (i < 3 * columns)
        w = static_cast<double>(random.integer(-1, 1));
      else
        w = out[i % columns + (i / columns * 7 % 3) * columns];
    } else if (matrix) {
      w = row * random.uniform(-bound, bound);
    } else {
      const double magnitude =
          random.uniform() < 0.5 ? random.uniform(0.3, 0.8) : random.uniform(1.2, 1.9);
      // What is large and of one sign stays so through a norm.
      w = s.pattern == Pattern::large ? magnitude : random.sign() * magnitude;
    }
  }
}

// Every code that is a number is as likely as any other, unless the pattern wants exact sums or
// rows of different size. Whether all are such codes, and need not be rounded.
bool fill_codes(std::vector<double>& out, const TensorSpec& spec, const Scenario& s,
                Random& random) {
  if (s.pattern == Pattern::bits || s.pattern == Pattern::repeated_rows) {
    fill_weight(out, spec, s, random);
    return false;
  }
  const auto columns = static_cast<std::size_t>(spec.shape.back());
  std::array<std::uint8_t, 256> codes;
  std::iota(codes.begin(), codes.end(), std::uint8_t{0});
  std::array<double, codes.size()> values;
  load_elements(spec.dtype, codes.data(), values);
  for (double& value : values)
    if (std::isnan(value)) value = 0;
  double row = 1;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (s.pattern == Pattern::rows_apart && i % columns == 0)
      row = std::exp2(std::floor(random.uniform(-5, 1)));
    out[i] = values[random.next() >> 56] * std::min(row, 1.0);
  }
  return s.pattern != Pattern::rows_apart;
}

// Codes that are whole numbers, perhaps two of them in a byte, and zero points. Sums of them are
// exact.
void fill_whole(std::vector<double>& out, const TensorSpec& spec, const Scenario& s,
                Random& random) {
  const auto columns = static_cast<std::size_t>(spec.shape.back());
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = s.pattern == Pattern::repeated_rows && i >= 3 * columns
                 ? out[i % columns + (i / columns * 7 % 3) * columns]
                 : static_cast<double>(random.integer(spec.low, spec.high));
}

// In a state, scales are of keys too: few scores are to be much larger than all others.
void fill_scales(std::vector<double>& out, const TensorSpec& spec, const Scenario& s,
                 Random& random) {
  const bool exact = s.pattern == Pattern::bits || s.pattern == Pattern::repeated_rows;
  const double octaves = spec.role == TensorRole::state ? 1 : 2;
  for (double& x : out)
    x = exact ? spec.exact : spec.typical * std::exp2(random.uniform(-octaves, octaves));
  // Scales of type i8 may be negative.
  if (spec.dtype == DType::i8)
    for (double& x : out) x *= random.sign();
}

void fill_integers(std::vector<double>& out, const TensorSpec& spec, const Scenario& s,
                   Random& random) {
  for (double& x : out) x = static_cast<double>(random.integer(spec.low, spec.high));
  if (s.pattern == Pattern::outside && spec.may_be_outside) {
    // The lower half of one is in the table.
    const std::int64_t far =
        spec.dtype == DType::i64 ? (std::int64_t{1} << 40) + spec.high : 1 << 30;
    const std::array<std::int64_t, 4> others = {far, -far, -1, spec.high + 1};
    for (std::size_t i = out.size() > 1 ? s.seed % 2 : 0; i < out.size(); i += 2)
      out[i] = static_cast<double>(others[(i / 2 + s.seed) % others.size()]);
    return;
  }
  if (out.empty()) return;
  if (!spec.edges.empty())
    out[0] = static_cast<double>(spec.edges[s.edge % spec.edges.size()]);
  else if (out.size() > 2)
    out[0] = static_cast<double>(spec.low), out[1] = static_cast<double>(spec.high);
  else if (out.size() == 2)  // both ends would be the same two values in every scenario
    out[static_cast<std::size_t>(random.integer(0, 1))] =
        static_cast<double>(random.integer(0, 1) == 0 ? spec.low : spec.high);
}

void fill_state(std::vector<double>& out, const TensorSpec& spec, const Scenario& s,
                Random& random) {
  Scenario calm = s;
  if (is_hostile(s.pattern)) calm.pattern = Pattern::random;
  fill_activation(out, spec, calm, random);
  if (spec.part != WeightPart::Kind::codes) return;
  for (double& x : out) x *= spec.typical;
}

void round_all(DType dtype, std::vector<double>& out) {
  const auto round = [&](auto to_dtype) {
    for (double& x : out) x = to_dtype(static_cast<float>(x));
  };
  if (dtype == DType::f32) round([](float x) { return x; });
  if (dtype == DType::f16) round([](float x) { return round_to_half(x); });
  if (dtype == DType::bf16) round([](float x) { return round_to_bfloat(x); });
  if (!is_code(dtype) || dtype == DType::u8) return;  // which are drawn as whole numbers
  std::array<std::byte, 4096> stored;
  for (std::size_t at = 0; at < out.size(); at += stored.size()) {
    const std::span<double> some{out.data() + at, std::min(stored.size(), out.size() - at)};
    store_elements(dtype, some, stored.data()), load_elements(dtype, stored.data(), some);
  }
}

std::vector<double> draw(const TensorSpec& spec, const Scenario& s, std::uint64_t seed) {
  std::vector<double> out(static_cast<std::size_t>(spec.count()));
  Random random(seed);
  bool is_rounded = false;
  if (spec.dtype == DType::u8)
    fill_whole(out, spec, s, random);
  else if (spec.part == WeightPart::Kind::codes && spec.role != TensorRole::state)
    is_rounded = fill_codes(out, spec, s, random);
  else if (spec.part == WeightPart::Kind::scales || spec.part == WeightPart::Kind::global ||
           spec.part == WeightPart::Kind::outer)
    fill_scales(out, spec, s, random);
  else if (spec.role == TensorRole::state && has_nan(spec.dtype))
    fill_state(out, spec, s, random);
  else if (!is_float(spec.dtype))
    fill_integers(out, spec, s, random);
  else if (spec.role == TensorRole::weight)
    fill_weight(out, spec, s, random);
  else
    fill_activation(out, spec, s, random);
  if (!is_rounded) round_all(spec.dtype, out);
  return out;
}

// Halves of a row are made equal, or each other's negative, in the opposite order.
void mirror(std::vector<double>& out, std::size_t columns, std::size_t row, double sign) {
  for (std::size_t i = 0; i < columns / 2; ++i)
    out[(row + 1) * columns - 1 - i] = sign * out[row * columns + i];
}

// Activations and every second row of weights, such that their products cancel. What is added to
// these is 0, where its shape tells.
void make_cancelling(const Subject& subject, Elements& elements) {
  const TensorSpec *x = nullptr, *y = nullptr;
  for (const TensorSpec& spec : subject.tensors) {
    if (x == nullptr && spec.role == TensorRole::input && is_float(spec.dtype)) x = &spec;
    if (spec.role == TensorRole::output) y = &spec;
  }
  if (x == nullptr || y == nullptr || x->shape.empty() || y->shape.empty()) return;
  const auto is_added = [&](const TensorSpec& spec) {
    return spec.part == WeightPart::Kind::elements && x->shape.back() != y->shape.back() &&
           spec.shape.back() == y->shape.back() &&
           (spec.role == TensorRole::input || spec.shape.size() == 1);
  };
  for (std::size_t t = 0; t < elements.size(); ++t) {
    const TensorSpec& spec = subject.tensors[t];
    std::vector<double>& out = elements[t];
    if (!spec.is_read() || spec.shape.empty() || out.empty()) continue;
    if (is_added(spec)) {
      std::ranges::fill(out, 0);
      continue;
    }
    const auto columns = static_cast<std::size_t>(spec.shape.back());
    const bool is_matrix = spec.shape.size() > 1 && (spec.part == WeightPart::Kind::elements ||
                                                     spec.part == WeightPart::Kind::codes);
    // Two codes of 4 bits in a byte, so that a byte is its own mirror image.
    if (spec.dtype == DType::u8 && spec.part == WeightPart::Kind::codes && spec.high == 255)
      for (double& pair : out) pair = 17 * std::floor(pair / 16);
    for (std::size_t row = 0; row < out.size() / columns; ++row)
      if (spec.role == TensorRole::input)
        mirror(out, columns, row, -1);
      else if (!is_matrix || row % 2 == 1)
        mirror(out, columns, row, 1);
  }
}

constexpr std::size_t kNone = static_cast<std::size_t>(-1);

// A tensor as the scenario has it; `other` is drawn anew.
std::vector<double> draw_tensor(const Subject& subject, const Scenario& s, std::size_t t,
                                std::size_t other) {
  const std::uint64_t seed = (t == other ? s.seed + 7919u : s.seed) * 1000003u + t;
  std::vector<double> out = draw(subject.tensors[t], s, seed);
  const bool has_one = s.pattern == Pattern::a_nan || s.pattern == Pattern::an_infinity;
  if (has_one && t == s.hostile && !out.empty()) {
    const std::size_t at = seed * 31 % out.size();
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    // Of codes, 0x7f or 0xff.
    out[at] = s.pattern == Pattern::a_nan ? std::copysign(nan, at % 2 == 0 ? 1 : -1)
                                          : std::numeric_limits<double>::infinity();
  }
  return out;
}

// Threads that draw tensors, where there are so many values that it takes long. Several trials are
// judged at once.
int threads_for(const Subject& subject) {
  constexpr std::int64_t kMany = 10'000'000;
  constexpr int kMost = 4;
  std::int64_t values = 0;
  for (const TensorSpec& spec : subject.tensors)
    if (spec.is_read()) values += spec.count();
  const int share = static_cast<int>(std::thread::hardware_concurrency()) / kMost;
  return values < kMany ? 1 : std::clamp(share, 1, kMost);
}

Elements draw_all(const Subject& subject, const Scenario& s, std::size_t other) {
  Elements elements(subject.tensors.size());
  const int threads = threads_for(subject);
  std::atomic<std::size_t> next = 0;
  parallel_for(threads, threads, 1, [&](std::int64_t, std::int64_t) {
    for (std::size_t t = next++; t < elements.size(); t = next++)
      if (subject.tensors[t].is_read()) elements[t] = draw_tensor(subject, s, t, other);
  });
  if (s.pattern == Pattern::cancelling) make_cancelling(subject, elements);
  if (subject.constrain) subject.constrain(elements);
  return elements;
}

struct Structured {
  const char* name;
  Pattern pattern;
  bool essential = false;
};
constexpr Structured kStructured[] = {
    {"all equal", Pattern::equal, true},
    {"one-hot", Pattern::one_hot, true},
    {"alternating", Pattern::alternating},
    {"zeros and ones", Pattern::bits, true},
    {"repeated weight rows", Pattern::repeated_rows},
    {"large dynamic range", Pattern::dynamic_range},
    {"denormals", Pattern::denormal},
    {"outlier columns", Pattern::outliers},
    {"sorted", Pattern::sorted},
    {"tiny", Pattern::tiny},
    {"large", Pattern::large, true},
    {"negative", Pattern::negative},
    {"huge", Pattern::huge, true},
    {"rows apart", Pattern::rows_apart, true},
    {"signed zeros", Pattern::signed_zeros},
};

}  // namespace

std::vector<Scenario> scenarios_for(const Subject& subject, const GateOptions& options) {
  std::size_t edges = 1;
  for (const TensorSpec& spec : subject.tensors) edges = std::max(edges, spec.edges.size());
  AC_ASSERT(!options.scales.empty());
  std::vector<Scenario> scenarios;
  const auto add = [&](Scenario scenario) {
    scenario.edge = scenarios.size();
    if (edges > 1) scenario.name += fmt::format(", edge {}", scenario.edge % edges);
    scenarios.push_back(std::move(scenario));
  };
  // Every edge has its random scenario, however few seeds are asked for.
  const std::size_t seeds = static_cast<std::size_t>(std::max(options.seeds, 1));
  const std::size_t wanted = std::max(seeds * options.scales.size(), edges > 1 ? edges : 0);
  for (std::size_t i = 0; i < wanted; ++i) {
    // Each time round the edges, they meet the next scale.
    const std::size_t shift = edges > 1 ? i / edges : 0;
    const double scale = options.scales[(i + shift) % options.scales.size()];
    add({.name = fmt::format("random x{}", scale),
         .seed = options.first_seed + static_cast<unsigned>(i / options.scales.size()),
         .scale = scale});
  }
  const unsigned seed = options.first_seed + 100;
  if (options.structured)
    for (const auto& [name, pattern, essential] : kStructured)
      if (essential || !options.essential)
        add({.name = name, .pattern = pattern, .seed = seed + static_cast<unsigned>(pattern)});
  if (subject.run_alone)
    for (const unsigned other : {56u, 57u})
      add({.name = "sums that cancel", .pattern = Pattern::cancelling, .seed = seed + other});
  const auto any = [&](bool TensorSpec::* may) {
    return std::ranges::any_of(subject.tensors, may);
  };
  if (options.hostile && any(&TensorSpec::may_be_masked))
    add({.name = "masked rows", .pattern = Pattern::masked, .seed = seed + 52});
  if (options.hostile && any(&TensorSpec::may_be_outside))
    for (const unsigned other : {53u, 54u})
      add({.name = "ids outside", .pattern = Pattern::outside, .seed = seed + other});
  if (options.hostile)
    for (std::size_t t = 0; t < subject.tensors.size(); ++t) {
      const TensorSpec& spec = subject.tensors[t];
      if (!has_nan(spec.dtype)) continue;
      const auto end = subject.tensors.begin() + static_cast<std::ptrdiff_t>(t);
      const auto is_like = [&](const TensorSpec& before) {
        return before.role == spec.role && before.dtype == spec.dtype && before.shape == spec.shape;
      };
      if (options.one_of_a_shape && spec.role == TensorRole::weight &&
          std::find_if(subject.tensors.begin(), end, is_like) != end)
        continue;
      if (spec.role == TensorRole::input || spec.role == TensorRole::weight)
        add(with_nan(subject, options, t));
      if (spec.role == TensorRole::input || (spec.role == TensorRole::weight && spec.may_be_huge))
        add({"an infinity in " + spec.name, Pattern::an_infinity, seed + 51, 1, 0, t});
    }
  return scenarios;
}

Scenario with_nan(const Subject& subject, const GateOptions& options, std::size_t tensor) {
  return {.name = "a NaN in " + subject.tensors[tensor].name,
          .pattern = Pattern::a_nan,
          .seed = options.first_seed + 150,
          .hostile = tensor};
}

Elements elements_of(const Subject& subject, const Scenario& scenario) {
  return draw_all(subject, scenario, kNone);
}

Elements with_another(const Subject& subject, const Scenario& scenario, std::size_t tensor) {
  return draw_all(subject, scenario, tensor);
}

}  // namespace ac::validate
