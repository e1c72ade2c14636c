// Runs all layers of a small random decoder in one launch, and compares them with plain loops in
// double.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "kernels/layers.cuh"
#include "kernels/shim/host_launch.h"
#include "tests/unit/matrix_map.h"

namespace ac::kernels {

// Elements of 16 bits.
using Bits = unsigned short;
inline float number(Type type, Bits x) {
  return type == Type::f16 ? to_float(f16{x}) : to_float(bf16{x});
}
inline Bits bits_of(Type type, float x) {
  return type == Type::f16 ? from_float<f16>(x).bits : from_float<bf16>(x).bits;
}

// A number of a scale's type nearby, and its bytes behind others.
inline void add_scale(ScaleType type, float x, std::vector<unsigned char>& to) {
  const auto add = [&](auto v) {
    const auto* const bytes = reinterpret_cast<const unsigned char*>(&v);
    to.insert(to.end(), bytes, bytes + sizeof v);
  };
  if (type == ScaleType::f32) add(x);
  if (type == ScaleType::f16) add(from_float<f16>(x));
  if (type == ScaleType::bf16) add(from_float<bf16>(x));
  const int exponent = std::ilogb(x);
  const double eighths = std::ldexp(x, 3 - exponent) - 8;
  if (type == ScaleType::e4m3)
    add(static_cast<unsigned char>((exponent + 7) * 8 + static_cast<int>(eighths)));
  if (type == ScaleType::e8m0) add(static_cast<unsigned char>(127 + exponent));
}

// A matrix of rows of k elements: these, or codes packed in 16 bits, with scales and what else the
// format has.
struct LayersMatrix {
  std::vector<Bits> units;
  Type type = Type::bf16;
  Format format{};
  int k = 0;
  std::vector<unsigned char> scales, zeros;
  float global = 1;

  std::size_t rows() const {
    return units.size() * 16 / static_cast<std::size_t>(code_bits(format, Type::bf16) * k);
  }
  const void* beside() const {
    return format.zeros ? static_cast<const void*>(zeros.data()) : &global;
  }
  double code(std::size_t i) const {
    if (bits_of(format.codes) == 4) {
      const int bits = units[i / 4] >> i % 4 * 4 & 15;
      constexpr double sizes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
      if (is_whole(format.codes)) return bits;
      return bits < 8 ? sizes[bits] : -sizes[bits - 8];
    }
    const int byte = units[i / 2] >> i % 2 * 8 & 255;
    return is_whole(format.codes) ? byte : to_float(e4m3{static_cast<unsigned char>(byte)});
  }
  double scale(std::size_t i) const {
    const unsigned char* const at = &scales[i * static_cast<std::size_t>(bytes_of(format.scale))];
    switch (format.scale) {
      case ScaleType::f32:
        return load_as<float>(at);
      case ScaleType::f16:
        return to_float(load_as<f16>(at));
      case ScaleType::bf16:
        return to_float(load_as<bf16>(at));
      case ScaleType::e4m3:
        return to_float(e4m3{*at});
      case ScaleType::e8m0:
        return std::ldexp(1.0, *at - 127);
      case ScaleType::i8:
        break;
    }
    return NAN;
  }
  double at(int row, int column) const {
    const std::size_t i = static_cast<std::size_t>(row) * static_cast<std::size_t>(k) +
                          static_cast<std::size_t>(column);
    if (format.is_plain()) return number(type, units[i]);
    const auto group =
        static_cast<std::size_t>(format.row_of_scales(row) * format.scales_of_row(k) +
                                 (format.columns > 0 ? column / format.columns : 0));
    const int zero = format.zeros ? zeros[group] : middle_of(format.codes);
    return (code(i) - zero) * scale(group) * global;
  }
};

// Cached keys or values, [kv_heads, capacity, head_dim]: elements, or codes with a scale a row.
struct LayersCache {
  LayersOp op;
  std::vector<Bits> elements;
  std::vector<e4m3> codes = {};
  std::vector<float> scales = {};

  double at(std::size_t i) const {
    return op.fp8 ? to_float(codes[i]) * double{scales[i / static_cast<std::size_t>(op.head_dim)]}
                  : number(op.type, elements[i]);
  }
  std::size_t size() const { return op.fp8 ? codes.size() : elements.size(); }
  void* data() { return op.fp8 ? static_cast<void*>(codes.data()) : elements.data(); }
};

struct LayersModel {
  LayersOp op;
  int capacity;
  std::mt19937 random{7};
  struct Layer {
    LayersMatrix q, k, v, o, gate, up, down;
    std::vector<Bits> norm, mlp_norm, q_norm, k_norm;
    LayersCache keys, values;
  };
  std::vector<Layer> layers;
  std::vector<float> rope;

  std::vector<Bits> some(int count, float bound, float offset = 0) {
    std::uniform_real_distribution<float> draw(offset - bound, offset + bound);
    std::vector<Bits> all(static_cast<std::size_t>(count));
    for (Bits& x : all) x = bits_of(op.type, draw(random));
    return all;
  }
  LayersMatrix matrix(int rows, int k, float bound) {
    const Format& format = op.format;
    LayersMatrix m;
    m.type = op.type, m.format = format, m.k = k;
    if (format.is_plain()) {
      m.units = some(rows * k, bound);
      return m;
    }
    const int bits = bits_of(format.codes);
    const float largest = (bits == 8                ? 128.f
                           : is_whole(format.codes) ? 8.f
                                                    : 6.f) *
                          (format.zeros ? 2 : 1);
    if (format.global) m.global = bound / largest * 0.75f;
    const float middle = bound / largest / m.global;
    std::uniform_real_distribution<float> draw(middle / 2, middle * 1.5f);
    const int scales =
        (format.rows > 0 ? divide_up(rows, format.rows) : 1) * format.scales_of_row(k);
    for (int i = 0; i < scales; ++i) {
      add_scale(format.scale, draw(random), m.scales);
      // One above the largest code can be a zero point, too.
      if (format.zeros)
        m.zeros.push_back(static_cast<unsigned char>(random() % (bits == 4 ? 17 : 256)));
    }
    m.units.resize(static_cast<std::size_t>(rows * k * bits / 16));
    for (Bits& unit : m.units) unit = static_cast<Bits>(random());
    if (bits == 8 && !is_whole(format.codes))
      for (Bits& unit : m.units)
        for (const unsigned not_a_number : {0x7fu, 0x7f00u})
          if ((unit & not_a_number) == not_a_number)
            unit = static_cast<Bits>(unit ^ (0x1111u & not_a_number));
    return m;
  }
  LayersCache cache() {
    const int rows = op.kv_heads * capacity, count = rows * op.head_dim;
    if (!op.fp8) return {op, some(count, 1)};
    LayersCache made{op, {}};
    for (int i = 0; i < count; ++i) {
      const auto code = static_cast<unsigned char>(random());
      // The two codes that are NaN become numbers.
      made.codes.push_back({(code & 0x7f) == 0x7f ? static_cast<unsigned char>(code - 1) : code});
    }
    std::uniform_real_distribution<float> draw(0.5f / most_e4m3, 2 / most_e4m3);
    for (int i = 0; i < rows; ++i) made.scales.push_back(draw(random));
    return made;
  }
  // This token's key or value as it is cached (kernels/row_codes.h).
  std::vector<double> as_cached(std::vector<double> x) const {
    if (!op.fp8) return x;
    for (double& of : x) of = number(bits_of(op.type, static_cast<float>(of)));
    for (std::size_t row = 0; row < x.size(); row += static_cast<std::size_t>(op.head_dim)) {
      double largest = 0;
      for (int d = 0; d < op.head_dim; ++d)
        largest = std::max(largest, std::abs(x[row + static_cast<std::size_t>(d)]));
      const double scale = largest / most_e4m3;
      for (int d = 0; d < op.head_dim; ++d) {
        double& of = x[row + static_cast<std::size_t>(d)];
        of = to_float(nearest_e4m3(static_cast<float>(of / scale))) * scale;
      }
    }
    return x;
  }
  LayersModel(const LayersOp& op, int count, int capacity) : op(op), capacity(capacity) {
    const int q = op.query_rows(), kv = op.kv_rows();
    const float in = 1.5f / std::sqrt(static_cast<float>(op.hidden));
    for (int i = 0; i < count; ++i)
      layers.push_back({matrix(q, op.hidden, in), matrix(kv, op.hidden, in),
                        matrix(kv, op.hidden, in), matrix(op.hidden, q, 0.05f),
                        matrix(op.inter, op.hidden, in), matrix(op.inter, op.hidden, in),
                        matrix(op.hidden, op.inter, 0.05f), some(op.hidden, 0.5f, 1),
                        some(op.hidden, 0.5f, 1), some(op.head_dim, 0.5f, 1),
                        some(op.head_dim, 0.5f, 1), cache(), cache()});
    for (int position = 0; position < capacity; ++position)
      for (int i = 0; i < op.head_dim / 2; ++i) {
        const double angle = position * std::pow(100.0, -2.0 * i / op.head_dim);
        rope.push_back(static_cast<float>(std::cos(angle)));
        rope.push_back(static_cast<float>(std::sin(angle)));
      }
  }

  using Values = std::vector<double>;
  static Values product(const LayersMatrix& matrix, const Values& x) {
    Values y(matrix.rows());
    for (std::size_t r = 0; r < y.size(); ++r)
      for (std::size_t i = 0; i < x.size(); ++i)
        y[r] += matrix.at(static_cast<int>(r), static_cast<int>(i)) * x[i];
    return y;
  }
  double number(Bits x) const { return kernels::number(op.type, x); }
  void norm(double* x, int count, const std::vector<Bits>& weights) const {
    double squares = 0;
    for (int i = 0; i < count; ++i) squares += x[i] * x[i];
    for (int i = 0; i < count; ++i)
      x[i] *= number(weights[static_cast<std::size_t>(i)]) / std::sqrt(squares / count + 1e-5);
  }
  void turn(double* x, int position) const {
    const int half = op.head_dim / 2;
    for (int i = 0; i < half; ++i) {
      const double c = rope[static_cast<std::size_t>((position * half + i) * 2)];
      const double s = rope[static_cast<std::size_t>((position * half + i) * 2 + 1)];
      const double low = x[i], high = x[i + half];
      x[i] = low * c - high * s, x[i + half] = high * c + low * s;
    }
  }
  // The hidden state after all layers; `appended` gets the keys, and then the values, that a token
  // has in each layer.
  Values run(Values h, int tokens, std::vector<Values>& appended) const {
    const int dim = op.head_dim, group = op.group();
    for (const Layer& l : layers) {
      Values x = h;
      norm(x.data(), op.hidden, l.norm);
      Values q = product(l.q, x), k = product(l.k, x);
      const Values v = as_cached(product(l.v, x));
      for (int i = 0; i < op.heads; ++i) {
        if (op.head_norms) norm(&q[static_cast<std::size_t>(i * dim)], dim, l.q_norm);
        turn(&q[static_cast<std::size_t>(i * dim)], tokens);
      }
      for (int i = 0; i < op.kv_heads; ++i) {
        if (op.head_norms) norm(&k[static_cast<std::size_t>(i * dim)], dim, l.k_norm);
        turn(&k[static_cast<std::size_t>(i * dim)], tokens);
      }
      k = as_cached(k);
      appended.push_back(k), appended.push_back(v);
      Values attended(q.size());
      for (int head = 0; head < op.heads; ++head) {
        const int kv = head / group;
        const auto cached = [&](const LayersCache& rows, const Values& now, int t, int d) {
          return t == tokens ? now[static_cast<std::size_t>(kv * dim + d)]
                             : rows.at(static_cast<std::size_t>((kv * capacity + t) * dim + d));
        };
        Values weights;
        double sum = 0;
        for (int t = 0; t <= tokens; ++t) {
          double dot = 0;
          for (int d = 0; d < dim; ++d)
            dot += q[static_cast<std::size_t>(head * dim + d)] * cached(l.keys, k, t, d);
          weights.push_back(std::exp(dot / std::sqrt(dim)));
          sum += weights.back();
        }
        for (int t = 0; t <= tokens; ++t)
          for (int d = 0; d < dim; ++d)
            attended[static_cast<std::size_t>(head * dim + d)] +=
                weights[static_cast<std::size_t>(t)] / sum * cached(l.values, v, t, d);
      }
      const Values o = product(l.o, attended);
      for (std::size_t i = 0; i < h.size(); ++i) h[i] += o[i];
      x = h;
      norm(x.data(), op.hidden, l.mlp_norm);
      Values gate = product(l.gate, x);
      const Values up = product(l.up, x);
      for (std::size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
      const Values down = product(l.down, gate);
      for (std::size_t i = 0; i < h.size(); ++i) h[i] += down[i];
    }
    return h;
  }
};

// A layer's weights in memory, and maps of them. Matrices that share an input are rows of one, or
// each is its own; rows have gaps of NaN between them, or none.
class LayersMemory {
 public:
  LayerMaps maps_of(const LayersOp& op, const LayersPlan& plan, const LayersModel::Layer& l,
                    bool joined, int gap) {
    LayerMaps maps;
    const auto add = [&](const std::vector<const LayersMatrix*>& matrices, int k,
                         const std::vector<TensorMap*>& of) {
      const int units = k * code_bits(op.format, op.type) / 16;
      add_matrices(op, plan, matrices, units, joined, gap, of);
    };
    add({&l.q, &l.k, &l.v}, op.hidden, {&maps.q, &maps.k, &maps.v});
    add({&l.o}, op.query_rows(), {&maps.o});
    add({&l.gate, &l.up}, op.hidden, {&maps.gate, &maps.up});
    add({&l.down}, op.inter, {&maps.down});
    return maps;
  }

 private:
  void add_matrices(const LayersOp& op, const LayersPlan& plan,
                    const std::vector<const LayersMatrix*>& matrices, int k, bool joined, int gap,
                    const std::vector<TensorMap*>& maps) {
    const int pitch = k + gap;
    std::vector<std::size_t> starts;
    for (const auto* const matrix : matrices) {
      if (!joined || starts.empty()) memory_.emplace_back();
      std::vector<Bits>& to = memory_.back();
      starts.push_back(to.size());
      for (auto row = matrix->units.begin(); row != matrix->units.end(); row += k) {
        to.insert(to.end(), row, row + k);
        to.insert(to.end(), static_cast<std::size_t>(gap), bits_of(op.type, NAN));
      }
    }
    for (std::size_t i = 0; i < maps.size(); ++i) {
      const std::vector<Bits>& from = memory_[memory_.size() - (joined ? 1 : maps.size() - i)];
      const bool in_turn = maps.size() == 2;
      *maps[i] = matrix_map(
          op.type, from.data() + starts[i], static_cast<int>(matrices[i]->units.size()) / k, k,
          pitch, in_turn ? LayersPlan::pair_box_rows : LayersPlan::box_rows, plan.box_panels());
    }
  }

  std::vector<std::vector<Bits>> memory_;
};

// What is wrong, or nothing. Tokens: how many are cached in each of the launches, which are made
// one after another and leave their words to the next. Layers: of each launch. has_nan: no key of
// this token is a number, and so nothing that comes out.
template <LayersOp op, LayersPlan plan>
std::string run_layers(void (*kernel)(LayersParams), Schedule schedule, int layer_count,
                       std::initializer_list<int> cached, bool check_races = false,
                       bool has_nan = false) {
  static_assert(plan.why_illegal(op) == nullptr);
  constexpr int capacity = 100;
  LayersModel model(op, layer_count, capacity);
  if (has_nan) model.layers[0].k_norm[3] = bits_of(op.type, NAN);
  LayersParams p{};
  LayersMemory memory;
  p.layers = layer_count;
  for (int i = 0; i < layer_count; ++i) {
    LayersModel::Layer& l = model.layers[static_cast<std::size_t>(i)];
    p.maps[i] = memory.maps_of(op, plan, l, i % 2 == 1, i % 3 * 8);
    p.layer[i] = {l.norm.data(),
                  l.mlp_norm.data(),
                  l.q_norm.data(),
                  l.k_norm.data(),
                  l.keys.data(),
                  l.values.data(),
                  l.keys.scales.data(),
                  l.values.scales.data(),
                  {},
                  {}};
    const auto add = [&](const void* OfMatrices::* which, const LayersMatrix& m) {
      p.layer[i].scales.*which = m.scales.data();
      p.layer[i].beside.*which = m.beside();
    };
    add(&OfMatrices::q, l.q), add(&OfMatrices::k, l.k), add(&OfMatrices::v, l.v);
    add(&OfMatrices::o, l.o), add(&OfMatrices::gate, l.gate), add(&OfMatrices::up, l.up);
    add(&OfMatrices::down, l.down);
  }
  std::vector<Word> words(static_cast<std::size_t>(plan.words(op)), Word{0, 0});
  unsigned done = 0;
  int position = 0;
  std::vector<Bits> in, out(static_cast<std::size_t>(op.hidden));
  p.out = out.data(), p.rope = model.rope.data(), p.position = &position;
  p.words = words.data(), p.done = &done;
  p.rope_pitch = op.head_dim, p.capacity = capacity;
  p.norm_eps = p.head_norm_eps = 1e-5f, p.norm_offset = p.head_norm_offset = 0;
  p.scale = 1 / std::sqrt(static_cast<float>(op.head_dim));
  for (const int tokens : cached) {
    position = tokens;
    in = model.some(op.hidden, 1);
    p.in = in.data();
    LayersModel::Values start;
    for (const Bits x : in) start.push_back(model.number(x));
    std::vector<LayersModel::Values> appended;
    const LayersModel::Values expected = model.run(start, tokens, appended);
    const std::vector<LayersModel::Layer> layers = model.layers;
    const unsigned before = done;
    const LaunchReport report = host_launch({.grid = {plan.blocks, 1, 1},
                                             .block = {plan.threads(), 1, 1},
                                             .shared_bytes = std::size_t{plan.shared_bytes(op)},
                                             .cluster = 0,
                                             .schedule = schedule,
                                             .check_races = check_races,
                                             .must_wait = true},
                                            kernel, p);
    if (!report.ok()) return report.error;
    if (has_nan) {
      for (const Bits x : out)
        if (!std::isnan(model.number(x)))
          return fmt::format("after {} tokens {} comes of a key that is no number", tokens,
                             model.number(x));
      continue;
    }
    double error = 0, size = 0;
    for (std::size_t i = 0; i < start.size(); ++i) {
      const double change = expected[i] - start[i];
      error += std::pow(model.number(out[i]) - expected[i], 2), size += change * change;
    }
    // This token's codes may differ by one step from the reference's: the kernel rounds values that
    // have 16 bits. With few tokens in the cache, this token has most of the attention.
    if (!(std::sqrt(error / size) < (op.fp8 && tokens < 16 ? 0.04 : 0.01)))
      return fmt::format("after {} tokens the error is {:.4f} of what the layers add", tokens,
                         std::sqrt(error / size));
    if (done != before + static_cast<unsigned>(layer_count))
      return "the launch did not count its layers";
    for (std::size_t i = 0; i < appended.size(); ++i) {
      const auto& rows = i % 2 == 0 ? model.layers[i / 2].keys : model.layers[i / 2].values;
      const auto& were = i % 2 == 0 ? layers[i / 2].keys : layers[i / 2].values;
      for (std::size_t j = 0; j < rows.size(); ++j) {
        const auto dim = static_cast<std::size_t>(op.head_dim);
        const std::size_t head = j / dim / capacity, token = j / dim % capacity;
        const bool is_new = token == static_cast<std::size_t>(tokens);
        const double right = is_new ? appended[i][head * dim + j % dim] : were.at(j);
        // A code may differ by one step, an eighth of its value: the kernel rounds values of 16
        // bits.
        const double most = is_new ? 0.03 + (op.fp8 ? std::abs(right) / 8 : 0) : 0;
        if (!(std::abs(rows.at(j) - right) <= most))
          return fmt::format("after {} tokens, {} of layer {}, head {}, token {} is {}, not {}",
                             tokens, i % 2 == 0 ? "a key" : "a value", i / 2, head, token,
                             rows.at(j), right);
      }
    }
  }
  return {};
}

}  // namespace ac::kernels
