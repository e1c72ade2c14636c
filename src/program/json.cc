// program.json: written plainly, read with distrust.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "program/program.h"
#include "state/state_json.h"

namespace ac {
namespace {

constexpr int kFormat = 15;  // 14: rows at once; 15: blocks at once, kept buffers, boxes of panels
constexpr std::array<std::string_view, 14> kRoles = {
    "ids",    "position", "token",      "log",   "until",   "settings", "allowed",
    "weight", "constant", "rope_table", "state", "scratch", "counters", "kept"};

// An integer of the type, and not what is left of a larger one.
template <class T>
T integer(const Json& value, const std::string& origin, const char* key) {
  if (!value.is_number_integer()) bad_input("{}: \"{}\" is not an integer", origin, key);
  const bool fits = value.is_number_unsigned() ? std::in_range<T>(value.get<std::uint64_t>())
                                               : std::in_range<T>(value.get<std::int64_t>());
  if (!fits) bad_input("{}: \"{}\" is out of range", origin, key);
  return value.get<T>();
}

// A field of an object, with errors that name it.
class Object {
 public:
  Object(const Json& json, std::string origin) : json_(json), origin_(std::move(origin)) {
    if (!json.is_object()) bad_input("{}: not an object", origin_);
  }

  const Json& at(const char* key) const {
    const auto found = json_.find(key);
    if (found == json_.end()) bad_input("{}: \"{}\" is missing", origin_, key);
    return *found;
  }
  bool has(const char* key) const { return json_.contains(key); }
  template <class T>
  T get(const char* key) const {
    const Json& value = at(key);
    if constexpr (std::is_integral_v<T>) {
      return integer<T>(value, origin_, key);
    } else {
      const bool fits = std::is_same_v<T, std::string> ? value.is_string() : value.is_number();
      if (!fits) bad_input("{}: \"{}\" is not what it should be", origin_, key);
      return value.get<T>();
    }
  }
  template <class T>
  T get_or(const char* key, T fallback) const {
    return has(key) ? get<T>(key) : fallback;
  }
  bool boolean(const char* key) const {
    if (!at(key).is_boolean()) bad_input("{}: \"{}\" is not true or false", origin_, key);
    return at(key).get<bool>();
  }
  DType dtype(const char* key) const {
    const auto dtype = dtype_from_short_name(get<std::string>(key));
    if (!dtype) bad_input("{}: \"{}\" is no element type", origin_, key);
    return *dtype;
  }
  const Json& array(const char* key) const {
    if (!at(key).is_array()) bad_input("{}: \"{}\" is not a list", origin_, key);
    return at(key);
  }
  std::vector<std::int64_t> integers(const char* key) const {
    std::vector<std::int64_t> list;
    for (const Json& value : array(key)) list.push_back(integer<std::int64_t>(value, origin_, key));
    return list;
  }
  std::vector<std::string> texts(const char* key) const {
    std::vector<std::string> list;
    for (const Json& value : array(key)) {
      if (!value.is_string()) bad_input("{}: \"{}\" holds something else than text", origin_, key);
      list.push_back(value.get<std::string>());
    }
    return list;
  }
  std::string sub(const char* key, std::size_t i) const {
    return fmt::format("{}: {}[{}]", origin_, key, i);
  }
  const std::string& origin() const { return origin_; }

 private:
  const Json& json_;
  std::string origin_;
};

std::string hex(const std::vector<std::byte>& bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

std::vector<std::byte> unhex(const std::string& text, const std::string& origin) {
  const auto digit = [&](char c) -> unsigned {
    if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
    if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a' + 10);
    bad_input("{}: \"params\" is not hexadecimal", origin);
  };
  if (text.size() % 2 != 0) bad_input("{}: \"params\" has half a byte", origin);
  std::vector<std::byte> bytes(text.size() / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(digit(text[2 * i]) * 16 + digit(text[2 * i + 1]));
  return bytes;
}

Json to_json(const std::vector<Launch>& launches) {
  Json json = Json::array();
  for (const Launch& launch : launches) json.push_back(ac::to_json(launch));
  return json;
}

Json to_json(const Phase& phase) {
  return {{"name", phase.name},
          {"min_tokens", phase.min_tokens},
          {"max_tokens", phase.max_tokens},
          {"from", phase.from},
          {"rows", kRows[static_cast<std::size_t>(phase.rows)]},
          {"ids", phase.ids},
          {"logits", phase.logits},
          {"notes", phase.notes},
          {"launches", to_json(phase.launches)},
          {"draw", to_json(phase.draw)},
          {"masked", to_json(phase.masked)}};
}

Phase phase_from_json(const Json& json, const std::string& origin) {
  const Object object(json, origin);
  Phase phase;
  phase.name = object.get<std::string>("name");
  phase.min_tokens = object.get<std::int64_t>("min_tokens");
  phase.max_tokens = object.get<std::int64_t>("max_tokens");
  phase.from = object.get<std::int64_t>("from");
  const auto rows = std::ranges::find(kRows, object.get<std::string>("rows"));
  if (rows == kRows.end()) bad_input("{}: \"rows\" is not \"last\", \"all\" or \"each\"", origin);
  phase.rows = static_cast<Rows>(rows - kRows.begin());
  phase.ids = object.get<std::int32_t>("ids");
  phase.logits = object.get<std::int32_t>("logits");
  phase.notes = object.texts("notes");
  const auto launches = [&](const char* key) {
    std::vector<Launch> list;
    const Json& json = object.array(key);
    for (std::size_t i = 0; i < json.size(); ++i)
      list.push_back(launch_from_json(json[i], object.sub(key, i)));
    return list;
  };
  phase.launches = launches("launches");
  phase.draw = launches("draw");
  phase.masked = launches("masked");
  return phase;
}

Json to_json(const Product& product) {
  return {{"dtype", short_name(product.dtype)},
          {"n", product.n},
          {"k", product.k},
          {"x_pitch", product.x_pitch},
          {"bias", product.bias},
          {"residual", product.residual},
          {"scale", product.scale},
          {"algorithm", product.algorithm},
          {"tuned_m", product.tuned_m},
          {"tuned_n", product.tuned_n}};
}

Product product_from_json(const Json& json, const std::string& origin) {
  const Object object(json, origin);
  Product product;
  product.dtype = object.dtype("dtype");
  product.n = object.get<std::int64_t>("n");
  product.k = object.get<std::int64_t>("k");
  product.x_pitch = object.get<std::int64_t>("x_pitch");
  product.bias = object.boolean("bias");
  product.residual = object.boolean("residual");
  product.scale = object.get<double>("scale");
  product.algorithm = object.get<std::int32_t>("algorithm");
  product.tuned_m = object.get<std::int64_t>("tuned_m");
  product.tuned_n = object.get<std::int64_t>("tuned_n");
  if (const char* why = why_impossible(product)) bad_input("{}: {}", origin, why);
  return product;
}

}  // namespace

std::string_view to_string(Buffer::Role role) { return kRoles[static_cast<std::size_t>(role)]; }

Json to_json(const Buffer& buffer) {
  Json json{{"role", to_string(buffer.role)}};
  if (!buffer.name.empty()) json["name"] = buffer.name;
  json["dtype"] = short_name(buffer.dtype);
  json["bytes"] = to_json(buffer.bytes);
  if (buffer.node >= 0) json["node"] = buffer.node;
  switch (buffer.role) {
    case Buffer::Role::weight:
      json["store"] = buffer.store, json["key"] = buffer.key, json["shape"] = buffer.shape;
      if (const PartInFile& part = buffer.in_file; !part.format.is_plain())
        json["format"] = traits(part.format).name, json["part"] = part.part,
        json["layout"] = layout_traits(part.layout).name;
      break;
    case Buffer::Role::constant:
    case Buffer::Role::scratch:
      json["offset"] = buffer.offset;
      break;
    case Buffer::Role::state:
      json["state"] = buffer.state, json["tensor"] = buffer.tensor;
      break;
    case Buffer::Role::rope_table:
      json["source"] = buffer.source, json["scale"] = buffer.scale;
      break;
    default:
      break;
  }
  return json;
}

Buffer buffer_from_json(const Json& json, const std::string& origin) {
  const Object object(json, origin);
  Buffer buffer;
  const auto found = std::ranges::find(kRoles, object.get<std::string>("role"));
  if (found == kRoles.end()) bad_input("{}: \"role\" is unknown", origin);
  buffer.role = static_cast<Buffer::Role>(found - kRoles.begin());
  buffer.name = object.get_or<std::string>("name", "");
  buffer.dtype = object.dtype("dtype");
  buffer.bytes = count_from_json(object.at("bytes"), origin + ": bytes");
  buffer.node = object.get_or<std::int32_t>("node", -1);
  buffer.store = object.get_or<std::string>("store", "");
  buffer.key = object.get_or<std::string>("key", "");
  if (object.has("shape")) buffer.shape = object.integers("shape");
  buffer.offset = object.get_or<std::int64_t>("offset", 0);
  buffer.state = object.get_or<std::int64_t>("state", -1);
  buffer.tensor = object.get_or<std::int32_t>("tensor", 0);
  buffer.source = object.get_or<std::int32_t>("source", -1);
  buffer.scale = object.get_or<double>("scale", 1);
  const std::string name = object.get_or<std::string>("format", "plain");
  const std::optional<WeightFormat> format = find_format(name);
  if (!format) bad_input("{}: no weight format is called {}", origin, quote(name));
  PartInFile& in_file = buffer.in_file;
  in_file.format = format->format;
  in_file.part = object.get_or<std::int32_t>("part", 0);
  if (in_file.part < 0 || static_cast<std::size_t>(in_file.part) >= format->parts.size())
    bad_input("{}: the format {} has no part {}", origin, name, in_file.part);
  if (format->is_plain()) return buffer;
  if (buffer.dtype != buffer.weight_part().dtype)
    bad_input("{}: part {} of the format {} is {}", origin, in_file.part, name,
              short_name(buffer.weight_part().dtype));
  const auto layout = object.get<std::string>("layout");
  if (!find_layout(layout)) bad_input("{}: no layout is called {}", origin, quote(layout));
  in_file.layout = find_layout(layout)->layout;
  if (!can_store(in_file.layout, in_file.format))
    bad_input("{}: the layout {} cannot store the format {}", origin, layout, name);
  return buffer;
}

StateSpec state_from_json(const Json& json, const std::string& origin) {
  const Object object(json, origin);
  StateSpec state;
  const auto kind = std::ranges::find(kStateKinds, object.get<std::string>("kind"));
  if (kind == kStateKinds.end()) bad_input("{}: no state is of this kind", origin);
  state.kind = static_cast<StateKind>(kind - kStateKinds.begin());
  state.dtype = object.dtype("dtype");
  const Json& tensors = object.array("tensors");
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Object tensor(tensors[i], object.sub("tensors", i));
    state.tensors.push_back({tensor.get<std::string>("name"), tensor.get<std::int64_t>("rows"),
                             tensor.get<std::int64_t>("size"),
                             tensors[i].contains("dtype") ? tensor.dtype("dtype") : state.dtype});
  }
  state.window = object.get<std::int64_t>("window");
  state.slots = object.get<std::int64_t>("slots");
  if (const char* why = why_impossible(state)) bad_input("{}: {}", origin, why);
  return state;
}

Json to_json(const Count& count) {
  if (count == Count(count.fixed)) return count.fixed;
  Json json{{"fixed", count.fixed}, {"per_token", count.per_token}};
  if (count.per != 1) json["per"] = count.per;
  if (count.times != 1) json["times"] = count.times;
  if (count.at_most != 0) json["at_most"] = count.at_most;
  return json;
}

Count count_from_json(const Json& json, const std::string& origin) {
  if (json.is_number()) return integer<std::int64_t>(json, origin, "count");
  const Object object(json, origin);
  Count count(object.get<std::int64_t>("fixed"), object.get<std::int64_t>("per_token"));
  count.per = object.get_or<std::int64_t>("per", 1);
  count.times = object.get_or<std::int64_t>("times", 1);
  count.at_most = object.get_or<std::int64_t>("at_most", 0);
  if (count.per < 1) bad_input("{}: \"per\" must be positive", origin);
  // More tokens need no less: what holds for the most of them holds for all.
  if (count.per_token < 0 || count.times < 0 || count.at_most < 0)
    bad_input("{}: a count must not fall", origin);
  return count;
}

Json to_json(const Launch& launch) {
  Json grid = Json::array(), pointers = Json::array(), numbers = Json::array();
  Json maps = Json::array();
  for (const Launch::Pointer& p : launch.pointers)
    pointers.push_back({p.at, p.buffer, to_json(p.offset)});
  for (const Launch::Number& n : launch.numbers)
    numbers.push_back({n.at, n.bytes, to_json(n.value)});
  for (const Launch::Map& m : launch.maps)
    maps.push_back({{"at", m.at},
                    {"buffer", m.buffer},
                    {"offset", to_json(m.offset)},
                    {"rows", to_json(m.rows)},
                    {"columns", m.columns},
                    {"pitch", m.pitch},
                    {"box_rows", m.box_rows},
                    {"box_panels", m.box_panels},
                    {"dtype", short_name(m.dtype)}});
  Json json{{"kernel", launch.kernel},
            {"params", hex(launch.params)},
            {"pointers", std::move(pointers)},
            {"numbers", std::move(numbers)},
            {"maps", std::move(maps)}};
  if (launch.each_row) json["each_row"] = true;
  if (launch.at_once) json["at_once"] = true;
  if (launch.rows > 1) json["rows"] = launch.rows;
  if (launch.stamps)
    json["stamps"] = {{"at", launch.stamps->at},
                      {"rounds", launch.stamps->rounds},
                      {"points", launch.stamps->points}};
  if (launch.product) {
    json["product"] = to_json(*launch.product);
    return json;
  }
  for (const Count& count : launch.grid) grid.push_back(to_json(count));
  json["grid"] = std::move(grid);
  json["threads"] = launch.threads, json["shared_bytes"] = launch.shared_bytes;
  return json;
}

Launch launch_from_json(const Json& json, const std::string& origin) {
  const Object object(json, origin);
  Launch launch;
  launch.kernel = object.get<std::string>("kernel");
  launch.each_row = object.has("each_row") && object.boolean("each_row");
  launch.at_once = object.has("at_once") && object.boolean("at_once");
  launch.rows = object.get_or<int>("rows", 1);
  if (object.has("product")) {
    launch.product = product_from_json(object.at("product"), origin + ": product");
  } else {
    const Json& grid = object.array("grid");
    if (grid.size() != 3) bad_input("{}: \"grid\" has not three sizes", origin);
    for (std::size_t i = 0; i < 3; ++i)
      launch.grid[i] = count_from_json(grid[i], origin + ": grid");
    launch.threads = object.get<int>("threads");
    launch.shared_bytes = object.get<int>("shared_bytes");
  }
  launch.params = unhex(object.get<std::string>("params"), origin);
  if (object.has("stamps")) {
    const Object stamps(object.at("stamps"), origin + ": stamps");
    launch.stamps = {stamps.get<std::uint32_t>("at"), stamps.get<std::int64_t>("rounds"),
                     stamps.texts("points")};
    if (const char* why = why_impossible(*launch.stamps, launch)) bad_input("{}: {}", origin, why);
  }
  const auto triples = [&](const char* key) -> const Json& {
    for (const Json& entry : object.array(key))
      if (!entry.is_array() || entry.size() != 3)
        bad_input("{}: \"{}\" holds something else than [at, number, count]", origin, key);
    return object.array(key);
  };
  for (const Json& entry : triples("pointers"))
    launch.pointers.push_back({integer<std::uint32_t>(entry[0], origin, "pointers"),
                               integer<std::int32_t>(entry[1], origin, "pointers"),
                               count_from_json(entry[2], origin + ": pointers")});
  for (const Json& entry : triples("numbers"))
    launch.numbers.push_back({integer<std::uint32_t>(entry[0], origin, "numbers"),
                              integer<std::uint32_t>(entry[1], origin, "numbers"),
                              count_from_json(entry[2], origin + ": numbers")});
  const Json& maps = object.array("maps");
  for (std::size_t i = 0; i < maps.size(); ++i) {
    const Object map(maps[i], object.sub("maps", i));
    launch.maps.push_back({.at = map.get<std::uint32_t>("at"),
                           .buffer = map.get<std::int32_t>("buffer"),
                           .offset = count_from_json(map.at("offset"), origin + ": offset"),
                           .rows = count_from_json(map.at("rows"), origin + ": rows"),
                           .columns = map.get<std::int64_t>("columns"),
                           .pitch = map.get<std::int64_t>("pitch"),
                           .box_rows = map.get<std::int32_t>("box_rows"),
                           .dtype = map.dtype("dtype"),
                           .box_panels = map.get<std::int32_t>("box_panels")});
  }
  if (const char* why = why_impossible_rows(launch)) bad_input("{}: {}", origin, why);
  return launch;
}

Json to_json(const Program& program) {
  Json states = Json::array(), buffers = Json::array(), phases = Json::array();
  for (const Phase& phase : program.phases) phases.push_back(to_json(phase));
  for (const StateSpec& state : program.states) states.push_back(to_json(state));
  for (const Buffer& buffer : program.buffers) buffers.push_back(to_json(buffer));
  return {{"format", kFormat},
          {"model", program.model},
          {"target", program.target},
          {"dtype", short_name(program.dtype)},
          {"vocab", program.vocab},
          {"max_context", program.max_context},
          {"quick", program.quick},
          {"positions", program.positions},
          {"positions_because", program.positions_because},
          {"states", std::move(states)},
          {"stores", program.stores},
          {"arena_bytes", program.arena_bytes},
          {"constant_bytes", program.constant_bytes},
          {"kernels", program.kernels},
          {"buffers", std::move(buffers)},
          {"phases", std::move(phases)}};
}

bool has_this_format(const Json& json) {
  const auto format = json.find("format");
  return format != json.end() && *format == kFormat;
}

Program program_from_json(const Json& json, const std::string& origin) {
  const Object object(json, origin);
  if (const int format = object.get<int>("format"); format != kFormat)
    bad_input("{}: format {} is not {}, which this program reads: compile the model again", origin,
              format, kFormat);
  Program program;
  program.model = object.get<std::string>("model");
  program.target = object.get<std::string>("target");
  program.dtype = object.dtype("dtype");
  program.vocab = object.get<std::int64_t>("vocab");
  program.max_context = object.get<std::int64_t>("max_context");
  program.quick = object.boolean("quick");
  program.positions = object.get<std::int64_t>("positions");
  program.positions_because = object.get<std::string>("positions_because");
  const Json& states = object.array("states");
  for (std::size_t i = 0; i < states.size(); ++i)
    program.states.push_back(state_from_json(states[i], object.sub("states", i)));
  const auto texts = [&](const char* key) {
    const Json& map = object.at(key);
    std::map<std::string, std::string> result;
    if (!map.is_object()) bad_input("{}: \"{}\" is not an object", origin, key);
    for (const auto& [name, value] : map.items()) {
      if (!value.is_string()) bad_input("{}: \"{}\" holds something else than text", origin, key);
      result[name] = value.get<std::string>();
    }
    return result;
  };
  program.stores = texts("stores");
  program.kernels = texts("kernels");
  program.arena_bytes = object.get<std::int64_t>("arena_bytes");
  program.constant_bytes = object.get<std::int64_t>("constant_bytes");
  const Json& buffers = object.array("buffers");
  for (std::size_t i = 0; i < buffers.size(); ++i)
    program.buffers.push_back(buffer_from_json(buffers[i], object.sub("buffers", i)));
  const Json& phases = object.array("phases");
  for (std::size_t i = 0; i < phases.size(); ++i)
    program.phases.push_back(phase_from_json(phases[i], object.sub("phases", i)));
  verify(program, origin);
  return program;
}

}  // namespace ac
