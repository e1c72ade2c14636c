#include "capture/exported.h"

#include <limits>
#include <optional>
#include <unordered_map>

#include "base/error.h"
#include "base/files.h"
#include "capture/aten.h"
#include "capture/exported_file.h"
#include "capture/quantization.h"
#include "capture/stored_formats.h"
#include "ir/verify.h"

namespace ac {
namespace {

// What a name in the file stands for. Parameters and constants become nodes when first used, so
// that unused ones leave no trace.
struct Definition {
  enum class Kind : std::uint8_t { input, parameter, constant, node } kind;
  std::size_t index;
  bool is_ready = false;
  std::vector<NodeId> results;
};

std::string parent_module(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  return dot == path.npos ? "" : path.substr(0, dot);
}

class Reader {
 public:
  Reader(ExportedFile file, std::filesystem::path path)
      : file_(std::move(file)), path_(std::move(path)), build_(model_.graph) {
    context_.range = file_.range;
  }

  Model read() {
    model_.graph.name = file_.name;
    model_.graph.limit.lower(file_.range.max, file_.longest_because);
    model_.architecture = file_.architecture;
    model_.checked = file_.checked;
    model_.scores = file_.scores;
    declare_names();
    add_inputs();
    for (std::size_t i = 0; i < file_.nodes.size(); ++i) add_node(file_.nodes[i]);
    add_output();
    verify(model_.graph, path_.string());
    if (const auto store = model_.stores.find("checkpoint"); store != model_.stores.end())
      check_formats(store->second, quantization_.value_or(Quantization{}), model_.graph);
    return std::move(model_);
  }

 private:
  void declare_names() {
    const auto declare = [&](Definition::Kind kind, const auto& items) {
      for (std::size_t i = 0; i < items.size(); ++i)
        names_.emplace(items[i].name, Definition{kind, i, false, {}});
    };
    declare(Definition::Kind::input, file_.inputs);
    declare(Definition::Kind::parameter, file_.parameters);
    declare(Definition::Kind::constant, file_.constants);
    declare(Definition::Kind::node, file_.nodes);
  }

  void define(const std::string& name, std::vector<NodeId> results) {
    Definition& definition = names_.at(name);
    definition.results = std::move(results);
    definition.is_ready = true;
  }

  void add_inputs() {
    const NodeId ids = build_.input("ids", {DType::i64, {Symbol::S}});
    for (const auto& input : file_.inputs) {
      const NodeId values = input.is_positions ? context_.all_positions() : ids;
      define(input.name, {build_.reshape(build_.cast(values, input.type.dtype), input.type.shape)});
    }
  }

  void add_node(const ExportedFile::Node& node) {
    build_.set_origin(node.module,
                      node.source.empty() ? node.op : fmt::format("{}, {}", node.op, node.source));
    try {
      const AtenOp* op = find_aten_op(node.op);
      if (!op) bad_input("this op is not known");
      std::vector<NodeId> results =
          translate_aten(context_, *op, node.args, node.results,
                         [&](const Json& reference) { return resolve(reference); });
      check_results(node, results);
      define(node.name, std::move(results));
    } catch (const Error& error) {
      std::string place = node.module.empty() ? "" : " in module " + node.module;
      if (!node.source.empty()) place += ", " + node.source;
      throw Error(error.fault(), fmt::format("{}: node \"{}\" ({}{}): {}", path_.string(),
                                             node.name, node.op, place, error.what()));
    }
  }

  void check_results(const ExportedFile::Node& node, const std::vector<NodeId>& results) const {
    if (node.results.size() != results.size())
      bad_input("has {} results, but {} are declared", results.size(), node.results.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (results[i] == kNoResult) continue;
      const TensorType& actual = model_.graph.type(results[i]);
      if (actual != node.results[i])
        bad_input("is declared {}, but its arguments make it {}", to_string(node.results[i]),
                  to_string(actual));
    }
  }

  NodeId resolve(const Json& reference) {
    if (!reference["ref"].is_string()) bad_input("a reference {} to no name", reference.dump());
    const auto& name = reference["ref"].get_ref<const std::string&>();
    const auto found = names_.find(name);
    if (found == names_.end()) bad_input("refers to \"{}\", which nothing in the file is", name);
    Definition& definition = found->second;
    if (!definition.is_ready) make_stored(name, definition);
    std::size_t index = 0;
    const bool has_several =
        definition.kind == Definition::Kind::node && file_.nodes[definition.index].has_several;
    if (const auto given = reference.find("index"); given != reference.end()) {
      if (!given->is_number_integer() || *given < 0 || *given >= definition.results.size())
        bad_input("refers to result {} of \"{}\", which has {}", given->dump().substr(0, 100), name,
                  definition.results.size());
      index = given->get<std::size_t>();
    } else if (has_several) {
      bad_input("refers to \"{}\", which has several results, without an index", name);
    }
    if (definition.results[index] == kNoResult)
      bad_input("refers to result {} of \"{}\", which is not supported", index, name);
    return definition.results[index];
  }

  void make_stored(const std::string& name, const Definition& definition) {
    const std::string module = build_.module(), source = build_.source();
    if (definition.kind == Definition::Kind::parameter) {
      const auto& parameter = file_.parameters[definition.index];
      build_.set_module(parent_module(parameter.path));
      define(name,
             {parameter.is_linear ? linear(parameter) : stored(parameter.place, parameter.type)});
    } else if (definition.kind == Definition::Kind::constant) {
      const auto& constant = file_.constants[definition.index];
      build_.set_module(parent_module(constant.path));
      define(name, {make_constant(constant)});
    } else {
      bad_input("refers to \"{}\", which comes later: a cycle, or nodes out of order", name);
    }
    build_.set_origin(module, source);
  }

  NodeId make_constant(const ExportedFile::Constant& constant) {
    const DType dtype = constant.type.dtype;
    const Shape& shape = constant.type.shape;
    if (const auto* place = std::get_if<ExportedFile::Place>(&constant.content))
      return stored(*place, constant.type);
    if (const auto* fill = std::get_if<ExportedFile::Fill>(&constant.content))
      return build_.expand(build_.scalar(dtype, fill->value), shape);
    if (const auto* tril = std::get_if<ExportedFile::Tril>(&constant.content))
      return build_.add(Op::tril, {build_.expand(build_.scalar(dtype, 1), shape)},
                        {{"diagonal", tril->diagonal}});
    if (const auto* range = std::get_if<ExportedFile::Range>(&constant.content)) {
      std::vector<double> data(static_cast<std::size_t>(product(shape).constant()));
      for (std::size_t i = 0; i < data.size(); ++i)
        data[i] = static_cast<double>(range->start + range->step * static_cast<std::int64_t>(i));
      return build_.constant(dtype, sizes(shape), std::move(data));
    }
    if (const auto* triangle = std::get_if<ExportedFile::Triangle>(&constant.content)) {
      const NodeId ones = build_.expand(build_.scalar(DType::f32, 1), shape);
      const NodeId below = build_.add(Op::tril, {ones}, {{"diagonal", triangle->diagonal}});
      return build_.add(Op::where,
                        {build_.cast(below, DType::boolean), build_.scalar(dtype, triangle->below),
                         build_.scalar(dtype, triangle->above)});
    }
    const auto& data = std::get<std::vector<double>>(constant.content);
    return build_.constant(dtype, sizes(shape), data);
  }

  static std::vector<std::int64_t> sizes(const Shape& shape) {
    std::vector<std::int64_t> values;
    for (const Dim& size : shape) values.push_back(size.constant());
    return values;
  }

  // The weight of a linear of a quantised checkpoint. Its config says how the weight is stored.
  NodeId linear(const ExportedFile::Parameter& parameter) {
    add_store(parameter.place);
    const std::string module = parent_module(parameter.place.key);
    const StoredFormat how = quantization(parameter.type.dtype).stored_as(module);
    return build_.weight(module, parameter.type, how.format, how.layout, parameter.place.root);
  }

  const Quantization& quantization(DType computed) {
    if (quantization_) return *quantization_;
    const std::filesystem::path& folder = model_.stores.at("checkpoint");
    quantization_ = quantization_in(folder);
    settle_format(folder, computed, *quantization_);
    return *quantization_;
  }

  NodeId stored(const ExportedFile::Place& place, const TensorType& type) {
    add_store(place);
    return build_.weight(place.key, type, place.root);
  }

  void add_store(const ExportedFile::Place& place) {
    const bool is_folder = place.root == "checkpoint";
    if (!is_folder && place.root != "capture")
      bad_input("weights in the root \"{}\": only \"checkpoint\" and \"capture\" are known",
                place.root);
    const std::filesystem::path root = path_.parent_path() / file_.roots.at(place.root);
    const std::filesystem::path store = is_folder ? root : root / place.file;
    const auto [known, is_new] = model_.stores.emplace(place.root, store.lexically_normal());
    if (!is_new && known->second != store.lexically_normal())
      bad_input("weights of the capture are in both {} and {}", known->second.string(),
                store.string());
  }

  void add_output() {
    build_.set_module("");
    const auto named = [&](auto action) {
      try {
        return action();
      } catch (const Error& error) {
        throw Error(error.fault(),
                    fmt::format("{}: the output \"logits\": {}", path_.string(), error.what()));
      }
    };
    const NodeId logits = named([&] {
      const NodeId result = resolve(file_.output);
      TensorType type = model_.graph.type(result);
      if (type.shape.size() == 3 && type.shape[0] == Dim(1)) type.shape.erase(type.shape.begin());
      if (!is_float(type.dtype) || type.shape.size() != 2 || type.shape[0] != Dim(Symbol::S) ||
          !type.shape[1].is_constant())
        bad_input("is {}, expected floats of shape [1, S, vocabulary]",
                  to_string(model_.graph.type(result)));
      return build_.reshape(result, type.shape);
    });
    model_.graph.outputs.push_back({"logits", logits});
  }

  ExportedFile file_;
  std::filesystem::path path_;
  Model model_;
  Builder build_;
  std::optional<Quantization> quantization_;
  AtenContext context_{build_, {}, Prover(model_.graph), {}};
  std::unordered_map<std::string, Definition> names_;
};

}  // namespace

Model parse_exported(std::string_view text, const std::filesystem::path& file) {
  return Reader(parse_exported_file(text, file.string()), file).read();
}

Model read_exported(const std::filesystem::path& file) {
  return parse_exported(read_file(file, JsonLimits{}.bytes), file);
}

}  // namespace ac
