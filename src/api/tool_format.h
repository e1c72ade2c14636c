// In which form a model calls tools and reasons. Each chat template has one.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "api/part.h"
#include "base/json.h"
#include "text/think_tags.h"
#include "text/tokenizer.h"

namespace ac::api {

enum class ToolFormat {
  none,      // calls are text
  hermes,    // <tool_call>{"name": "f", "arguments": {...}}</tool_call>
  xml,       // <tool_call><function=f><parameter=a>1</parameter></function></tool_call>
  llama,     // {"name": "f", "parameters": {...}}, and nothing else
  mistral,   // [TOOL_CALLS][{"name": "f", "arguments": {...}}], or [TOOL_CALLS]f[ARGS]{...}
  granite,   // <|tool_call|>[{"name": "f", "arguments": {...}}]
  deepseek,  // <｜tool▁call▁begin｜>f<｜tool▁sep｜>{...}<｜tool▁call▁end｜>
  harmony,   // <|channel|>commentary to=functions.f<|message|>{...}<|call|>
};
inline constexpr std::pair<ToolFormat, const char*> kToolFormats[] = {
    {ToolFormat::none, "none"},         {ToolFormat::hermes, "hermes"},
    {ToolFormat::xml, "xml"},           {ToolFormat::llama, "llama"},
    {ToolFormat::mistral, "mistral"},   {ToolFormat::granite, "granite"},
    {ToolFormat::deepseek, "deepseek"}, {ToolFormat::harmony, "harmony"},
};

// Which one a template of conversations with tools asks for.
ToolFormat format_of(const std::string& chat_template);

// Special tokens that mark parts: they must be in the text that is parsed.
std::set<text::TokenId> shown_tokens(ToolFormat format, const text::Tokenizer& tokenizer);

// Finds calls. `tools` is the request's list.
std::unique_ptr<PartParser> call_parser(ToolFormat format, const Json& tools);
// Of gpt-oss, which has reasoning, calls and text in channels. Without `calls`, there are none.
std::unique_ptr<PartParser> harmony_parser(bool calls);

// All parts of an answer.
class AnswerParts {
 public:
  struct Options {
    ToolFormat format = ToolFormat::none;
    Json tools = nullptr;   // null: calls are text
    bool thinks = false;    // <think> begins reasoning
    bool thinking = false;  // the prompt has begun it
    bool thought = false;   // the prompt has ended it
  };
  explicit AnswerParts(const Options& options);

  std::vector<Part> push(std::string_view text);
  std::vector<Part> finish();

 private:
  void take(const std::vector<text::ThinkTags::Part>& parts, std::vector<Part>& out);

  bool thinks_;
  text::ThinkTags tags_;
  bool has_reasoned_ = false, begun_ = false;  // begun_: the text, or this stretch of reasoning
  std::string held_;                           // white space at the end of reasoning
  std::unique_ptr<PartParser> calls_;          // null: all is text
};

}  // namespace ac::api
