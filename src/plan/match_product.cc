// Products of weights with one token (gemv) or many (gemm, mma_gemm, tma_gemm): norm -> up to three
// linears -> pair, bias, scale, residual, softcap, in the order in which the kernels do them.
#include <fmt/format.h>

#include <algorithm>

#include "ir/layout.h"
#include "ir/weights.h"
#include "plan/body.h"

namespace ac {
namespace {

class ProductMatcher {
 public:
  ProductMatcher(const Body& body, bool one_token) : body_(body), one_token_(one_token) {}

  // Why there is no such product, or null.
  const std::string* run() {
    if (!find_linears() || !check_operands()) return &why_;
    NodeId result = linears_[0];
    if (linears_.size() == 2) result = find_pair();
    if (linears_.size() == 1 || pair != kernels::Pair::none) {
      if (!follow(result)) return &why_;
    } else {
      for (std::size_t i = 0; i < linears_.size(); ++i) operands.y[i] = linears_[i];
    }
    if (done_.size() == body_.compute().size()) return nullptr;
    why_ = unplaced();
    return &why_;
  }

  kernels::Type type = kernels::Type::f32;
  kernels::Pair pair = kernels::Pair::none;
  bool bias = false, residual = false;
  std::array<int, 3> rows = {};  // of each matrix
  int matrices = 0, k = 0, m = 0;
  Format format = Format::plain;
  ProductOperands operands;

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
    matrices = static_cast<int>(linears_.size());
    const auto known = kernel_type(body_.region().dtype);
    if (!known) return refuse("no kernels for its type");
    type = *known;
    return true;
  }

  bool check_operands() {
    const NodeId x = body_[linears_[0]].inputs[0], storage = storage_of(body_.graph(), x);
    std::int64_t total = 0;
    m = body_.rows(body_.graph().type(x).shape);
    for (std::size_t i = 0; i < linears_.size(); ++i) {
      const Node& node = body_[linears_[i]];
      if (node.inputs[0] != x) return refuse("the products read different values");
      const Shape& weight = body_.graph().type(node.inputs[1]).shape;
      if (one_token_ && product(node.type.shape) != weight[0]) return refuse("more than one token");
      if (!body_.is_contiguous(node.inputs[1], Role::weight))
        return refuse("a matrix is no whole weight");
      const Format stored = format_of(body_[node.inputs[1]]).format;
      if (!one_token_ && stored != Format::plain)
        return refuse(fmt::format("it reads no weights in {}", traits(stored).name));
      if (i > 0 && stored != format) return refuse("the matrices are in different formats");
      format = stored;
      const bool biased = node.inputs.size() > 2;
      if (biased && !body_.is_contiguous(node.inputs[2], Role::weight))
        return refuse("a bias is no whole weight");
      if (i > 0 && biased != bias) return refuse("only some have a bias");
      bias = biased;
      rows[i] = body_.size(weight[0]);
      k = body_.size(weight[1]);
      if (m < 0 || rows[i] < 0 || k < 0 || k > kMaxRow) return refuse("sizes beyond 32 bits");
      total += rows[i];
      operands.weight[i] = node.inputs[1];
      if (bias) operands.bias[i] = node.inputs[2];
    }
    if (total > 1 << 30) return refuse("sizes beyond 32 bits");
    operands.x = x;
    if (!one_token_) {
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
    if (body_.columns(node.type.shape) != k) return refuse("the norm is of parts of x");
    if (body_.is_output(norm)) return refuse("the normed x is needed outside");
    if (node.inputs.size() < 2 || !body_.is_contiguous(node.inputs[1], Role::weight))
      return refuse("the norm has no weight");
    if (!body_.is_contiguous(node.inputs[0], Role::activation))
      return refuse("x is no contiguous activation");
    operands.norm = norm;
    operands.x = node.inputs[0];
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
        pair = silu                ? kernels::Pair::swiglu
               : gate.flag("tanh") ? kernels::Pair::geglu_tanh
                                   : kernels::Pair::geglu_erf;
        if (gate.inputs[0] != linears_[0]) {
          std::swap(operands.weight[0], operands.weight[1]);
          std::swap(operands.bias[0], operands.bias[1]);
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
        operands.scale = *scale_of(node, value);
        open = Place::residual;
      } else if (open == Place::bias && !bias && adds_bias(node, value)) {
        bias = true;
        operands.bias[0] = other_operand(node, value);
        open = Place::scale;
      } else if (open <= Place::residual && adds_residual(node, value)) {
        residual = true;
        operands.residual = other_operand(node, value);
        open = Place::softcap;
      } else {
        return refuse(fmt::format("no place in the epilogue for {}", info(node.op).name));
      }
      done_.insert(user);
      value = user;
    }
    operands.y[0] = value;
    return true;
  }

  NodeId other_operand(const Node& node, NodeId value) const {
    return node.inputs[node.inputs[0] == value ? 1 : 0];
  }
  bool adds_bias(const Node& node, NodeId value) const {
    if (node.op != Op::add || pair != kernels::Pair::none) return false;
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
    operands.softcap = *cap;
    return true;
  }

  std::string unplaced() const {
    for (const NodeId id : body_.compute())
      if (done_.count(id) == 0) return fmt::format("no place for {}", info(body_[id].op).name);
    return {};
  }

  const Body& body_;
  const bool one_token_;
  std::vector<NodeId> linears_;
  std::set<NodeId> done_;
  NodeId softcap_end_ = -1;
  std::string why_;
};

}  // namespace

Match match_gemv(const Body& body, bool argmax) {
  ProductMatcher found(body, true);
  if (const std::string* why = found.run()) return *why;
  if (argmax && found.matrices > 1) return "argmax is over one matrix";
  const bool pair = found.pair != kernels::Pair::none;
  const GemvTask task{{.weight = found.type,
                       .x = found.type,
                       .y = found.type,
                       .norm = found.operands.norm >= 0,
                       .pair = found.pair,
                       .bias = found.bias,
                       .residual = found.residual,
                       .argmax = argmax,
                       .matrices = found.matrices,
                       .format = found.format},
                      pair ? found.rows[0] : found.rows[0] + found.rows[1] + found.rows[2],
                      found.k};
  return Matched{task, found.operands};
}

namespace {

Match match_library(const Body& body, const ProductMatcher& found, const kernels::GemmOp& op,
                    const kernels::GemmShape& shape) {
  const ProductOperands& o = found.operands;
  if (shape.m < 2 && !body.graph().type(o.x).shape.front().uses(Symbol::T))
    return "one row is for a gemv";
  if (found.pair != kernels::Pair::none) return "the library has no pair of products";
  if (o.softcap != 0) return "the library has no softcap";
  if (found.bias && o.scale != 1) return "the library does not scale a bias";
  return Matched{LibraryTask{op, shape}, o};
}

}  // namespace

std::array<Match, 4> match_gemm(const Body& body) {
  ProductMatcher found(body, false);
  if (const std::string* why = found.run()) return {*why, *why, *why, *why};
  const kernels::GemmOp op{.weight = found.type,
                           .x = found.type,
                           .y = found.type,
                           .pair = found.pair,
                           .bias = found.bias,
                           .residual = found.residual,
                           .matrices = found.matrices};
  const kernels::GemmShape shape{found.m, {found.rows[0], found.rows[1], found.rows[2]}, found.k};
  Match mma = Matched{MmaGemmTask{op, shape}, found.operands};
  Match tma = Matched{TmaGemmTask{op, shape}, found.operands};
  if (found.type == kernels::Type::f32)
    mma = tma = "tensor cores need a 16-bit type";
  else if (const std::int64_t pitch = *body.row_pitch(found.operands.x); pitch % 8 != 0)
    mma = tma = "tensor cores need rows of x at multiples of 16 bytes";
  else if (pitch < found.k || !layout_of(body.graph(), found.operands.x).offset.divided_by(8))
    tma = "the copy engine needs rows of x that lie apart, at multiples of 16 bytes";
  return {Matched{GemmTask{op, shape}, found.operands}, std::move(mma), std::move(tma),
          match_library(body, found, op, shape)};
}

}  // namespace ac
