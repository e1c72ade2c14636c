#include "plan/fusion.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analyze/layers.h"
#include "analyze/legality.h"

namespace ac {
namespace {

using Nodes = std::vector<NodeId>;

bool is_norm(Op op) { return op == Op::rms_norm || op == Op::layer_norm; }

class Proposer {
 public:
  explicit Proposer(const UseDef& uses) : uses_(uses), graph_(uses.graph()) {}

  std::vector<Neighbourhood> run() {
    for (const NodeId id : uses_.order()) {
      const Op op = graph_[id].op;
      if (op == Op::linear) add_products(id);
      if (op == Op::append_attend) add_attention(id);
      if (is_norm(op)) add_residual_norm(id);
    }
    add_layers();
    return std::move(found_);
  }

 private:
  struct Kernel {
    Nodes nodes;  // empty: sampling
    bool argmax = false;
  };
  using Kernels = std::vector<Kernel>;

  static Kernels singles(const Nodes& nodes) {
    Kernels kernels;
    for (const NodeId id : nodes) kernels.push_back({{id}});
    return kernels;
  }
  static Nodes join(std::initializer_list<Nodes> lists) {
    Nodes all;
    for (const Nodes& list : lists) all.insert(all.end(), list.begin(), list.end());
    return all;
  }

  std::string text_of(const Kernels& kernels) const {
    std::string text;
    for (const Kernel& kernel : kernels) {
      if (!text.empty()) text += " | ";
      std::string ops;
      for (const NodeId id : kernel.nodes)
        ops += (ops.empty() ? "" : "+") + std::string(info(graph_[id].op).name);
      if (kernel.argmax) ops += ops.empty() ? "argmax" : "+argmax";
      text += ops;
    }
    return text;
  }

  void offer(Neighbourhood& around, Fusion fusion, Kernels kernels) const {
    std::erase_if(kernels, [](const Kernel& k) { return k.nodes.empty() && !k.argmax; });
    FusionOption option;
    const bool single = std::all_of(kernels.begin(), kernels.end(),
                                    [](const Kernel& k) { return k.nodes.size() + k.argmax <= 1; });
    option.fusion = single ? Fusion::none : fusion;
    option.text = text_of(kernels);
    for (const FusionOption& other : around.options)
      if (other.text == option.text) return;
    for (const Kernel& kernel : kernels) {
      Part part;
      if (!kernel.nodes.empty()) {
        auto made = make_region(uses_, kernel.nodes);
        if (const auto* boundary = std::get_if<Boundary>(&made)) {
          option.refused = *boundary;
          option.parts.clear();
          break;
        }
        part.wanted = Wanted{std::get<Region>(std::move(made)), kernel.argmax};
      }
      option.parts.push_back(std::move(part));
    }
    around.options.push_back(std::move(option));
  }

  // The only reader of a value that nobody else needs.
  std::optional<NodeId> sole_user(NodeId id) const {
    if (uses_.users(id).size() != 1 || uses_.is_output(id) || uses_.is_aliased(id))
      return std::nullopt;
    return uses_.users(id)[0];
  }

  // Products that read the same value, once for all of them.
  void add_products(NodeId id) {
    const NodeId x = graph_[id].inputs[0], source = storage_of(graph_, x);
    Nodes linears;
    for (const NodeId user : uses_.users(source))
      if (graph_[user].op == Op::linear && graph_[user].inputs[0] == x) linears.push_back(user);
    // Users of a leaf such as a constant come in order as well; the first one speaks for all.
    const NodeId first = *std::min_element(linears.begin(), linears.end(), [&](NodeId a, NodeId b) {
      return uses_.position(a) < uses_.position(b);
    });
    if (id != first) return;
    Nodes norm;
    if (is_norm(graph_[source].op)) norm.push_back(source);
    Nodes epilogue = linears.size() == 2   ? pair_of(linears[0], linears[1])
                     : linears.size() == 1 ? chain_behind(linears[0])
                                           : Nodes{};
    const NodeId last = epilogue.empty() ? linears[0] : epilogue.back();
    const bool head = linears.size() == 1 && makes_logits(last);

    Neighbourhood around;
    around.kind = head ? Neighbourhood::Kind::head : Neighbourhood::Kind::products;
    around.nodes = join({norm, linears, epilogue});
    const Kernel sampling{{}, head}, behind{epilogue};
    if (around.nodes.size() == 1 && !head) return;
    offer(around, Fusion::full, {{around.nodes, head}});
    if (head) offer(around, Fusion::partial, {{around.nodes}, sampling});
    offer(around, Fusion::partial, {{norm}, {join({linears, epilogue}), head}});
    if (head) offer(around, Fusion::partial, {{norm}, {join({linears, epilogue})}, sampling});
    offer(around, Fusion::partial, {{join({norm, linears})}, behind, sampling});
    offer(around, Fusion::partial, {{norm}, {linears}, behind, sampling});
    Kernels apart = singles(around.nodes);
    apart.push_back(sampling);
    offer(around, Fusion::none, std::move(apart));
    found_.push_back(std::move(around));
  }

  bool makes_logits(NodeId id) const {
    return uses_.is_output(id) && !graph_.type(id).shape.empty() &&
           product(graph_.type(id).shape) == graph_.type(id).shape.back();
  }

  // The activation and the product of gate and up, whichever is which.
  Nodes pair_of(NodeId a, NodeId b) const {
    for (const auto& [gate, up] : {std::pair{a, b}, std::pair{b, a}}) {
      const auto act = sole_user(gate), product = sole_user(up);
      if (!act || !product || graph_[*product].op != Op::mul) continue;
      if (graph_[*act].op != Op::silu && graph_[*act].op != Op::gelu) continue;
      if (sole_user(*act) == product) return {*act, *product};
    }
    return {};
  }

  // Element-wise ops that follow one another, each with nothing but the one before and what is no
  // younger than the product.
  Nodes chain_behind(NodeId id) const {
    Nodes chain;
    for (auto next = sole_user(id); next; next = sole_user(chain.back())) {
      if (!is_pointwise(graph_[*next].op) || graph_.type(*next) != graph_.type(id)) break;
      chain.push_back(*next);
    }
    return chain;
  }

  void add_attention(NodeId attend) {
    Nodes norms, ropes;
    for (std::size_t i = 0; i < 2; ++i) {
      NodeId source = storage_of(graph_, graph_[attend].inputs[i]);
      if (graph_[source].op == Op::rope) {
        ropes.push_back(source);
        source = storage_of(graph_, graph_[source].inputs[0]);
      }
      if (graph_[source].op == Op::rms_norm) norms.push_back(source);
    }
    Neighbourhood around;
    around.kind = Neighbourhood::Kind::attention;
    around.nodes = join({norms, ropes, {attend}});
    if (around.nodes.size() == 1) return add_projections(attend, around.nodes);
    offer(around, Fusion::full, {{around.nodes}});
    if (!norms.empty()) {
      Kernels apart = singles(norms);
      apart.push_back({join({ropes, {attend}})});
      offer(around, Fusion::partial, std::move(apart));
    }
    if (norms.size() == ropes.size()) {
      Kernels apart;
      for (std::size_t i = 0; i < ropes.size(); ++i) apart.push_back({{norms[i], ropes[i]}});
      apart.push_back({{attend}});
      offer(around, Fusion::partial, std::move(apart));
    }
    offer(around, Fusion::none, singles(around.nodes));
    found_.push_back(around);
    add_projections(attend, around.nodes);
  }

  // The products of q, k and v, if these come from nothing else.
  void add_projections(NodeId attend, const Nodes& attention) {
    if (graph_.type(attend).shape[0] == Dim(1)) return;
    Nodes linears;
    for (std::size_t i = 0; i < 3; ++i) {
      NodeId source = storage_of(graph_, graph_[attend].inputs[i]);
      while (std::ranges::find(attention, source) != attention.end())
        source = storage_of(graph_, graph_[source].inputs[0]);
      if (graph_[source].op != Op::linear) return;
      if (std::ranges::find(linears, source) == linears.end()) linears.push_back(source);
    }
    Neighbourhood around;
    around.kind = Neighbourhood::Kind::projections;
    around.nodes = join({linears, attention});
    offer(around, Fusion::partial, {{linears}, {attention}});
    offer(around, Fusion::full, {{around.nodes}});
    found_.push_back(std::move(around));
  }

  void add_residual_norm(NodeId norm) {
    const NodeId sum = graph_[norm].inputs[0];
    if (graph_[sum].op != Op::add) return;
    Neighbourhood around;
    around.kind = Neighbourhood::Kind::residual_norm;
    around.nodes = {sum, norm};
    offer(around, Fusion::full, {{around.nodes}});
    offer(around, Fusion::none, singles(around.nodes));
    found_.push_back(std::move(around));
  }

  // Offers the layers of a step of one token in as few kernels as can hold them. Each kernel has
  // about as many layers as the others.
  void add_layers() {
    const std::vector<Layer> layers = layers_of(uses_);
    if (layers.empty() || graph_.type(layers[0].back()).shape[0] != Dim(1)) return;
    const std::size_t count = layers.size();
    const std::size_t kernels = (count + kMostLayers - 1) / kMostLayers;
    Neighbourhood around;
    around.kind = Neighbourhood::Kind::layers;
    for (const Layer& layer : layers)
      around.nodes.insert(around.nodes.end(), layer.begin(), layer.end());
    around.options.emplace_back().text = "apart";
    FusionOption together;
    together.fusion = Fusion::full;
    for (std::size_t i = 0; i < kernels; ++i) {
      const std::size_t first = i * count / kernels, end = (i + 1) * count / kernels;
      auto made = region_of_layers(uses_, std::span(layers).subspan(first, end - first));
      together.text += fmt::format("{}{} layers", i > 0 ? " | " : "", end - first);
      if (const auto* boundary = std::get_if<Boundary>(&made)) {
        together.refused = *boundary;
        together.parts.clear();
        break;
      }
      together.parts.push_back({Wanted{std::get<Region>(std::move(made))}});
    }
    around.options.push_back(std::move(together));
    found_.push_back(std::move(around));
  }

  static constexpr std::size_t kMostLayers = kernels::most_layers;

  const UseDef& uses_;
  const Graph& graph_;
  std::vector<Neighbourhood> found_;
};

}  // namespace

std::vector<Neighbourhood> propose_fusions(const UseDef& uses) { return Proposer(uses).run(); }

std::string_view to_string(Fusion fusion) {
  constexpr std::string_view names[] = {"full", "partial", "none"};
  return names[static_cast<int>(fusion)];
}

std::string_view to_string(Neighbourhood::Kind kind) {
  constexpr std::string_view names[] = {"products",    "head",          "attention",
                                        "projections", "residual_norm", "layers"};
  return names[static_cast<int>(kind)];
}

}  // namespace ac
