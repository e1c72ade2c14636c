#include "api/tool_grammar.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace ac::api {
namespace {

// A string of Lark has the escapes of JSON's.
std::string quoted(const std::string& text) { return Json(text).dump(); }

// A call: what stands before its arguments, and behind them.
struct Shape {
  std::string marker = {};  // begins all calls, or each
  bool marks_each = false;
  std::string open = {}, close = {};  // around all, behind the marker
  std::string between = {};
};

class CallWriter {
 public:
  CallWriter(ToolFormat format, const std::string& chat_template, const text::Tokenizer& tokenizer)
      : format_(format), tokenizer_(tokenizer), chat_template_(chat_template) {}

  // A token of its own, where there is one.
  std::string marker(const std::string& text) const {
    const auto id = tokenizer_.id(text);
    return id ? fmt::format("<[{}]>", *id) : quoted(text);
  }
  std::string call(const std::string& name, std::size_t i) const {
    const std::string json = "{\"name\": " + Json(name).dump() + ", \"arguments\": ";
    const auto around = [&](const std::string& before, const std::string& after) {
      return fmt::format("{} @p{} {}", quoted(before), i, quoted(after));
    };
    switch (format_) {
      case ToolFormat::hermes:
        return around("\n" + json, "}\n") + " " + marker("</tool_call>");
      case ToolFormat::llama:
        return around("{\"name\": " + Json(name).dump() + ", \"parameters\": ", "}");
      case ToolFormat::mistral:
        if (has_arguments_marker())
          return fmt::format("{} {} @p{}", quoted(name), marker("[ARGS]"), i);
        return around(json, "}");
      case ToolFormat::granite:
        return around(json, "}");
      case ToolFormat::deepseek:
        if (chat_template_.find("```json") != std::string::npos)
          return fmt::format("{} \"function\" {} {} {}", marker("<｜tool▁call▁begin｜>"),
                             marker("<｜tool▁sep｜>"), around(name + "\n```json\n", "\n```"),
                             marker("<｜tool▁call▁end｜>"));
        return fmt::format("{} {} {} @p{} {}", marker("<｜tool▁call▁begin｜>"), quoted(name),
                           marker("<｜tool▁sep｜>"), i, marker("<｜tool▁call▁end｜>"));
      case ToolFormat::none:
      case ToolFormat::xml:
      case ToolFormat::harmony:
        break;
    }
    AC_UNREACHABLE();
  }
  Shape shape() const {
    switch (format_) {
      case ToolFormat::hermes:
        return {.marker = "<tool_call>", .marks_each = true, .between = quoted("\n")};
      case ToolFormat::llama:
        return {};
      case ToolFormat::mistral:
        if (has_arguments_marker()) return {.marker = "[TOOL_CALLS]", .marks_each = true};
        return {.marker = "[TOOL_CALLS]",
                .open = quoted("["),
                .close = quoted("]"),
                .between = quoted(", ")};
      case ToolFormat::granite:
        return {.marker = "<|tool_call|>",
                .open = quoted("["),
                .close = quoted("]"),
                .between = quoted(", ")};
      case ToolFormat::deepseek:
        return {.marker = "<｜tool▁calls▁begin｜>",
                .close = marker("<｜tool▁calls▁end｜>"),
                .between = quoted("\n")};
      case ToolFormat::none:
      case ToolFormat::xml:
      case ToolFormat::harmony:
        break;
    }
    AC_UNREACHABLE();
  }

 private:
  bool has_arguments_marker() const { return tokenizer_.id("[ARGS]").has_value(); }

  const ToolFormat format_;
  const text::Tokenizer& tokenizer_;
  const std::string& chat_template_;
};

}  // namespace

CallGrammar call_grammar(ToolFormat format, const std::vector<std::string>& names, bool one_call,
                         bool beside_text, const std::string& chat_template,
                         const text::Tokenizer& tokenizer) {
  if (format == ToolFormat::none || format == ToolFormat::xml || format == ToolFormat::harmony)
    bad_input("the form in which the model calls tools has no grammar");
  const CallWriter writer(format, chat_template, tokenizer);
  const Shape shape = writer.shape();
  CallGrammar grammar;
  if (beside_text) {
    const auto id = tokenizer.id(shape.marker);
    if (shape.marker.empty() || !id)
      bad_input(
          "the model has no token that begins a call, so that a call cannot be told from text");
    grammar.trigger = *id;
  }
  std::vector<std::string> calls;
  for (std::size_t i = 0; i < names.size(); ++i) calls.push_back(writer.call(names[i], i));
  const std::string marker = shape.marker.empty() ? "" : writer.marker(shape.marker);
  const bool has_more = format != ToolFormat::llama && !one_call;
  const std::string each = shape.marks_each ? marker + " call" : "call";
  const std::string more = has_more ? fmt::format(" ({} {})*", shape.between, each) : "";
  const std::string before = beside_text ? "" : marker;
  std::string start = fmt::format("{} {} call{} {}", before, shape.open, more, shape.close);
  // Behind a marker of each call, another one is another trigger.
  if (beside_text && shape.marks_each) start = "call";
  grammar.lark = fmt::format("start: {}\ncall: {}\n", start, fmt::join(calls, "\n  | "));
  return grammar;
}

}  // namespace ac::api
