// Products of weights with one token: norm -> up to three linears -> pair, bias, scale, residual,
// softcap, in the order in which the kernel does them.
#include <fmt/format.h>

#include <algorithm>

#include "plan/body.h"

namespace ac {
namespace {

class GemvMatcher {
 public:
  explicit GemvMatcher(const Body& body) : body_(body) {}

  Match run(bool argmax) {
    if (!find_linears()) return why_;
    if (!check_operands()) return why_;
    NodeId result = linears_[0];
    if (linears_.size() == 2) result = find_pair();
    if (linears_.size() == 1 || task_.op.pair != kernels::Pair::none) {
      if (!follow(result)) return why_;
    }
    if (done_.size() != body_.compute().size()) return unplaced();
    if (argmax) {
      if (linears_.size() > 1) return "argmax is over one matrix";
      task_.op.argmax = true;
    }
    return Task(task_);
  }

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
    task_.op.matrices = static_cast<int>(linears_.size());
    const auto type = kernel_type(body_.region().dtype);
    if (!type) return refuse("no kernels for its type");
    task_.op.weight = task_.op.x = task_.op.y = *type;
    return true;
  }

  bool check_operands() {
    const NodeId x = body_[linears_[0]].inputs[0], storage = storage_of(body_.graph(), x);
    std::int64_t total = 0;
    for (const NodeId id : linears_) {
      const Node& node = body_[id];
      if (node.inputs[0] != x) return refuse("the products read different values");
      const Shape& weight = body_.graph().type(node.inputs[1]).shape;
      if (product(node.type.shape) != weight[0]) return refuse("more than one token");
      if (!body_.is_contiguous(node.inputs[1], Role::weight))
        return refuse("a matrix is no whole weight");
      const bool bias = node.inputs.size() > 2;
      if (bias && !body_.is_contiguous(node.inputs[2], Role::weight))
        return refuse("a bias is no whole weight");
      if (id != linears_[0] && bias != task_.op.bias) return refuse("only some have a bias");
      task_.op.bias = bias;
      const int rows = body_.size(weight[0]);
      task_.k = body_.size(weight[1]);
      if (rows < 0 || task_.k < 0 || task_.k > kMaxRow) return refuse("sizes beyond 32 bits");
      total += rows;
    }
    if (total > 1 << 30) return refuse("sizes beyond 32 bits");
    task_.n = static_cast<int>(total);
    if (!body_.inside(storage))
      return body_.is_contiguous(x, Role::activation) || refuse("x is no contiguous activation");
    return check_norm(x, storage);
  }

  bool check_norm(NodeId x, NodeId norm) {
    const Node& node = body_[norm];
    if (node.op != Op::rms_norm)
      return refuse(fmt::format("no prologue for {}", info(node.op).name));
    if (!body_.is_flat(x)) return refuse("a view between norm and product moves elements");
    if (body_.columns(node.type.shape) != task_.k) return refuse("the norm is of parts of x");
    if (body_.is_output(norm)) return refuse("the normed x is needed outside");
    if (node.inputs.size() < 2 || !body_.is_contiguous(node.inputs[1], Role::weight))
      return refuse("the norm has no weight");
    if (!body_.is_contiguous(node.inputs[0], Role::activation))
      return refuse("x is no contiguous activation");
    task_.op.norm = true;
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
        task_.op.pair = silu                ? kernels::Pair::swiglu
                        : gate.flag("tanh") ? kernels::Pair::geglu_tanh
                                            : kernels::Pair::geglu_erf;
        task_.n /= 2;
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
    enum { bias, scale, residual, softcap, none } open = bias;
    const TensorType type = body_.graph().type(value);
    while (!body_.is_output(value)) {
      const std::vector<NodeId> users = body_.users(value);
      if (users.size() != 1) return refuse("a product is used by more than its epilogue");
      const NodeId user = users[0];
      const Node& node = body_[user];
      if (node.type != type) return refuse("the product is broadcast");
      if (open <= softcap && is_softcap(value)) {
        open = none;
        value = softcap_end_;
        continue;
      }
      if (open <= scale && is_scale(node, value)) {
        open = residual;
      } else if (open == bias && !task_.op.bias && adds_bias(node, value)) {
        task_.op.bias = true;
        open = scale;
      } else if (open <= residual && adds_residual(node, value)) {
        task_.op.residual = true;
        open = softcap;
      } else {
        return refuse(fmt::format("no place in the epilogue for {}", info(node.op).name));
      }
      done_.insert(user);
      value = user;
    }
    return true;
  }

  NodeId other_operand(const Node& node, NodeId value) const {
    return node.inputs[node.inputs[0] == value ? 1 : 0];
  }
  bool adds_bias(const Node& node, NodeId value) const {
    if (node.op != Op::add || task_.op.pair != kernels::Pair::none) return false;
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
  bool is_scale(const Node& node, NodeId value) const {
    if (node.op == Op::div) return node.inputs[0] == value && body_.immediate(node.inputs[1]);
    if (node.op != Op::mul) return false;
    return body_.immediate(other_operand(node, value)).has_value();
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
    return true;
  }

  std::string unplaced() const {
    for (const NodeId id : body_.compute())
      if (done_.count(id) == 0) return fmt::format("no place for {}", info(body_[id].op).name);
    return {};
  }

  const Body& body_;
  GemvTask task_;
  std::vector<NodeId> linears_;
  std::set<NodeId> done_;
  NodeId softcap_end_ = -1;
  std::string why_;
};

}  // namespace

Match match_gemv(const Body& body, bool argmax) { return GemvMatcher(body).run(argmax); }

}  // namespace ac
