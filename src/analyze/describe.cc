#include "analyze/describe.h"

#include <algorithm>
#include <set>

#include "analyze/legality.h"
#include "base/error.h"
#include "ir/weights.h"

namespace ac {
namespace {

Role role_of(const Node& storage) {
  switch (storage.op) {
    case Op::weight:
      return Role::weight;
    case Op::constant:
      return Role::constant;
    case Op::positions:
      return Role::positions;
    default:
      return Role::activation;
  }
}

class Describer {
 public:
  Describer(const UseDef& uses, const std::vector<NodeId>& nodes)
      : uses_(uses), graph_(uses.graph()), members_(nodes.begin(), nodes.end()) {}

  Region run() {
    find_outputs();
    order_nodes();
    add_states();
    list_arguments();
    sum_work();
    region_.module = common_module();
    region_.dtype = region_.outputs[0].type.dtype;
    region_.accumulation = is_float(region_.dtype) ? DType::f32 : region_.dtype;
    classify(graph_, region_);
    region_.signature = signature_of(uses_.step(), region_);
    return std::move(region_);
  }

 private:
  bool is_member(NodeId id) const { return members_.count(id) > 0; }

  // Values that someone outside reads, or that nobody reads.
  void find_outputs() {
    std::vector<NodeId> found;
    for (const NodeId id : members_) {
      const std::vector<NodeId>& users = uses_.users(id);
      const bool leaves =
          std::any_of(users.begin(), users.end(), [&](NodeId user) { return !is_member(user); });
      if (leaves || users.empty() || uses_.is_output(id) || uses_.is_aliased(id))
        found.push_back(id);
    }
    std::sort(found.begin(), found.end(),
              [&](NodeId a, NodeId b) { return uses_.position(a) < uses_.position(b); });
    for (const NodeId id : found) {
      Parameter output = parameter(id, "out", region_.outputs.size());
      output.bytes = result_bytes(graph_, id);
      region_.outputs.push_back(std::move(output));
    }
  }

  Parameter parameter(NodeId value, const char* prefix, std::size_t index) const {
    Parameter result;
    result.name = fmt::format("{}{}", prefix, index);
    result.value = value;
    result.storage = storage_of(graph_, value);
    const Node& storage = graph_[result.storage];
    result.role = role_of(storage);
    if (result.role == Role::weight && !format_of(storage).is_plain())
      result.format = format_of(storage).name;
    result.views = views_of(graph_, value);
    result.type = graph_.type(value);
    result.layout = layout_of(graph_, value);
    return result;
  }

  // Depth first from the outputs, so that equal regions get equal orders. Views of values from
  // outside are part of the interface; views inside are nodes.
  void order_nodes() {
    struct Visit {
      NodeId id;
      std::size_t next = 0;
    };
    std::set<NodeId> opened;
    std::vector<Visit> stack;
    const auto open = [&](NodeId id) {
      if (!opened.insert(id).second) return;
      if (!is_member(storage_of(graph_, id))) return add_input(id);
      stack.push_back({id});
    };
    for (const Parameter& output : region_.outputs) {
      open(output.value);
      while (!stack.empty()) {
        Visit& top = stack.back();
        const Node& node = graph_[top.id];
        if (top.next < node.inputs.size()) {
          open(node.inputs[top.next++]);
          continue;
        }
        region_.nodes.push_back(top.id);
        if (is_compute(node)) region_.ops.push_back(node.op);
        stack.pop_back();
      }
    }
  }

  void add_input(NodeId value) {
    Parameter input = parameter(value, "in", region_.inputs.size());
    const Node& storage = graph_[input.storage];
    if (input.role == Role::constant && storage.data().size() == 1)
      input.immediate = storage.data()[0];
    else
      input.bytes = bytes_read(input);
    for (const NodeId view : input.views)
      if (outer_views_.insert(view).second) region_.nodes.push_back(view);
    region_.inputs.push_back(std::move(input));
  }

  Dim bytes_read(const Parameter& input) const {
    // Another way to look at the same elements moves nothing more.
    for (const Parameter& other : region_.inputs)
      if (other.storage == input.storage && other.layout.placement == Placement::contiguous &&
          input.layout.placement == Placement::contiguous &&
          other.layout.offset == input.layout.offset &&
          product(other.type.shape) == product(input.type.shape) && !(other.bytes == Dim(0)))
        return 0;
    Dim gathered;
    for (const NodeId user : uses_.users(input.storage)) {
      const Node& node = graph_[user];
      for (std::size_t i = 0; is_member(user) && i < node.inputs.size(); ++i) {
        if (node.inputs[i] != input.value) continue;
        const Dim bytes = operand_bytes(graph_, user, i);
        if (node.op != Op::embedding || i != 0) return bytes;  // all of it
        gathered = gathered + bytes;
      }
    }
    return gathered;
  }

  const StateSpec& spec_of(const Node& node) const {
    return uses_.step().states.at(static_cast<std::size_t>(node.integer("state")));
  }

  void add_states() {
    for (const NodeId id : region_.nodes) {
      const Node& node = graph_[id];
      if (info(node.op).memory != Memory::state) continue;
      Parameter state;
      state.name = fmt::format("cache{}", region_.states.size());
      state.role = Role::state;
      state.value = state.storage = id;
      state.state = node.integer("state");
      const StateSpec& spec = spec_of(node);
      const std::int64_t rows = spec.tensors.front().rows;
      state.type = {spec.dtype,
                    {Dim(Symbol::P) + node.type.shape[0], rows, elements_of_token(spec) / rows}};
      state.bytes = state_bytes_of(uses_.step(), id);
      region_.states.push_back(std::move(state));
    }
  }

  void list_arguments() {
    using Kind = Argument::Kind;
    bool positions = false;
    const auto look = [&](const std::vector<Parameter>& parameters) {
      for (const Parameter& parameter : parameters) {
        positions = positions || parameter.role == Role::positions;
        for (const Dim& dim : parameter.type.shape)
          region_.dynamic_rows = region_.dynamic_rows || dim.uses(Symbol::T);
        for (const Dim& stride : parameter.layout.strides)
          region_.dynamic_rows = region_.dynamic_rows || stride.uses(Symbol::T);
        if (parameter.layout.offset.uses(Symbol::T)) region_.dynamic_rows = true;
      }
    };
    look(region_.inputs);
    look(region_.outputs);
    region_.dynamic_context = !region_.states.empty();
    for (std::size_t i = 0; i < region_.inputs.size(); ++i) {
      const Parameter& input = region_.inputs[i];
      if (!input.immediate && input.role != Role::positions)
        region_.arguments.push_back({Kind::input, i});
    }
    for (std::size_t i = 0; i < region_.outputs.size(); ++i)
      region_.arguments.push_back({Kind::output, i});
    for (std::size_t i = 0; i < region_.states.size(); ++i)
      region_.arguments.push_back({Kind::state, i});
    if (region_.dynamic_rows) region_.arguments.push_back({Kind::new_tokens});
    if (positions || region_.dynamic_context) region_.arguments.push_back({Kind::cached_tokens});
  }

  void sum_work() {
    Work& work = region_.work;
    for (const NodeId id : region_.nodes) {
      work.flops = work.flops + flops_of(graph_, id);
      if (info(graph_[id].op).memory == Memory::state) work.window = spec_of(graph_[id]).window;
    }
    for (const Parameter& input : region_.inputs) {
      Dim& bytes = input.role == Role::weight ? work.weight_bytes : work.activation_bytes;
      bytes = bytes + input.bytes;
    }
    for (const Parameter& output : region_.outputs)
      work.activation_bytes = work.activation_bytes + output.bytes;
    for (const Parameter& state : region_.states) work.state_bytes = work.state_bytes + state.bytes;
  }

  std::string common_module() const {
    std::optional<std::string> common;
    for (const NodeId id : members_) {
      const std::string& module = graph_[id].module;
      if (!common) {
        common = module;
        continue;
      }
      while (!common->empty() && module != *common && module.rfind(*common + '.', 0) != 0) {
        const std::size_t dot = common->rfind('.');
        common->resize(dot == std::string::npos ? 0 : dot);
      }
    }
    return *common;
  }

  const UseDef& uses_;
  const Graph& graph_;
  std::set<NodeId> members_, outer_views_;
  Region region_;
};

}  // namespace

std::vector<std::string> op_names(const Region& region) {
  if (region.layers > 0) return {fmt::format("{} layers", region.layers)};
  std::vector<std::string> names;
  for (const Op op : region.ops) names.emplace_back(info(op).name);
  return names;
}

Region describe_region(const UseDef& uses, const std::vector<NodeId>& nodes) {
  return Describer(uses, nodes).run();
}

std::variant<Region, Boundary> make_region(const UseDef& uses, std::vector<NodeId> nodes,
                                           Behind states) {
  const Graph& graph = uses.graph();
  std::vector<NodeId> compute;
  std::set<NodeId> seen;
  for (const NodeId id : nodes) {
    if (id < 0 || static_cast<std::size_t>(id) >= graph.nodes.size())
      return Boundary{Reason::not_compute, id, id, fmt::format("%{} is no node of the step", id)};
    if (info(graph[id].op).memory == Memory::view) continue;
    if (!is_compute(graph[id]))
      return Boundary{Reason::not_compute, id, id, describe(graph, id) + " computes nothing"};
    if (seen.insert(id).second) compute.push_back(id);
  }
  if (compute.empty()) return Boundary{Reason::not_compute, -1, -1, "no compute node is named"};
  if (auto boundary = why_illegal(uses, compute, states)) return *boundary;
  return describe_region(uses, compute);
}

std::variant<Region, Boundary> make_region(const StepGraph& step, std::vector<NodeId> nodes,
                                           Behind states) {
  return make_region(UseDef(step), std::move(nodes), states);
}

}  // namespace ac
