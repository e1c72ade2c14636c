#include "families/attending.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/layout.h"

namespace ac {
namespace {

// What a query or key goes through, backwards from attention.
struct Path {
  NodeId rope = -1, norm = -1, source = -1;
};

bool same(const Node& a, const Node& b, std::string_view attr) {
  return a.number(attr) == b.number(attr);
}

class AttentionMatcher {
 public:
  explicit AttentionMatcher(const Body& body) : body_(body) {}

  // Why this is no attention that kernels know, or null.
  const std::string* run() { return find() ? nullptr : &why_; }

  FoundAttention found;

 private:
  bool find() {
    for (const NodeId id : body_.compute())
      if (body_[id].op == Op::append_attend) attend_ = id;
    if (attend_ < 0) return refuse("it has no attention");
    const Node& node = body_[attend_];
    const StateSpec& state = body_.step().states[static_cast<std::size_t>(node.integer("state"))];
    const KvSizes sizes = kv_sizes(state);
    const auto known = kernel_type(body_.region().dtype);
    if (!known || state.dtype != body_.region().dtype) return refuse("no kernels for its types");
    const Shape& q = body_.graph().type(node.inputs[0]).shape;
    if (q.size() != 3) return refuse("queries are not [tokens, heads, size]");
    if (sizes.key_size != sizes.value_size) return refuse("keys and values differ in size");
    if (body_.region().outputs.size() != 1 || !body_.is_output(attend_))
      return refuse("what goes into attention is needed outside");
    if (!find_paths(node)) return false;
    found.type = *known;
    found.head_dim = static_cast<int>(sizes.key_size);
    found.group = static_cast<int>(q[1].constant() / sizes.heads);
    found.kv_heads = static_cast<int>(sizes.heads);
    found.new_tokens = body_.size(q[0]);
    found.window = static_cast<int>(state.window);
    found.fp8 = has_codes(state);
    found.softcap = node.number("softcap") > 0;
    if (q_.rope >= 0) {
      const Node& rope = body_[q_.rope];
      found.rotary = 2 * body_.size(product(body_.graph().type(rope.inputs[2]).shape));
      found.interleaved = rope.flag("interleaved");
    }
    const std::int64_t cached =
        state.window > 0 ? std::min(body_.at().P, state.window - 1) : body_.at().P;
    found.seen = static_cast<int>(std::max<std::int64_t>(cached, 0));
    found.operands = {q_.source, k_.source, v_, q_.norm, k_.norm, q_.rope, attend_};
    return true;
  }

  bool refuse(std::string why) {
    why_ = std::move(why);
    return false;
  }

  bool find_paths(const Node& node) {
    if (!trace(node.inputs[0], q_) || !trace(node.inputs[1], k_)) return false;
    Path v;
    if (!trace(node.inputs[2], v)) return false;
    v_ = v.source;
    if (v.rope >= 0 || v.norm >= 0) return refuse("values are not taken as they are");
    if ((q_.rope < 0) != (k_.rope < 0)) return refuse("only one of query and key is turned");
    if ((q_.norm < 0) != (k_.norm < 0)) return refuse("only one of query and key is normed");
    const std::size_t placed = 1 + 2 * (q_.rope >= 0) + 2 * (q_.norm >= 0);
    if (placed != body_.compute().size()) return refuse("it does more than attention");
    if (q_.norm >= 0) {
      const Node &a = body_[q_.norm], &b = body_[k_.norm];
      if (!same(a, b, "eps") || !same(a, b, "weight_offset"))
        return refuse("the norms of query and key differ");
    }
    if (q_.rope >= 0) {
      const Node &a = body_[q_.rope], &b = body_[k_.rope];
      if (a.inputs[2] != b.inputs[2] || a.inputs[1] != b.inputs[1] || !same(a, b, "scale") ||
          a.flag("interleaved") != b.flag("interleaved"))
        return refuse("query and key are turned differently");
      if (body_[a.inputs[1]].op != Op::positions) return refuse("RoPE of other positions");
      const Node& frequencies = body_[a.inputs[2]];
      if (frequencies.op != Op::constant || frequencies.type.dtype != DType::f32)
        return refuse("RoPE's frequencies are no float32 constant");
    }
    return true;
  }

  // attention <- rope <- norm <- outside; each may be missing.
  bool trace(NodeId value, Path& path) {
    NodeId storage = storage_of(body_.graph(), value);
    if (body_.inside(storage) && body_[storage].op == Op::rope) {
      if (!body_.is_flat(value)) return refuse("a view behind RoPE moves elements");
      path.rope = storage;
      value = body_[storage].inputs[0];
      storage = storage_of(body_.graph(), value);
    }
    if (body_.inside(storage) && body_[storage].op == Op::rms_norm) {
      const Node& norm = body_[storage];
      if (!body_.is_flat(value)) return refuse("a view behind a norm moves elements");
      if (norm.type.shape.back() != body_.graph().type(body_[attend_].inputs[0]).shape[2])
        return refuse("a norm of more than one head");
      if (norm.inputs.size() < 2 || !body_.is_contiguous(norm.inputs[1], Role::weight))
        return refuse("a norm without weight");
      path.norm = storage;
      value = norm.inputs[0];
      storage = storage_of(body_.graph(), value);
    }
    if (body_.inside(storage))
      return refuse(fmt::format("no place for {}", info(body_[storage].op).name));
    path.source = value;
    const Parameter* input = body_.input(value);
    if (!input || input->role != Role::activation) return refuse("no activation to attend to");
    if (!body_.head_pitch(value)) return refuse("heads do not lie one after the other");
    found.dense = found.dense && body_.is_contiguous(value, Role::activation);
    return true;
  }

  const Body& body_;
  NodeId attend_ = -1, v_ = -1;
  Path q_, k_;
  std::string why_;
};

}  // namespace

std::variant<FoundAttention, std::string> find_attention(const Body& body) {
  AttentionMatcher matcher(body);
  if (const std::string* why = matcher.run()) return *why;
  return matcher.found;
}

}  // namespace ac
