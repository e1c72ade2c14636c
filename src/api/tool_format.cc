#include "api/tool_format.h"

namespace ac::api {
namespace {

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

std::vector<const char*> markers_of(ToolFormat format) {
  switch (format) {
    case ToolFormat::none:
      return {};
    case ToolFormat::hermes:
    case ToolFormat::xml:
      return {"<tool_call>", "</tool_call>"};
    case ToolFormat::llama:
      return {"<|python_tag|>"};
    case ToolFormat::mistral:
      return {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"};
    case ToolFormat::granite:
      return {"<|tool_call|>"};
    case ToolFormat::deepseek:
      return {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>",
              "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"};
    case ToolFormat::harmony:
      return {"<|channel|>", "<|message|>", "<|constrain|>", "<|start|>",
              "<|end|>",     "<|call|>",    "<|return|>"};
  }
  return {};
}

}  // namespace

ToolFormat format_of(const std::string& chat_template) {
  if (has(chat_template, "<|channel|>")) return ToolFormat::harmony;
  if (has(chat_template, "<｜tool▁calls▁begin｜>")) return ToolFormat::deepseek;
  if (has(chat_template, "[TOOL_CALLS]")) return ToolFormat::mistral;
  if (has(chat_template, "<function=")) return ToolFormat::xml;
  if (has(chat_template, "<|tool_call|>")) return ToolFormat::granite;
  if (has(chat_template, "<tool_call>")) return ToolFormat::hermes;
  if (has(chat_template, "\"parameters\": ")) return ToolFormat::llama;
  return ToolFormat::none;
}

std::set<text::TokenId> shown_tokens(ToolFormat format, const text::Tokenizer& tokenizer) {
  std::set<text::TokenId> shown;
  for (const char* marker : {"<think>", "</think>"})
    if (const auto id = tokenizer.id(marker)) shown.insert(*id);
  for (const char* marker : markers_of(format))
    if (const auto id = tokenizer.id(marker)) shown.insert(*id);
  return shown;
}

AnswerParts::AnswerParts(const Options& options)
    : thinks_(options.thinks && options.format != ToolFormat::harmony),
      tags_(thinks_ && options.thinking) {
  const bool calls = !options.tools.is_null();
  if (options.format == ToolFormat::harmony)
    calls_ = harmony_parser(calls);
  else if (calls)
    calls_ = call_parser(options.format, options.tools);
}

std::vector<Part> AnswerParts::push(std::string_view text) {
  std::vector<Part> parts;
  take(thinks_ ? tags_.push(text) : std::vector<text::ThinkTags::Part>{{std::string(text), false}},
       parts);
  return parts;
}

std::vector<Part> AnswerParts::finish() {
  std::vector<Part> parts;
  if (thinks_) take(tags_.finish(), parts);
  if (calls_) calls_->finish(parts);
  return parts;
}

// White space around reasoning belongs to its tags.
void AnswerParts::take(const std::vector<text::ThinkTags::Part>& parts, std::vector<Part>& out) {
  constexpr const char* kSpace = " \t\r\n";
  for (const text::ThinkTags::Part& part : parts) {
    std::string text = part.text;
    if (part.thinking) {
      if (!has_reasoned_) begun_ = false;
      has_reasoned_ = true;
      text = held_ + text;
      if (!begun_) text.erase(0, text.find_first_not_of(kSpace));
      const std::size_t end = text.find_last_not_of(kSpace) + 1;
      held_ = text.substr(end);
      text.erase(end);
      if (text.empty()) continue;
      begun_ = true;
      out.push_back({Part::Kind::reasoning, text});
      continue;
    }
    if (has_reasoned_) {
      held_.clear();
      text.erase(0, text.find_first_not_of(kSpace));
      if (text.empty()) continue;
      has_reasoned_ = false;
    }
    if (text.empty()) continue;
    if (calls_)
      calls_->push(text, out);
    else
      out.push_back({Part::Kind::text, text});
  }
}

}  // namespace ac::api
