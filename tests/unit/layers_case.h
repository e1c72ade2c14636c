// Runs all layers of a small random decoder in one launch, and compares them with plain loops in
// double.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "kernels/layers.cuh"
#include "kernels/shim/host_launch.h"
#include "tests/unit/matrix_map.h"

namespace ac::kernels {

inline float number(bf16 x) { return to_float(x); }

// A matrix of rows of k elements: these, or codes packed in 16 bits, and scales.
struct LayersMatrix {
  std::vector<bf16> units, scales;
  Format format{};
  int k = 0;
  std::size_t rows() const {
    return units.size() * 16 / static_cast<std::size_t>(code_bits(format, Type::bf16) * k);
  }
  double code(std::size_t i) const {
    if (bits_of(format.codes) == 4) return (units[i / 4].bits >> i % 4 * 4 & 15) - 8;
    const int byte = units[i / 2].bits >> i % 2 * 8 & 255;
    return is_whole(format.codes) ? byte - 128 : to_float(e4m3{static_cast<unsigned char>(byte)});
  }
  double at(int row, int column) const {
    const std::size_t i = static_cast<std::size_t>(row) * static_cast<std::size_t>(k) +
                          static_cast<std::size_t>(column);
    if (format.is_plain()) return number(units[i]);
    const int scale = format.row_of_scales(row) * format.scales_of_row(k) +
                      (format.columns > 0 ? column / format.columns : 0);
    return code(i) * number(scales[static_cast<std::size_t>(scale)]);
  }
};

struct LayersModel {
  LayersOp op;
  int capacity;
  std::mt19937 random{7};
  struct Layer {
    LayersMatrix q, k, v, o, gate, up, down;
    std::vector<bf16> norm, mlp_norm, q_norm, k_norm, keys, values;
  };
  std::vector<Layer> layers;
  std::vector<float> rope;

  std::vector<bf16> some(int count, float bound, float offset = 0) {
    std::uniform_real_distribution<float> draw(offset - bound, offset + bound);
    std::vector<bf16> all(static_cast<std::size_t>(count));
    for (bf16& x : all) x = from_float<bf16>(draw(random));
    return all;
  }
  LayersMatrix matrix(int rows, int k, float bound) {
    const Format& format = op.format;
    if (format.is_plain()) return {some(rows * k, bound), {}, format, k};
    const int bits = bits_of(format.codes);
    const float largest = bits == 4 ? 8 : 128;
    const int scales =
        (format.rows > 0 ? divide_up(rows, format.rows) : 1) * format.scales_of_row(k);
    LayersMatrix m{std::vector<bf16>(static_cast<std::size_t>(rows * k * bits / 16)),
                   some(scales, bound / largest / 2, bound / largest), format, k};
    for (bf16& unit : m.units) unit.bits = static_cast<unsigned short>(random());
    if (!is_whole(format.codes))
      for (bf16& unit : m.units)
        for (const unsigned not_a_number : {0x7fu, 0x7f00u})
          if ((unit.bits & not_a_number) == not_a_number) unit.bits ^= 0x1111u & not_a_number;
    return m;
  }
  LayersModel(const LayersOp& op, int count, int capacity) : op(op), capacity(capacity) {
    const int q = op.query_rows(), kv = op.kv_rows(), cached = kv * capacity;
    const float in = 1.5f / std::sqrt(static_cast<float>(op.hidden));
    for (int i = 0; i < count; ++i)
      layers.push_back({matrix(q, op.hidden, in), matrix(kv, op.hidden, in),
                        matrix(kv, op.hidden, in), matrix(op.hidden, q, 0.05f),
                        matrix(op.inter, op.hidden, in), matrix(op.inter, op.hidden, in),
                        matrix(op.hidden, op.inter, 0.05f), some(op.hidden, 0.5f, 1),
                        some(op.hidden, 0.5f, 1), some(op.head_dim, 0.5f, 1),
                        some(op.head_dim, 0.5f, 1), some(cached, 1), some(cached, 1)});
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
  static void norm(double* x, int count, const std::vector<bf16>& weights) {
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
      const Values v = product(l.v, x);
      for (int i = 0; i < op.heads; ++i) {
        if (op.head_norms) norm(&q[static_cast<std::size_t>(i * dim)], dim, l.q_norm);
        turn(&q[static_cast<std::size_t>(i * dim)], tokens);
      }
      for (int i = 0; i < op.kv_heads; ++i) {
        if (op.head_norms) norm(&k[static_cast<std::size_t>(i * dim)], dim, l.k_norm);
        turn(&k[static_cast<std::size_t>(i * dim)], tokens);
      }
      appended.push_back(k), appended.push_back(v);
      Values attended(q.size());
      for (int head = 0; head < op.heads; ++head) {
        const int kv = head / group;
        const auto cached = [&](const std::vector<bf16>& rows, const Values& now, int t, int d) {
          return t == tokens
                     ? now[static_cast<std::size_t>(kv * dim + d)]
                     : number(rows[static_cast<std::size_t>((kv * capacity + t) * dim + d)]);
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
      std::vector<bf16>& to = memory_.back();
      starts.push_back(to.size());
      for (auto row = matrix->units.begin(); row != matrix->units.end(); row += k) {
        to.insert(to.end(), row, row + k);
        to.insert(to.end(), static_cast<std::size_t>(gap), from_float<bf16>(NAN));
      }
    }
    for (std::size_t i = 0; i < maps.size(); ++i) {
      const std::vector<bf16>& from = memory_[memory_.size() - (joined ? 1 : maps.size() - i)];
      const bool in_turn = maps.size() == 2;
      *maps[i] = matrix_map(
          op.type, from.data() + starts[i], static_cast<int>(matrices[i]->units.size()) / k, k,
          pitch, in_turn ? LayersPlan::pair_box_rows : LayersPlan::box_rows, plan.box_panels());
    }
  }

  std::vector<std::vector<bf16>> memory_;
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
  if (has_nan) model.layers[0].k_norm[3] = from_float<bf16>(NAN);
  LayersParams p{};
  LayersMemory memory;
  p.layers = layer_count;
  for (int i = 0; i < layer_count; ++i) {
    LayersModel::Layer& l = model.layers[static_cast<std::size_t>(i)];
    p.maps[i] = memory.maps_of(op, plan, l, i % 2 == 1, i % 3 * 8);
    p.layer[i] = {l.norm.data(),       l.mlp_norm.data(), l.q_norm.data(),      l.k_norm.data(),
                  l.keys.data(),       l.values.data(),   l.q.scales.data(),    l.k.scales.data(),
                  l.v.scales.data(),   l.o.scales.data(), l.gate.scales.data(), l.up.scales.data(),
                  l.down.scales.data()};
  }
  std::vector<Word> words(static_cast<std::size_t>(plan.words(op)), Word{0, 0});
  unsigned done = 0;
  int position = 0;
  std::vector<bf16> in, out(static_cast<std::size_t>(op.hidden));
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
    for (const bf16 x : in) start.push_back(number(x));
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
      for (const bf16 x : out)
        if (!std::isnan(number(x)))
          return fmt::format("after {} tokens {} comes of a key that is no number", tokens,
                             number(x));
      continue;
    }
    double error = 0, size = 0;
    for (std::size_t i = 0; i < start.size(); ++i) {
      const double change = expected[i] - start[i];
      error += std::pow(number(out[i]) - expected[i], 2), size += change * change;
    }
    if (!(std::sqrt(error / size) < 0.01))
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
        const double right = is_new ? appended[i][head * dim + j % dim] : number(were[j]);
        if (!(std::abs(number(rows[j]) - right) <= (is_new ? 0.03 : 0)))
          return fmt::format("after {} tokens, {} of layer {}, head {}, token {} is {}, not {}",
                             tokens, i % 2 == 0 ? "a key" : "a value", i / 2, head, token,
                             number(rows[j]), right);
      }
    }
  }
  return {};
}

}  // namespace ac::kernels
