// Products of q, k and v with the attention of many tokens that reads them: each as the family
// takes it that computes it alone.
#include <algorithm>

#include "ir/layout.h"
#include "plan/body.h"

namespace ac {
namespace {

// The products of a region, or the rest, as a region of its own.
class Half {
 public:
  Half(const Body& body, bool products) {
    std::vector<NodeId> nodes;
    for (const NodeId id : body.compute())
      if ((body[id].op == Op::linear) == products) nodes.push_back(id);
    if (nodes.empty()) return;
    auto made = make_region(body.step(), nodes);
    if (auto* region = std::get_if<Region>(&made)) region_.emplace(std::move(*region));
    if (region_) body_.emplace(body.step(), *region_, body.at());
  }
  const Body* operator->() const { return &*body_; }
  const Body& operator*() const { return *body_; }
  explicit operator bool() const { return body_.has_value(); }

 private:
  std::optional<Region> region_;
  std::optional<Body> body_;
};

// Puts the products in the order of q, k and v, or finds all three in the rows of one. Says what is
// read otherwise, or null.
const char* order(const Body& body, TmaGemmTask& product, ProductOperands& operands,
                  const PrefillAttentionTask& attention, const AttentionOperands& read) {
  const ProductOperands unordered = operands;
  const kernels::GemmShape shape = product.shape;
  const int kv_rows = attention.kv_heads * attention.op.head_dim;
  const std::array<int, 3> rows = {kv_rows * attention.op.group, kv_rows, kv_rows};
  int before = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const NodeId value = std::array{read.q, read.k, read.v}[i];
    const auto found =
        std::ranges::find(unordered.y, storage_of(body.graph(), value)) - unordered.y.begin();
    const auto from = static_cast<std::size_t>(found);
    if (from >= static_cast<std::size_t>(product.op.matrices))
      return "attention reads no product of the region";
    if (product.op.matrices == 1) {
      if (layout_of(body.graph(), value).offset != Dim(before) ||
          head_pitch(body, value) != shape.rows[0])
        return "rows of q, k and v do not follow each other";
    } else {
      if (!body.is_flat(value) || shape.rows[from] != rows[i])
        return "a view behind a product moves elements";
      operands.weight[i] = unordered.weight[from], operands.bias[i] = unordered.bias[from];
      product.shape.rows[i] = rows[i];
    }
    before += rows[i];
  }
  if (product.op.matrices == 1 && shape.rows[0] != before) return "a product has further rows";
  operands.y = {-1, -1, -1};
  return nullptr;
}

}  // namespace

Match match_qkv_attention(const Body& body) {
  const Half products(body, true), rest(body, false);
  if (!products) return "it has no product with a weight";
  if (!rest) return "it has no attention";
  Match attention = match_prefill_attention(*rest);
  if (const auto* why = std::get_if<std::string>(&attention)) return *why;
  Match product = match_gemm(*products)[2];
  if (const auto* why = std::get_if<std::string>(&product)) return *why;
  if (body.region().outputs.size() != 1) return "what goes into attention is needed outside";

  auto& [of_product, product_operands] = std::get<Matched>(product);
  auto& [of_attention, attention_operands] = std::get<Matched>(attention);
  auto& gemm = std::get<TmaGemmTask>(of_product);
  QkvAttentionOperands operands{std::get<ProductOperands>(product_operands),
                                std::get<AttentionOperands>(attention_operands)};
  const auto& append = std::get<PrefillAttentionTask>(of_attention);
  if (const char* why = order(body, gemm, operands.product, append, operands.attention)) return why;
  QkvAttentionTask task;
  task.op = {gemm.op, append.append};
  task.shape = gemm.shape;
  task.attention = append;
  if (const char* why = task.op.why_illegal()) return why;
  return Matched{task, operands};
}

}  // namespace ac
