#include "capture/exported_file.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

#include "base/error.h"

namespace ac {
namespace {

constexpr std::string_view kFormat = "agentcompile.capture";
constexpr std::int64_t kVersion = 1;
constexpr std::size_t kMaxNodes = 1'000'000;
constexpr std::int64_t kMaxConstantElements = std::int64_t{1} << 26;
constexpr std::size_t kMaxRank = 8;
// Constants travel as doubles, which hold every integer up to here.
constexpr double kMaxExactInteger = 9007199254740992.0;

// Turns errors inside into errors that say where.
template <class Action>
auto within(const std::string& where, Action action) {
  try {
    return action();
  } catch (const Error& error) {
    throw Error(error.fault(), fmt::format("{}: {}", where, error.what()));
  }
}

Json& member(Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) bad_input("\"{}\" is missing", key);
  return *found;
}

void require_object(const Json& value) {
  if (!value.is_object()) bad_input("is not an object");
}

Json& list_member(Json& object, const char* key) {
  Json& value = member(object, key);
  if (!value.is_array()) bad_input("\"{}\" is not a list", key);
  return value;
}

std::string text_member(Json& object, const char* key) {
  Json& value = member(object, key);
  if (!value.is_string()) bad_input("\"{}\" is not a string", key);
  return value.get<std::string>();
}

std::string name_member(Json& object, const char* key) {
  std::string name = text_member(object, key);
  if (name.empty()) bad_input("\"{}\" is empty", key);
  return name;
}

std::int64_t integer(const Json& value, const char* what) {
  if (!value.is_number_integer()) bad_input("\"{}\" is not an integer", what);
  if (value.is_number_unsigned() &&
      value.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max())
    bad_input("\"{}\" overflows 64 bits", what);
  return value.get<std::int64_t>();
}

DType read_dtype(const Json& value) {
  if (!value.is_string()) bad_input("the dtype is not a string");
  const auto& name = value.get_ref<const std::string&>();
  const auto dtype = dtype_from_torch_name(name);
  if (!dtype || is_code(*dtype)) bad_input("elements of type \"{}\" are not supported", name);
  return *dtype;
}

Shape read_shape(const Json& value, const SymbolRange& range) {
  if (!value.is_array()) bad_input("the shape is not a list");
  if (value.size() > kMaxRank) bad_input("{} axes, more than {}", value.size(), kMaxRank);
  Shape shape;
  for (const Json& size : value) {
    shape.push_back(read_size(size, range));
    if (!at_most(0, shape.back(), range)) bad_input("a size of {}", shape.back().str());
  }
  return shape;
}

TensorType read_type(Json& object, const SymbolRange& range) {
  return {read_dtype(member(object, "dtype")), read_shape(member(object, "shape"), range)};
}

// For what is stored: all sizes are plain integers.
TensorType read_stored_type(Json& object, std::int64_t smallest) {
  TensorType type = read_type(object, {});
  for (const Dim& size : type.shape)
    if (!size.is_constant() || size.constant() < smallest)
      bad_input("a stored tensor of shape {}", to_string(type.shape));
  product(type.shape);  // an error if it overflows
  return type;
}

std::string checked_file_name(std::string name) {
  const std::filesystem::path path(name);
  bool leaves = name.empty() || path.is_absolute() || name.find('\0') != name.npos ||
                name.find('\\') != name.npos;
  for (const auto& part : path) leaves = leaves || part == "..";
  if (leaves) bad_input("the file name {} leads out of its folder", Json(name).dump());
  return name;
}

// A null file is one that was not there when the model was captured: its key is known all the same.
ExportedFile::Place read_place(Json& object, const ExportedFile& file) {
  ExportedFile::Place place{name_member(object, "root"), {}, name_member(object, "key")};
  if (!file.roots.contains(place.root)) bad_input("\"roots\" has no \"{}\"", place.root);
  if (place.root != "checkpoint" || !member(object, "file").is_null())
    place.file = checked_file_name(text_member(object, "file"));
  return place;
}

ExportedFile::Parameter read_parameter(Json& value, const ExportedFile& file) {
  ExportedFile::Parameter parameter{name_member(value, "name"), text_member(value, "path"),
                                    read_stored_type(value, 1), read_place(value, file), false};
  if (!value.contains("linear")) return parameter;
  const Json& linear = value["linear"];
  if (!linear.is_boolean()) bad_input("\"linear\" is neither true nor false");
  parameter.is_linear = linear.get<bool>();
  if (parameter.is_linear &&
      (parameter.place.root != "checkpoint" || !parameter.place.key.ends_with(".weight") ||
       parameter.type.shape.size() != 2 || !is_float(parameter.type.dtype)))
    bad_input("\"{}\" is no weight of a linear of the checkpoint", parameter.name);
  return parameter;
}

double element(DType dtype, const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (!is_number(value)) bad_input("the element {} is not a number", value.dump().substr(0, 100));
  const double number = to_number(value);
  if (is_float(dtype)) return number;
  if (!value.is_number_integer())
    bad_input("{} is not an integer, but the elements are {}", value.dump(), torch_name(dtype));
  const double limit = dtype == DType::boolean ? 1
                       : dtype == DType::i32   ? 0x1p31
                                               : kMaxExactInteger;
  if (number > limit || number < (dtype == DType::boolean ? 0 : -limit) ||
      (dtype == DType::i32 && number == limit))
    bad_input("{} is out of range for {}", value.dump(), torch_name(dtype));
  return number;
}

void read_header(Json& root, ExportedFile& file) {
  require_object(root);
  if (member(root, "format") != kFormat)
    bad_input("not a capture: \"format\" is not \"{}\"", kFormat);
  const Json& version = member(root, "format_version");
  if (!version.is_number_integer() || version != kVersion)
    bad_input("format version {}, but this program reads version {}: capture the model again",
              version.dump().substr(0, 100), kVersion);

  Json& model = member(root, "model");
  within("\"model\"", [&] {
    require_object(model);
    file.name = text_member(model, "name");
    file.architecture = text_member(model, "architecture");
  });

  if (const auto checked = root.find("checked"); checked != root.end())
    within("\"checked\"", [&] {
      require_object(*checked);
      file.checked = text_member(*checked, "summary");
      if (!checked->contains("scores")) return;
      Json& scores = member(*checked, "scores");
      require_object(scores);
      const Json& own = member(scores, "own_weights");
      if (!own.is_boolean()) bad_input("\"own_weights\" is neither true nor false");
      file.scores = own ? ScoresMeasured::of_the_model : ScoresMeasured::of_a_small_model;
    });

  Json& symbols = member(root, "symbols");
  within("\"symbols\"", [&] {
    require_object(symbols);
    if (symbols.size() != 1 || !symbols.contains("S"))
      bad_input("expected exactly one symbol, \"S\", the number of tokens");
    Json& range = symbols["S"];
    require_object(range);
    file.range = {integer(member(range, "min"), "min"), integer(member(range, "max"), "max")};
    if (range.contains("because")) file.longest_because = text_member(range, "because");
    if (file.range.min < 0 || file.range.max < file.range.min)
      bad_input("S from {} to {}", file.range.min, file.range.max);
    if (file.range.min > 1)
      bad_input("the graph is only right for at least {} tokens; a decoder starts with one",
                file.range.min);
    if (file.range.max < 1) bad_input("S is at most {}", file.range.max);
    // A producer may give "any length" as a number near 2^63.
    file.range.max = std::min(file.range.max, kMostTokens);
  });

  Json& roots = member(root, "roots");
  within("\"roots\"", [&] {
    require_object(roots);
    for (const auto& [name, folder] : roots.items()) {
      if (!folder.is_string()) bad_input("\"{}\" is not a string", name);
      file.roots[name] = folder.get<std::string>();
    }
  });
}

ExportedFile::Input read_input(Json& value, const ExportedFile& file) {
  const std::string kind = text_member(value, "kind");
  if (kind != "ids" && kind != "positions")
    bad_input("an input of kind \"{}\": only \"ids\" and \"positions\" are known", kind);
  ExportedFile::Input input{name_member(value, "name"), kind == "positions",
                            read_type(value, file.range)};
  const Dim S(Symbol::S);
  if (is_float(input.type.dtype) || input.type.dtype == DType::boolean ||
      (input.type.shape != Shape{1, S} && input.type.shape != Shape{S}))
    bad_input("is {}, expected integers of shape [1, S]", to_string(input.type));
  return input;
}

ExportedFile::Constant read_constant(Json& value, const ExportedFile& file) {
  ExportedFile::Constant constant{
      name_member(value, "name"), text_member(value, "path"), read_stored_type(value, 0), {}};
  const DType dtype = constant.type.dtype;
  const std::int64_t count = product(constant.type.shape).constant();
  int ways = 0;
  for (const char* way : {"data", "fill", "tril", "range", "triangle", "root"})
    ways += value.contains(way) ? 1 : 0;
  if (ways != 1)
    bad_input(
        "needs exactly one of \"data\", \"fill\", \"tril\", \"range\", \"triangle\" and \"root\"");
  if (value.contains("root")) {
    constant.content = read_place(value, file);
    if (count == 0) bad_input("a stored tensor of shape {}", to_string(constant.type.shape));
    return constant;
  }
  if (count > kMaxConstantElements)
    bad_input("{} elements, more than {}", count, kMaxConstantElements);
  if (value.contains("data")) {
    const Json& data = list_member(value, "data");
    if (data.size() != static_cast<std::size_t>(count))
      bad_input("{} elements of data for the shape {}", data.size(),
                to_string(constant.type.shape));
    std::vector<double> elements;
    elements.reserve(data.size());
    for (const Json& item : data) elements.push_back(element(dtype, item));
    constant.content = std::move(elements);
  } else if (value.contains("fill")) {
    constant.content = ExportedFile::Fill{element(dtype, value["fill"])};
  } else if (value.contains("range")) {
    const Json& range = list_member(value, "range");
    if (range.size() != 2) bad_input("\"range\" is not [start, step]");
    for (const Dim& size : constant.type.shape)
      if (size != Dim(1) && size != Dim(count)) bad_input("a range along several axes");
    const std::int64_t start = integer(range[0], "range"), step = integer(range[1], "range");
    if (count < 1 || std::abs(static_cast<double>(start)) +
                             std::abs(static_cast<double>(step)) * static_cast<double>(count) >
                         kMaxExactInteger)
      bad_input("a range of {} elements from {} in steps of {}", count, start, step);
    for (const std::int64_t last : {start, start + step * (count - 1)})
      if (round_to(dtype, static_cast<double>(last)) != static_cast<double>(last))
        bad_input("{} is not a number of {}", last, torch_name(dtype));
    constant.content = ExportedFile::Range{start, step};
  } else {
    if (constant.type.shape.size() < 2) bad_input("a triangle needs two axes");
    if (value.contains("tril")) {
      constant.content = ExportedFile::Tril{integer(value["tril"], "tril")};
      return constant;
    }
    Json& triangle = value["triangle"];
    require_object(triangle);
    constant.content = ExportedFile::Triangle{integer(member(triangle, "diagonal"), "diagonal"),
                                              element(dtype, member(triangle, "below")),
                                              element(dtype, member(triangle, "above"))};
  }
  return constant;
}

ExportedFile::Node read_node(Json& value, const ExportedFile& file) {
  ExportedFile::Node node{name_member(value, "name"),
                          name_member(value, "op"),
                          text_member(value, "module"),
                          {},
                          {},
                          {},
                          false};
  if (value.contains("source")) node.source = text_member(value, "source");
  Json& args = member(value, "args");
  if (!args.is_object()) bad_input("\"args\" is not an object");
  node.args = std::move(args);
  Json &dtype = member(value, "dtype"), &shape = member(value, "shape");
  node.has_several = dtype.is_array();
  if (!node.has_several) {
    node.results.push_back(read_type(value, file.range));
    return node;
  }
  if (!shape.is_array() || shape.size() != dtype.size())
    bad_input("results of {} dtypes and {} shapes", dtype.size(), shape.size());
  for (std::size_t i = 0; i < dtype.size(); ++i)
    node.results.push_back({read_dtype(dtype[i]), read_shape(shape[i], file.range)});
  return node;
}

// Reads each item of a list; errors name the item.
template <class Item, class Read>
std::vector<Item> read_all(Json& root, const char* key, Read read) {
  std::vector<Item> items;
  std::size_t index = 0;
  Json& list = list_member(root, key);
  if (list.size() > kMaxNodes) bad_input("\"{}\" has more than {} items", key, kMaxNodes);
  for (Json& value : list) {
    std::string where = fmt::format("{}[{}]", key, index++);
    if (value.is_object() && value.contains("name") && value["name"].is_string())
      where += fmt::format(" \"{}\"", value["name"].get_ref<const std::string&>());
    items.push_back(within(where, [&] {
      require_object(value);
      return read(value);
    }));
  }
  return items;
}

void check_names(const ExportedFile& file) {
  std::set<std::string_view> names;
  const auto add = [&](const std::string& name) {
    if (!names.insert(name).second) bad_input("two things are named \"{}\"", name);
  };
  for (const auto& input : file.inputs) add(input.name);
  for (const auto& parameter : file.parameters) add(parameter.name);
  for (const auto& constant : file.constants) add(constant.name);
  for (const auto& node : file.nodes) add(node.name);
}

void check_inputs(const ExportedFile& file) {
  std::size_t positions = 0;
  for (const auto& input : file.inputs) positions += input.is_positions ? 1 : 0;
  if (file.inputs.size() - positions != 1 || positions > 1)
    bad_input(
        "the inputs are {} of ids and {} of positions, expected one of ids and at most one "
        "of positions",
        file.inputs.size() - positions, positions);
}

Json read_output(Json& root) {
  Json& outputs = list_member(root, "outputs");
  if (outputs.size() != 1) bad_input("{} outputs, expected one", outputs.size());
  return within("outputs[0]", [&] {
    require_object(outputs[0]);
    if (const std::string name = text_member(outputs[0], "name"); name != "logits")
      bad_input("is named \"{}\", expected \"logits\"", name);
    name_member(outputs[0], "ref");
    return outputs[0];
  });
}

}  // namespace

bool is_number(const Json& value) {
  return value.is_number() || value == "nan" || value == "inf" || value == "-inf";
}

double to_number(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (value == "nan") return std::nan("");
  return value == "inf" ? INFINITY : -INFINITY;
}

ExportedFile parse_exported_file(std::string_view text, const std::string& origin) {
  Json root = parse_json(text, origin);
  return within(origin, [&] {
    ExportedFile file;
    read_header(root, file);
    file.inputs = read_all<ExportedFile::Input>(
        root, "inputs", [&](Json& value) { return read_input(value, file); });
    file.parameters = read_all<ExportedFile::Parameter>(
        root, "parameters", [&](Json& value) { return read_parameter(value, file); });
    file.constants = read_all<ExportedFile::Constant>(
        root, "constants", [&](Json& value) { return read_constant(value, file); });
    file.nodes = read_all<ExportedFile::Node>(root, "nodes",
                                              [&](Json& value) { return read_node(value, file); });
    file.output = read_output(root);
    check_inputs(file);
    check_names(file);
    return file;
  });
}

}  // namespace ac
