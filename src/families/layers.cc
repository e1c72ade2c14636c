#include "families/layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "families/attending.h"
#include "ir/layout.h"
#include "ir/weights.h"

namespace ac {

using namespace kernels;

namespace {

// Weights of two layers beyond which the gate would take minutes, and their bytes beside which it
// is little what layers lose between launches.
constexpr double kMostOfTwo = 256e6, kMostBytesOfTwo = 256e6;
// With codes of 4 bits, blocks wait for words longer than for memory.
bool may_be_paced(const LayersOp& op) { return bits_of(op.format.codes) == 4; }
// A plan's pace as a multiple of the time that memory takes for a stage of all blocks.
double pace_of(const LayersPlan& plan, const DeviceInfo& device) {
  constexpr double kClock = 1.9e9;
  return plan.pace / kClock * device.bandwidth / (plan.blocks * plan.stage_bytes());
}
// How much slower than at the best pace: 6 and 8 % were measured of the layers of Qwen3-4B and
// Qwen3-1.7B without one, on an H200. Memory that is slower than it need be holds up more.
double loss_of_pace(const LayersPlan& plan, const DeviceInfo& device) {
  constexpr double kUnpaced = 0.06, kBest = 1.05, kLeast = 0.95, kMost = 1.35, kNear = 0.1;
  if (plan.pace == 0) return kUnpaced;
  const double pace = pace_of(plan, device);
  return pace < kLeast || pace > kMost ? 2 * kUnpaced : kNear * std::abs(pace - kBest);
}
// Columns that warps take in a layer, those behind the ends of rows included, of each that it has.
double taken_columns(const LayersOp& op, const LayersPlan& plan) {
  double taken = 0, all = 0;
  const auto add = [&](double rows, int k) {
    taken += rows * plan.steps_of(op, k) * plan.columns(op), all += rows * k;
  };
  add(op.qkv_rows(), op.hidden), add(op.hidden, op.query_rows());
  add(2.0 * op.inter, op.hidden), add(op.hidden, op.inter);
  return taken / all;
}
// The host device runs the threads of all blocks in turn: its plans have no more blocks than this.
constexpr int kMostBlocksOnHost = 16;

// In the order of kernels/layers_plan.h.
std::vector<std::string> names_of_points() {
  std::vector<std::string> names;
  for (const char* link : {"q, k and v", "attention", "o", "gate and up", "down"})
    for (const char* point : {"its input is there", "computed", "handed on"})
      names.push_back(fmt::format("{}: {}", link, point));
  AC_ASSERT(names.size() == points_of_layer);
  return names;
}

class LayersMatcher {
 public:
  explicit LayersMatcher(const Body& body) : body_(body) {
    for (const NodeId id : body.compute())
      for (const NodeId input : body[id].inputs) {
        std::vector<NodeId>& of = readers_[storage_of(body.graph(), input)];
        if (std::ranges::find(of, id) == of.end()) of.push_back(id);
      }
  }

  // Why the region is no layers that the kernel knows, or null.
  const std::string* run() { return find() ? nullptr : &why_; }

  LayersTask task;
  LayersTask::Operands operands;

 private:
  using LayerOperands = LayersTask::LayerOperands;
  using Matrix = LayersTask::Matrix;

  bool refuse(std::string why) {
    why_ = std::move(why);
    return false;
  }

  bool find() {
    std::vector<NodeId> attends;
    for (const NodeId id : body_.compute())
      if (body_[id].op == Op::append_attend) attends.push_back(id);
    if (attends.size() < 2) return refuse("it is no layers");
    if (body_.graph().type(body_[attends[0]].inputs[0]).shape[0] != Dim(1))
      return refuse("more than one token");
    const auto type = kernel_type(body_.region().dtype);
    if (!type) return refuse("no kernels for its type");
    task.op.type = *type;
    if (attends.size() > most_layers)
      return refuse(fmt::format("one launch has {} layers at most", most_layers));
    task.layers = static_cast<int>(attends.size());
    task.tokens = static_cast<int>(body_.at().P);
    NodeId x = -1;
    for (const Parameter& input : body_.region().inputs)
      if (input.role == Role::activation && std::exchange(x, input.value) >= 0)
        return refuse("more than one activation goes in");
    if (x < 0 || !body_.is_contiguous(x, Role::activation)) return refuse("no activation goes in");
    if (body_.region().outputs.size() != 1) return refuse("more than one value comes out");
    task.op.hidden = body_.columns(body_.graph().type(x).shape);
    operands.in = x;
    for (const NodeId attend : attends) {
      LayerOperands& layer = operands.layers.emplace_back();
      layer.attend = attend;
      if (!find_layer(layer, x) || !is_as_first(layer)) return false;
    }
    if (!body_.is_output(x)) return refuse("what comes out is no layer's sum");
    operands.out = x;
    if (done_ != body_.compute().size()) return refuse("it does more than layers");
    const LayersOp& op = task.op;
    const double rows = 2 * (op.qkv_rows() + op.query_rows() + 3.0 * op.inter);
    if (rows * op.hidden > kMostOfTwo ||
        weight_bytes(op.format, op.type, rows, op.hidden) > kMostBytesOfTwo)
      return refuse("layers so large gain little by one launch");
    if (const char* why = LayersPlan().why_illegal(op)) return refuse(why);
    return true;
  }

  const std::vector<NodeId>& readers(NodeId value) const {
    static const std::vector<NodeId> none;
    const auto known = readers_.find(value);
    return known == readers_.end() ? none : known->second;
  }
  // The only reader of a value, or of views of it, if it is such an op.
  std::optional<NodeId> sole_reader(NodeId value, Op op) const {
    const std::vector<NodeId>& all = readers(value);
    if (all.size() != 1 || body_[all[0]].op != op || body_.is_output(value)) return std::nullopt;
    return all[0];
  }

  // From x to what the next layer reads, which becomes x.
  bool find_layer(LayerOperands& layer, NodeId& x) {
    std::vector<NodeId> products;
    return find_normed(x, layer.norm, products) && find_attention(layer, products) &&
           find_sum(layer.attend, x, layer.o) && find_normed(x, layer.mlp_norm, products) &&
           find_mlp(layer, x, products);
  }

  // The norm of x and the products that read it. Besides the norm, only the sum reads x.
  bool find_normed(NodeId x, NodeId& norm, std::vector<NodeId>& products) {
    for (const NodeId reader : readers(x))
      if (body_[reader].op == Op::rms_norm) norm = reader;
    if (norm < 0 || readers(x).size() != 2 || body_.is_output(x))
      return refuse("no norm of the hidden state comes before the products");
    const Node& node = body_[norm];
    if (node.inputs[0] != x || body_.columns(node.type.shape) != task.op.hidden ||
        node.inputs.size() < 2 || !body_.is_contiguous(node.inputs[1], Role::weight))
      return refuse("a norm is not of the whole hidden state, with a weight");
    products = readers(norm);
    for (const NodeId product : products)
      if (body_[product].op != Op::linear || body_[product].inputs[0] != norm)
        return refuse("more than products reads a norm");
    done_ += 1 + products.size();
    return !body_.is_output(norm) || refuse("the normed state is needed outside");
  }

  // A product without bias, by a weight in the format that all have.
  bool is_known(NodeId product) {
    const Node& node = body_[product];
    if (node.inputs.size() > 2) return refuse("a product has a bias");
    if (!body_.is_contiguous(node.inputs[1], Role::weight))
      return refuse("a matrix is no whole weight");
    const Format format = format_of(body_[node.inputs[1]]).format;
    if (!std::exchange(has_format_, true)) task.op.format = format;
    return task.op.format == format || refuse("weights are in different formats");
  }
  // So many rows of one of the products, behind views.
  bool find_rows(NodeId value, const std::vector<NodeId>& products, int rows, Matrix& matrix) {
    const NodeId source = storage_of(body_.graph(), value);
    if (std::ranges::find(products, source) == products.end())
      return refuse("no product of the normed state is there for a value");
    if (!is_known(source)) return false;
    const Layout layout = layout_of(body_.graph(), value);
    if (layout.placement != Placement::contiguous || !layout.offset.is_constant())
      return refuse("a view behind a product moves elements");
    if (body_.size(product(body_.graph().type(value).shape)) != rows)
      return refuse("a product has other rows than heads");
    matrix = {body_[source].inputs[1], layout.offset.constant()};
    const Format& format = task.op.format;
    return format.rows < 2 || matrix.first_row % format.rows == 0 ||
           refuse("a view cuts rows that share a scale");
  }

  bool find_attention(LayerOperands& layer, const std::vector<NodeId>& products) {
    std::vector<NodeId> nodes{layer.attend};
    for (std::size_t i = 0; i < 3; ++i) {
      NodeId source = storage_of(body_.graph(), body_[layer.attend].inputs[i]);
      for (; body_[source].op == Op::rope || body_[source].op == Op::rms_norm;
           source = storage_of(body_.graph(), body_[source].inputs[0])) {
        if (!body_.inside(source) || std::ranges::find(nodes, source) != nodes.end())
          return refuse("a head is more than one of query, key and value");
        nodes.push_back(source);
      }
    }
    done_ += nodes.size();
    const auto made = make_region(body_.step(), nodes);
    if (const auto* boundary = std::get_if<Boundary>(&made)) return refuse(boundary->text);
    const auto attention =
        ac::find_attention(Body(body_.step(), std::get<Region>(made), body_.at()));
    if (const auto* why = std::get_if<std::string>(&attention)) return refuse(*why);
    const auto& found = std::get<FoundAttention>(attention);
    if (found.rotary != found.head_dim || found.interleaved)
      return refuse("RoPE must turn whole heads, one half with the other");
    if (found.window > 0 || found.softcap)
      return refuse("no attention that is windowed or soft-capped");
    LayersOp& op = task.op;
    const LayersOp of_heads{.type = op.type,
                            .hidden = op.hidden,
                            .heads = found.kv_heads * found.group,
                            .kv_heads = found.kv_heads,
                            .head_dim = found.head_dim,
                            .inter = op.inter,
                            .head_norms = found.operands.q_norm >= 0,
                            .format = op.format,
                            .fp8 = found.fp8};
    if (operands.layers.size() == 1) op = of_heads;
    if (cpp_of(op) != cpp_of(of_heads)) return refuse("the heads of layers differ");
    layer.q_norm = found.operands.q_norm, layer.k_norm = found.operands.k_norm;
    layer.rope = found.operands.rope;
    return find_rows(found.operands.q, products, op.query_rows(), layer.q) &&
           find_rows(found.operands.k, products, op.kv_rows(), layer.k) &&
           find_rows(found.operands.v, products, op.kv_rows(), layer.v);
  }

  // The product of a value, and its sum with x, which becomes x.
  bool find_sum(NodeId value, NodeId& x, Matrix& matrix) {
    const auto product = sole_reader(value, Op::linear);
    if (!product || !body_.is_flat(body_[*product].inputs[0]))
      return refuse("no product follows attention or the activation");
    const auto sum = sole_reader(*product, Op::add);
    const std::vector<NodeId> one{x, *product}, other{*product, x};
    if (!sum || (body_[*sum].inputs != one && body_[*sum].inputs != other))
      return refuse("a product is not added to the hidden state");
    matrix = {body_[*product].inputs[1], 0};
    done_ += 2;
    x = *sum;
    return is_known(*product);
  }

  // silu(gate) * up, its product and the sum.
  bool find_mlp(LayerOperands& layer, NodeId& x, const std::vector<NodeId>& products) {
    NodeId act = -1, pair = -1;
    for (const NodeId source : products)
      for (const NodeId reader : readers(source)) {
        const Op op = body_[reader].op;
        NodeId& place = op == Op::silu ? act : pair;
        if ((op != Op::silu && op != Op::mul) || (place >= 0 && place != reader))
          return refuse("the products of the MLP are no pair");
        place = reader;
      }
    if (act < 0 || pair < 0 || sole_reader(act, Op::mul) != pair)
      return refuse("an MLP's activation is not silu(gate) * up");
    const std::vector<NodeId>& factors = body_[pair].inputs;
    const NodeId up = factors[factors[0] == act ? 1 : 0];
    const int inter = body_.columns(body_.graph().type(pair).shape);
    if (operands.layers.size() == 1) task.op.inter = inter;
    if (inter != task.op.inter) return refuse("the MLPs of layers differ");
    done_ += 2;
    return find_rows(body_[act].inputs[0], products, inter, layer.gate) &&
           find_rows(up, products, inter, layer.up) && find_sum(pair, x, layer.down);
  }

  // What one launch has one number or table for.
  bool is_as_first(const LayerOperands& layer) {
    const LayerOperands& first = operands.layers[0];
    const auto same = [&](NodeId a, NodeId b, std::initializer_list<const char*> names) {
      return a < 0 ||
             std::ranges::all_of(
                 names,
                 [&](const char* name) { return body_[a].number(name) == body_[b].number(name); });
    };
    const Node &rope = body_[layer.rope], &turned = body_[first.rope];
    if (!same(layer.norm, first.norm, {"eps", "weight_offset"}) ||
        !same(layer.mlp_norm, first.norm, {"eps", "weight_offset"}) ||
        !same(layer.q_norm, first.q_norm, {"eps", "weight_offset"}))
      return refuse("the norms of layers differ");
    if (rope.inputs[2] != turned.inputs[2] || !same(layer.rope, first.rope, {"scale"}))
      return refuse("the layers turn heads differently");
    if (!same(layer.attend, first.attend, {"scale"}))
      return refuse("scores are scaled differently");
    return true;
  }

  const Body& body_;
  std::map<NodeId, std::vector<NodeId>> readers_;  // of what lies behind views
  std::size_t done_ = 0;                           // nodes that have a place
  bool has_format_ = false;                        // the first weight's is known
  std::string why_;
};

}  // namespace

Match<LayersTask> LayersTask::match(const Body& body) {
  LayersMatcher matcher(body);
  if (const std::string* why = matcher.run()) return *why;
  return Matched<LayersTask>{matcher.task, std::move(matcher.operands)};
}

std::vector<LayersPlan> LayersTask::plans() const {
  std::vector<LayersPlan> plans;
  // Ten warps have longer steps, and fewer of them in the ring.
  const auto add = [&](int warps, std::initializer_list<int> all_stages) {
    // As many blocks as a device has multiprocessors: of the host, some.
    for (const int blocks : {4, 8, 16, 78, 114, 132, 148, 152, 160})
      for (const int parts_o : {1, 2})
        for (const int parts_down : {1, 2, 3})
          for (const int stages : all_stages) {
            LayersPlan plan{.blocks = blocks,
                            .parts_o = parts_o,
                            .parts_down = parts_down,
                            .stages = stages,
                            .warps = warps};
            for (plan.window = 1; plan.window <= 3; ++plan.window) plans.push_back(plan);
            if (!may_be_paced(op)) continue;
            plan.window = 3;
            for (plan.pace = 750; plan.pace <= 2250; plan.pace += 150) plans.push_back(plan);
          }
  };
  add(8, {3, 6, 8, 10, 11, 12});
  if (!op.format.is_plain()) add(10, {5, 6, 7});
  return plans;
}

const char* LayersTask::why_illegal(const Plan& plan, const DeviceInfo& device) const {
  if (device.sm > 0 && device.sm < 90) return "the copy engine's maps need sm_90";
  const bool fits =
      device.sm == 0 ? plan.blocks <= kMostBlocksOnHost : plan.blocks == device.multiprocessors;
  if (!fits && device.multiprocessors != kAnyMultiprocessors)
    return "blocks are not as many as multiprocessors";
  if (plan.pace > 0 && device.sm == 0) return "the host device has no clock to keep a pace by";
  return plan.why_illegal(op, device.max_shared_bytes);
}

Footprint LayersTask::footprint(const Plan& plan, const DeviceInfo& device) const {
  constexpr int kRegisters = 168;
  return {.threads = std::min(plan.threads(), device.threads),  // on the host they take turns
          .shared_bytes = plan.shared_bytes(op),
          .registers = kRegisters,
          .blocks_per_sm = 1,
          .grid = plan.blocks};
}

Cost LayersTask::cost(const Plan& plan, const DeviceInfo& device) const {
  const Calibration::Layers& fit = device.constants().layers;
  Cost cost;
  cost.bytes = bytes(), cost.flops = flops();
  // Among plans that cost the same, the one with the longer ring and two stages under way comes
  // first.
  constexpr double kStage = 1e-3, kWindow = 2e-3;
  double slower = 1 + kStage / plan.stages + kWindow * std::abs(plan.window - 2);
  // Warps beyond a row's end are idle: with a quarter of the columns too many, the layers of
  // Qwen3-1.7B in int4 took 468 to 479 us on an H200, and 451 to 455 with none.
  constexpr double kIdle = 0.2;
  if (!op.format.is_plain()) slower += kIdle * (taken_columns(op, plan) - 1);
  if (may_be_paced(op)) slower += loss_of_pace(plan, device);
  const double reading = layers * fit.layer + cost.bytes / (device.bandwidth * fit.efficiency);
  const double panel = bits_of(op.format.codes) == 4 ? fit.nibbles : fit.bytes;
  const double multiplying =
      op.format.is_plain() ? 0 : layers * (fit.codes + plan.most_panels(op) * panel);
  cost.microseconds = (device.launch + std::max(reading, multiplying)) * slower * 1e6;
  if (device.sm == 0) cost.microseconds += plan.blocks;  // they take turns
  cost.occupancy = double(plan.threads()) / device.threads;
  cost.risk = Risk::medium;
  return cost;
}

double LayersTask::bytes() const {
  const double rows = op.qkv_rows() + op.query_rows() + 3.0 * op.inter;
  const double cached = 2.0 * op.kv_heads * cached_row_bytes(op.fp8, op.type, op.head_dim);
  return layers * (weight_bytes(op.format, op.type, rows, op.hidden) + cached * tokens);
}

double LayersTask::flops() const {
  const double weights = double(op.hidden) * (op.qkv_rows() + op.query_rows() + 3.0 * op.inter);
  return 2.0 * layers * (weights + 2.0 * tokens * op.query_rows());
}

Extent LayersTask::extent(const Plan& plan) const {
  const std::int64_t tile = std::int64_t{plan.warps} * LayersPlan::warp_keys(op);
  // Up to so many tokens one block attends a head.
  const std::int64_t alone = tile * std::max(plan.rounds_alone, 1);
  return {.block = kMaxRow, .key_tile = alone, .round = tile * plan.splits(op), .layers = 2};
}

void LayersTask::write_id(const Plan& plan, IdText& id) {
  id.add("{}x{}.{}.{}/{}", plan.blocks, plan.parts_o, plan.parts_down, plan.window, plan.stages);
  if (plan.warps != LayersPlan().warps) id.add("/warps{}", plan.warps);
  if (plan.pace > 0) id.add("/pace{}", plan.pace);
}

Generated LayersTask::lower(const Lowering& to, const Plan& plan, const Operands& o) const {
  Generated out;
  KernelOf<LayersParams> of(to, out, "layers", op, plan);
  LayersParams& p = of.params;
  // A map counts pairs of bytes, be they elements or codes.
  const auto map = [&](const TensorMap& field, const Matrix& matrix, int rows, int k, int box) {
    const int columns = k * code_bits(op.format, op.type) / 16;
    of.map(field, buffer_of(to.step, matrix.weight), matrix.first_row * columns * 2, rows, columns,
           columns, box, DType::bf16, plan.box_panels());
  };
  // Scales of a matrix, and its zero points or the one scale of it all.
  const auto beside = [&](const LayerPointers& pointers, const void* const OfMatrices::* which,
                          const Matrix& matrix, int k) {
    using Kind = WeightPart::Kind;
    const std::int64_t first =
        std::int64_t{op.format.row_of_scales(static_cast<int>(matrix.first_row))} *
        op.format.scales_of_row(k);
    const auto point = [&](const void* const& field, Kind part, std::int64_t offset) {
      of.point(field, buffer_of(to.step, matrix.weight, *traits(op.format).index_of(part)), offset);
    };
    if (op.format.is_plain()) return;
    point(pointers.scales.*which, Kind::scales, first * bytes_of(op.format.scale));
    if (op.format.zeros) point(pointers.beside.*which, Kind::zeros, first);
    if (op.format.global) point(pointers.beside.*which, Kind::global, 0);
  };
  for (std::size_t i = 0; i < o.layers.size(); ++i) {
    const LayerOperands& layer = o.layers[i];
    const LayerMaps& maps = p.maps[i];
    constexpr int kBox = LayersPlan::box_rows, kPairBox = LayersPlan::pair_box_rows;
    map(maps.q, layer.q, op.query_rows(), op.hidden, kBox);
    map(maps.k, layer.k, op.kv_rows(), op.hidden, kBox);
    map(maps.v, layer.v, op.kv_rows(), op.hidden, kBox);
    map(maps.o, layer.o, op.hidden, op.query_rows(), kBox);
    map(maps.gate, layer.gate, op.inter, op.hidden, kPairBox);
    map(maps.up, layer.up, op.inter, op.hidden, kPairBox);
    map(maps.down, layer.down, op.hidden, op.inter, kBox);
    const LayerPointers& pointers = p.layer[i];
    beside(pointers, &OfMatrices::q, layer.q, op.hidden);
    beside(pointers, &OfMatrices::k, layer.k, op.hidden);
    beside(pointers, &OfMatrices::v, layer.v, op.hidden);
    beside(pointers, &OfMatrices::o, layer.o, op.query_rows());
    beside(pointers, &OfMatrices::gate, layer.gate, op.hidden);
    beside(pointers, &OfMatrices::up, layer.up, op.hidden);
    beside(pointers, &OfMatrices::down, layer.down, op.inter);
    of.point(pointers.norm, to[layer.norm].inputs[1]);
    of.point(pointers.mlp_norm, to[layer.mlp_norm].inputs[1]);
    if (op.head_norms) {
      of.point(pointers.q_norm, to[layer.q_norm].inputs[1]);
      of.point(pointers.k_norm, to[layer.k_norm].inputs[1]);
    }
    const CacheOf cache = cache_of(to, layer.attend);
    of.point(pointers.keys, cache.keys), of.point(pointers.values, cache.values);
    if (op.fp8) {
      of.point(pointers.key_scales, cache.key_scales);
      of.point(pointers.value_scales, cache.value_scales);
    }
    AC_ASSERT(i == 0 || p.capacity == cache.capacity);
    p.capacity = cache.capacity;
  }
  const LayerOperands& first = o.layers[0];
  of.point(p.in, o.in), of.point(p.out, o.out);
  of.point(p.rope, {.role = Buffer::Role::rope_table,
                    .node = to[first.rope].inputs[2],
                    .scale = to[first.rope].number("scale")});
  p.rope_pitch = op.head_dim;
  of.point(p.position, {.role = Buffer::Role::position});
  // What blocks hand to each other, behind the count of layers.
  constexpr std::int64_t kBehindCount = 256, kWord = 8;
  const Buffer kept{.role = Buffer::Role::kept, .bytes = kBehindCount + kWord * plan.words(op)};
  of.point(p.done, kept), of.point(p.words, kept, kBehindCount);
  of.stamp(p.stamps, layers, names_of_points());
  p.layers = layers;
  p.norm_eps = static_cast<float>(to[first.norm].number("eps"));
  p.norm_offset = static_cast<float>(to[first.norm].number("weight_offset"));
  if (op.head_norms) {
    p.head_norm_eps = static_cast<float>(to[first.q_norm].number("eps"));
    p.head_norm_offset = static_cast<float>(to[first.q_norm].number("weight_offset"));
  }
  p.scale = static_cast<float>(to[first.attend].number("scale"));
  of.launch({plan.blocks, 1, 1}, plan.threads(), plan.shared_bytes(op));
  out.launches.back().at_once = true;
  return out;
}

}  // namespace ac
