#include <charconv>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "ir/graph_text.h"
#include "ir/verify.h"

namespace ac {
namespace {

// A graph text may say `0 x 1000000000`; this many elements is more than any real constant has.
constexpr std::size_t kMaxConstantElements = 1u << 26;

class Parser {
 public:
  Parser(std::string_view text, const std::string& origin) : text_(text), origin_(origin) {}

  StepGraph parse(std::string_view keyword) {
    StepGraph step;
    expect_word(keyword);
    step.graph.name = string();
    if (!take('{')) {
      expect_word("max_tokens");
      expect('=');
      step.graph.limit.tokens = integer();
      if (!take('{')) {
        expect_word("because");
        step.graph.limit.why = string();
        expect('{');
      }
    }
    while (!take('}')) {
      skip_space();
      if (peek() == '%')
        step.graph.nodes.push_back(node(step.graph));
      else
        statement(step);
    }
    skip_space();
    if (at_ != text_.size()) fail("text after the closing brace");
    return step;
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<long>(at_), '\n');
    bad_input("{}:{}: {}", origin_, line, fmt::format(format, std::forward<Args>(args)...));
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool take(char wanted) {
    skip_space();
    if (peek() != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!take(wanted)) fail("expected '{}'", wanted);
  }
  std::string_view word() {
    skip_space();
    const std::size_t start = at_;
    while (std::isalnum(static_cast<unsigned char>(peek())) || peek() == '_') ++at_;
    return text_.substr(start, at_ - start);
  }
  void expect_word(std::string_view wanted) {
    if (word() != wanted) fail("expected \"{}\"", wanted);
  }

  std::string string() {
    skip_space();
    const std::size_t start = at_;
    expect('"');
    while (peek() != '"') {
      if (peek() == '\\') ++at_;
      if (at_ >= text_.size()) fail("unterminated string");
      ++at_;
    }
    ++at_;
    return parse_json(text_.substr(start, at_ - start), origin_).get<std::string>();
  }

  std::int64_t integer() {
    skip_space();
    std::int64_t value = 0;
    const auto [end, error] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) fail("expected an integer");
    at_ = static_cast<std::size_t>(end - text_.data());
    return value;
  }

  double number() {
    skip_space();
    double value = 0;
    const auto [end, error] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) fail("expected a number");
    at_ = static_cast<std::size_t>(end - text_.data());
    return value;
  }

  Dim dim() {
    skip_space();
    const std::size_t start = at_;
    while (std::isalnum(static_cast<unsigned char>(peek())) ||
           (peek() != '\0' && std::string_view(" *+-").find(peek()) != std::string_view::npos))
      ++at_;
    std::string_view text = text_.substr(start, at_ - start);
    const auto parsed = Dim::parse(text);
    if (!parsed) fail("\"{}\" is not a size", text);
    return *parsed;
  }

  template <class Item>
  auto list(Item item) {
    std::vector<decltype(item())> items;
    expect('[');
    while (!take(']')) {
      if (!items.empty()) expect(',');
      items.push_back(item());
    }
    return items;
  }

  Data data() {
    auto items = std::make_shared<std::vector<double>>();
    expect('[');
    while (!take(']')) {
      if (!items->empty()) expect(',');
      const double value = number();
      std::int64_t count = 1;
      if (take('x')) count = integer();
      if (count < 1 || static_cast<std::size_t>(count) > kMaxConstantElements - items->size())
        fail("a constant of more than {} elements", kMaxConstantElements);
      items->insert(items->end(), static_cast<std::size_t>(count), value);
    }
    return items;
  }

  DType dtype() {
    const std::string_view name = word();
    const auto parsed = dtype_from_short_name(name);
    if (!parsed) fail("\"{}\" is not an element type", name);
    return *parsed;
  }

  TensorType type() {
    TensorType type;
    type.dtype = dtype();
    type.shape = list([&] { return dim(); });
    return type;
  }

  std::string module() { return take('@') ? string() : std::string(); }

  Attr attr(AttrType type) {
    switch (type) {
      case AttrType::boolean: {
        const std::string_view value = word();
        if (value != "true" && value != "false") fail("expected true or false");
        return value == "true";
      }
      case AttrType::integer:
        return integer();
      case AttrType::number:
        return number();
      case AttrType::text:
        return string();
      case AttrType::dtype:
        return dtype();
      case AttrType::integers:
        return list([&] { return integer(); });
      case AttrType::dim:
        return dim();
      case AttrType::dims:
        return list([&] { return dim(); });
      case AttrType::data:
        return data();
    }
    AC_UNREACHABLE();
  }

  NodeId reference() {
    expect('%');
    const std::int64_t id = integer();
    if (id < 0 || id > std::numeric_limits<NodeId>::max()) fail("%{} is not a node", id);
    return static_cast<NodeId>(id);
  }

  Node node(const Graph& graph) {
    const NodeId id = reference();
    if (static_cast<std::size_t>(id) != graph.nodes.size())
      fail("node %{} out of order: expected %{}", id, graph.nodes.size());
    expect('=');
    const std::string_view name = word();
    const auto op = op_from_name(name);
    if (!op) fail("unknown op \"{}\"", name);
    Node node{*op, {}, {}, {}, {}};
    if (take('(')) {
      while (!take(')')) {
        if (!node.inputs.empty()) expect(',');
        node.inputs.push_back(reference());
      }
    }
    if (take('{')) {
      while (!take('}')) {
        if (!node.attrs.empty()) expect(',');
        const std::string attr_name(word());
        const AttrSpec* spec = info(*op).attr(attr_name);
        if (!spec) fail("{} has no attribute \"{}\"", name, attr_name);
        expect('=');
        if (!node.attrs.emplace(attr_name, attr(spec->type)).second)
          fail("attribute \"{}\" given twice", attr_name);
      }
    }
    expect(':');
    node.type = type();
    node.module = module();
    return node;
  }

  // kv bf16 keys=8x64 values=8x64 window=0 @ "model.layers.0.self_attn"; of codes keys=8x64:f8e4m3
  StateSpec state() {
    StateSpec state;
    const auto kind = std::ranges::find(kStateKinds, word());
    if (kind == kStateKinds.end()) fail("no state is of this kind");
    state.kind = static_cast<StateKind>(kind - kStateKinds.begin());
    state.dtype = dtype();
    for (std::string_view name = word(); name != "window"; name = word()) {
      StateTensor& tensor = state.tensors.emplace_back();
      tensor.name = name;
      expect('=');
      tensor.rows = integer();
      expect('x');
      tensor.size = integer();
      tensor.dtype = take(':') ? dtype() : state.dtype;
    }
    expect('=');
    state.window = integer();
    state.module = module();
    if (const char* why = why_impossible(state)) fail("the state {}", why);
    return state;
  }

  void statement(StepGraph& step) {
    const std::string_view keyword = word();
    if (keyword == "return") {
      Output output;
      output.node = reference();
      expect_word("as");
      output.name = string();
      step.graph.outputs.push_back(std::move(output));
    } else if (keyword == "state") {
      if (integer() != static_cast<std::int64_t>(step.states.size())) fail("state out of order");
      expect(':');
      step.states.push_back(state());
    } else {
      fail("expected a node, a state or a return, got \"{}\"", keyword);
    }
  }

  std::string_view text_;
  const std::string& origin_;
  std::size_t at_ = 0;
};

}  // namespace

Graph parse_graph(std::string_view text, const std::string& origin) {
  StepGraph step = Parser(text, origin).parse("graph");
  if (!step.states.empty()) bad_input("{}: a graph has no states; is it a step?", origin);
  verify(step.graph, origin);
  return std::move(step.graph);
}

StepGraph parse_step(std::string_view text, const std::string& origin) {
  StepGraph step = Parser(text, origin).parse("step");
  verify(step, origin);
  return step;
}

}  // namespace ac
