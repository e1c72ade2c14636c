// Append and attend for one token, with RoPE and norms of query and key heads before it if the
// region has them.
#include <fmt/format.h>

#include "plan/body.h"

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

  Match run() {
    for (const NodeId id : body_.compute())
      if (body_[id].op == Op::append_attend) attend_ = id;
    if (attend_ < 0) return "it has no attention";
    const Node& node = body_[attend_];
    const auto& cache = body_.step().caches[static_cast<std::size_t>(node.integer("cache"))];
    const auto type = kernel_type(body_.region().dtype);
    if (!type || cache.dtype != body_.region().dtype) return "no kernels for its types";
    const Shape& q = body_.graph().type(node.inputs[0]).shape;
    if (q.size() != 3 || q[0] != Dim(1)) return "more than one token";
    if (cache.key_size != cache.value_size) return "keys and values differ in size";
    if (body_.region().outputs.size() != 1 || !body_.is_output(attend_))
      return "what goes into attention is needed outside";
    if (!find_paths(node)) return why_;

    AttentionTask task;
    task.op = {.type = *type,
               .head_dim = static_cast<int>(cache.key_size),
               .group = static_cast<int>(q[1].constant() / cache.heads),
               .qk_norm = q_.norm >= 0,
               .rotary = 0,
               .window = cache.window > 0,
               .softcap = node.number("softcap") > 0};
    if (q_.rope >= 0) {
      const Node& rope = body_[q_.rope];
      task.op.rotary = 2 * body_.size(product(body_.graph().type(rope.inputs[2]).shape));
      task.op.interleaved = rope.flag("interleaved");
    }
    task.kv_heads = static_cast<int>(cache.heads);
    const std::int64_t seen =
        cache.window > 0 ? std::min(body_.at().P, cache.window - 1) : body_.at().P;
    task.tokens = static_cast<int>(std::max<std::int64_t>(seen, 0));
    return Task(task);
  }

 private:
  bool refuse(std::string why) {
    why_ = std::move(why);
    return false;
  }

  bool find_paths(const Node& node) {
    if (!trace(node.inputs[0], q_) || !trace(node.inputs[1], k_)) return false;
    Path v;
    if (!trace(node.inputs[2], v)) return false;
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
    return body_.is_contiguous(value, Role::activation) ||
           refuse("query, key or value is no contiguous activation");
  }

  const Body& body_;
  NodeId attend_ = -1;
  Path q_, k_;
  std::string why_;
};

}  // namespace

Match match_attention(const Body& body) { return AttentionMatcher(body).run(); }

}  // namespace ac
