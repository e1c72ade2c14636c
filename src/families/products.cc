#include "families/products.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/weight_format.h"
#include "ir/layout.h"
#include "ir/weights.h"

namespace ac {
namespace {

class ProductMatcher {
 public:
  ProductMatcher(const Body& body, bool few_tokens) : body_(body), few_tokens_(few_tokens) {}

  // Why there is no such product, or null.
  const std::string* run() {
    if (!find_linears() || !check_operands()) return &why_;
    NodeId result = linears_[0];
    if (linears_.size() == 2) result = find_pair();
    if (linears_.size() == 1 || found.op.pair != kernels::Pair::none) {
      if (!follow(result)) return &why_;
    } else {
      for (std::size_t i = 0; i < linears_.size(); ++i) found.operands.y[i] = linears_[i];
    }
    if (done_.size() == body_.compute().size()) return nullptr;
    why_ = unplaced();
    return &why_;
  }

  FoundProduct found;

 private:
  bool refuse(std::string why) {
    why_ = std::move(why);
    return false;
  }

  bool find_linears() {
    for (const NodeId id : body_.compute())
      if (body_[id].op == Op::linear) linears_.push_back(id), done_.insert(id);
    if (linears_.empty()) return refuse("it has no product with a weight");
    if (linears_.size() > 3) return refuse("more than three matrices");
    found.op.matrices = static_cast<int>(linears_.size());
    const auto known = kernel_type(body_.region().dtype);
    if (!known) return refuse("no kernels for its type");
    found.op.weight = found.op.x = found.op.y = *known;
    return true;
  }

  bool check_operands() {
    const NodeId x = body_[linears_[0]].inputs[0], storage = storage_of(body_.graph(), x);
    std::int64_t total = 0;
    found.shape.m = body_.rows(body_.graph().type(x).shape);
    for (std::size_t i = 0; i < linears_.size(); ++i) {
      const Node& node = body_[linears_[i]];
      if (node.inputs[0] != x) return refuse("the products read different values");
      const Shape& weight = body_.graph().type(node.inputs[1]).shape;
      if (!body_.is_contiguous(node.inputs[1], Role::weight))
        return refuse("a matrix is no whole weight");
      const Format stored = format_of(body_[node.inputs[1]]).format;
      if (i > 0 && stored != found.op.format)
        return refuse("the matrices are in different formats");
      found.op.format = stored;
      const bool biased = node.inputs.size() > 2;
      if (biased && !body_.is_contiguous(node.inputs[2], Role::weight))
        return refuse("a bias is no whole weight");
      if (i > 0 && biased != found.op.bias) return refuse("only some have a bias");
      found.op.bias = biased;
      found.shape.rows[i] = body_.size(weight[0]);
      found.shape.k = body_.size(weight[1]);
      const auto& [m, rows, k] = found.shape;
      if (m < 0 || rows[i] < 0 || k < 0 || k > kMaxRow) return refuse("sizes beyond 32 bits");
      total += found.shape.rows[i];
      found.operands.weight[i] = node.inputs[1];
      if (found.op.bias) found.operands.bias[i] = node.inputs[2];
    }
    if (total > 1 << 30) return refuse("sizes beyond 32 bits");
    found.operands.x = x;
    if (!few_tokens_) {
      if (body_.inside(storage))
        return refuse(fmt::format("no prologue for {}", info(body_[storage].op).name));
      return body_.input(x)
                 ? body_.row_pitch(x).has_value() || refuse("rows of x are not at equal distances")
                 : refuse("x is no activation");
    }
    if (!body_.inside(storage))
      return body_.is_contiguous(x, Role::activation) || refuse("x is no contiguous activation");
    return check_norm(x, storage);
  }

  bool check_norm(NodeId x, NodeId norm) {
    const Node& node = body_[norm];
    if (node.op != Op::rms_norm)
      return refuse(fmt::format("no prologue for {}", info(node.op).name));
    if (!body_.is_flat(x)) return refuse("a view between norm and product moves elements");
    if (body_.columns(node.type.shape) != found.shape.k) return refuse("the norm is of parts of x");
    if (body_.is_output(norm)) return refuse("the normed x is needed outside");
    if (node.inputs.size() < 2 || !body_.is_contiguous(node.inputs[1], Role::weight))
      return refuse("the norm has no weight");
    if (!body_.is_contiguous(node.inputs[0], Role::activation))
      return refuse("x is no contiguous activation");
    found.operands.norm = norm;
    found.operands.x = node.inputs[0];
    done_.insert(norm);
    return true;
  }

  // act(gate) * up; where it is not, the products stay side by side.
  NodeId find_pair() {
    for (const NodeId id : body_.compute()) {
      const Node& node = body_[id];
      if (node.op != Op::mul) continue;
      for (std::size_t side = 0; side < 2; ++side) {
        const NodeId act = node.inputs[side], up = node.inputs[1 - side];
        if (!body_.inside(act) || !is_linear(up)) continue;
        const Node& gate = body_[act];
        const bool silu = gate.op == Op::silu, gelu = gate.op == Op::gelu;
        if ((!silu && !gelu) || !is_linear(gate.inputs[0]) || gate.inputs[0] == up) continue;
        if (body_.graph().type(gate.inputs[0]) != body_.graph().type(up)) continue;
        const bool leaves = body_.is_output(act) || body_.is_output(up) ||
                            body_.is_output(gate.inputs[0]) || body_.users(up).size() > 1 ||
                            body_.users(gate.inputs[0]).size() > 1 || body_.users(act).size() > 1;
        if (leaves) continue;
        found.op.pair = silu                ? kernels::Pair::swiglu
                        : gate.flag("tanh") ? kernels::Pair::geglu_tanh
                                            : kernels::Pair::geglu_erf;
        if (gate.inputs[0] != linears_[0]) {
          std::swap(found.operands.weight[0], found.operands.weight[1]);
          std::swap(found.operands.bias[0], found.operands.bias[1]);
        }
        done_.insert({id, act});
        return id;
      }
    }
    return linears_[0];
  }
  bool is_linear(NodeId id) const {
    return std::find(linears_.begin(), linears_.end(), id) != linears_.end();
  }

  // The chain behind the product. `open`: the first place of the epilogue that is still free.
  bool follow(NodeId value) {
    enum class Place { bias, scale, residual, softcap, none } open = Place::bias;
    const TensorType type = body_.graph().type(value);
    while (!body_.is_output(value)) {
      const std::vector<NodeId> users = body_.users(value);
      if (users.size() != 1) return refuse("a product is used by more than its epilogue");
      const NodeId user = users[0];
      const Node& node = body_[user];
      if (node.type != type) return refuse("the product is broadcast");
      if (open <= Place::softcap && is_softcap(value)) {
        open = Place::none;
        value = softcap_end_;
        continue;
      }
      if (open <= Place::scale && is_scale(node, value)) {
        found.operands.scale = *scale_of(node, value);
        open = Place::residual;
      } else if (open == Place::bias && !found.op.bias && adds_bias(node, value)) {
        found.op.bias = true;
        found.operands.bias[0] = other_operand(node, value);
        open = Place::scale;
      } else if (open <= Place::residual && adds_residual(node, value)) {
        found.op.residual = true;
        found.operands.residual = other_operand(node, value);
        open = Place::softcap;
      } else {
        return refuse(fmt::format("no place in the epilogue for {}", info(node.op).name));
      }
      done_.insert(user);
      value = user;
    }
    found.operands.y[0] = value;
    return true;
  }

  NodeId other_operand(const Node& node, NodeId value) const {
    return node.inputs[node.inputs[0] == value ? 1 : 0];
  }
  bool adds_bias(const Node& node, NodeId value) const {
    if (node.op != Op::add || found.op.pair != kernels::Pair::none) return false;
    const NodeId other = other_operand(node, value);
    const Shape& shape = body_.graph().type(other).shape;
    return shape.size() == 1 && shape.back() == node.type.shape.back() &&
           body_.is_contiguous(other, Role::weight);
  }
  bool adds_residual(const Node& node, NodeId value) const {
    if (node.op != Op::add) return false;
    const NodeId other = other_operand(node, value);
    return body_.graph().type(other) == node.type && body_.is_contiguous(other, Role::activation);
  }
  bool is_scale(const Node& node, NodeId value) const { return scale_of(node, value).has_value(); }
  std::optional<double> scale_of(const Node& node, NodeId value) const {
    if (node.op == Op::mul) return body_.immediate(other_operand(node, value));
    if (node.op != Op::div || node.inputs[0] != value) return std::nullopt;
    const auto divisor = body_.immediate(node.inputs[1]);
    return divisor ? std::optional(1 / *divisor) : std::nullopt;
  }

  // c * tanh(value / c)
  bool is_softcap(NodeId value) {
    const auto next = [&](NodeId id) {
      const std::vector<NodeId> users = body_.users(id);
      return users.size() == 1 && !body_.is_output(id) ? users[0] : NodeId{-1};
    };
    const NodeId div = next(value);
    if (div < 0 || body_[div].op != Op::div || body_[div].inputs[0] != value) return false;
    const NodeId tanh = next(div);
    if (tanh < 0 || body_[tanh].op != Op::tanh) return false;
    const NodeId mul = next(tanh);
    if (mul < 0 || body_[mul].op != Op::mul) return false;
    const auto cap = body_.immediate(body_[div].inputs[1]);
    const auto back = body_.immediate(other_operand(body_[mul], tanh));
    if (!cap || !back || *cap != *back || !(*cap > 0)) return false;
    done_.insert({div, tanh, mul});
    softcap_end_ = mul;
    found.operands.softcap = *cap;
    return true;
  }

  std::string unplaced() const {
    for (const NodeId id : body_.compute())
      if (done_.count(id) == 0) return fmt::format("no place for {}", info(body_[id].op).name);
    return {};
  }

  const Body& body_;
  const bool few_tokens_;
  std::vector<NodeId> linears_;
  std::set<NodeId> done_;
  NodeId softcap_end_ = -1;
  std::string why_;
};

}  // namespace

std::variant<FoundProduct, std::string> find_product(const Body& body, bool few_tokens) {
  ProductMatcher matcher(body, few_tokens);
  if (const std::string* why = matcher.run()) return *why;
  return matcher.found;
}

std::string reads_no_weights_in(const Format& format) {
  return fmt::format("it reads no weights in {}", traits(format).name);
}

const char* why_not_by_tensor_cores(const Body& body, const FoundProduct& found) {
  if (found.op.x == kernels::Type::f32) return "tensor cores need a 16-bit type";
  if (*body.row_pitch(found.operands.x) % 8 != 0)
    return "tensor cores need rows of x at multiples of 16 bytes";
  return nullptr;
}

double busy_share(double tiles, double at_once) {
  return tiles / (std::ceil(tiles / at_once) * at_once);
}

double useful_share(const kernels::GemmOp& op, const kernels::GemmShape& shape, double tiles,
                    int tile_m, int tile_n) {
  return double(shape.m) * gemm_weight_rows(op, shape) / (tiles * tile_m * tile_n);
}

}  // namespace ac
