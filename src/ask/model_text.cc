#include "ask/model_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/warning.h"
#include "text/think_tags.h"
#include "text/unicode.h"

namespace ac {
namespace {

namespace fs = std::filesystem;

// A character that no text has a use for. Behind the first character of a special token it says
// that this one is text; where a text has it, it is written twice.
constexpr std::string_view kMark = "\uE0F5";

text::Trie special_texts(const text::Tokenizer& tokenizer) {
  std::vector<std::pair<std::string_view, std::int32_t>> texts;
  for (text::TokenId id = 0; std::cmp_less(id, tokenizer.size()); ++id)
    if (tokenizer.is_special(id) && !tokenizer.token(id).empty())
      texts.emplace_back(tokenizer.token(id), id);
  return text::Trie(std::move(texts));
}

// Of the longest one that begins there; 0 if none does.
std::size_t special_at(const text::Trie& special, std::string_view text) {
  std::size_t bytes = 0;
  if (special.may_begin(text[0]))
    special.prefixes(text, [&](std::size_t found, std::int32_t) { bytes = found; });
  return bytes;
}

// Leaves out what a template writes behind a message. As in transformers, where the template trims
// the message, so does this.
void end_with(std::string message, std::string& prompt) {
  constexpr const char* kSpace = " \t\n\v\f\r";
  message.erase(0, message.find_first_not_of(kSpace));
  const std::size_t bytes = message.find_last_not_of(kSpace) + 1;
  const std::size_t at = prompt.rfind(std::string_view(message).substr(0, bytes));
  if (at == std::string::npos)
    bad_input("it does not show the last message as it is, so that no answer can go on with it");
  const bool whole = std::string_view(prompt).substr(at).starts_with(message);
  prompt.resize(at + (whole ? message.size() : bytes));
}

}  // namespace

ModelText::ModelText(Source source)
    : folder_(source.folder),
      variables_(std::move(source.variables)),
      tokenizer_(text::Tokenizer::load(folder_)),
      special_(special_texts(tokenizer_)),
      config_(text::read_generation_config(folder_)) {
  for (const std::string& name : config_.unknown)
    warn("{} asks for {}, which agentcompile does not do", generation_config_file(), name);
  try {
    templates_ = ChatTemplates::load(source.chat_template.empty() ? folder_ : source.chat_template);
    plain_ = templates_->choose(std::nullopt, false);
    with_tools_ = templates_->choose(std::nullopt, true);
  } catch (const Error& error) {
    if (!source.chat_template.empty()) throw;
    why_no_template_ = error.what();  // of use to who wants to chat only
    templates_.reset();
  }
}

std::string ModelText::generation_config_file() const {
  return (folder_ / "generation_config.json").string();
}

void ModelText::check_vocabulary(std::int64_t vocabulary) const {
  for (auto id = static_cast<text::TokenId>(vocabulary); std::cmp_less(id, tokenizer_.size()); ++id)
    if (tokenizer_.has(id) && !tokenizer_.is_special(id))
      bad_input(
          "the tokenizer in {} has {} tokens, and the model's vocabulary {}: it is another "
          "model's; "
          "name the right one by --tokenizer",
          folder_.string(), tokenizer_.size(), vocabulary);
}

const ChatTemplates& ModelText::templates() const {
  if (!templates_) throw Error(Fault::bad_input, why_no_template_);
  return *templates_;
}

const ChatTemplate& ModelText::template_for(bool has_tools) const {
  require_chat();
  return has_tools ? *with_tools_ : *plain_;
}

const std::string& ModelText::chat_template(bool has_tools) const {
  return template_for(has_tools).source();
}

void ModelText::mark(std::string& text) const {
  std::string marked;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (std::string_view(text).substr(at).starts_with(kMark)) marked += kMark;
    const bool special = special_at(special_, std::string_view(text).substr(at)) > 0;
    const std::size_t first = special ? text::character_bytes(text[at]) : 1;
    marked.append(text, at, first);
    if (special) marked += kMark;
    at += first - 1;
  }
  text = std::move(marked);
}

void ModelText::mark_all(Json& value) const {
  if (value.is_string()) return mark(value.get_ref<std::string&>());
  if (value.is_object()) {
    // Names stand in a prompt as well.
    Json marked = Json::object();
    for (auto& [key, inner] : value.items()) {
      std::string name = key;
      mark(name);
      mark_all(inner);
      marked[name] = std::move(inner);
    }
    value = std::move(marked);
  } else if (value.is_array()) {
    for (Json& inner : value) mark_all(inner);
  }
}

std::string ModelText::chat_text(const Json& input) const {
  const bool has_tools = input.contains("tools") && !input["tools"].is_null();
  Json whole{{"add_generation_prompt", true}};
  whole.update(variables_);
  whole.update(input);
  return template_for(has_tools).render(whole);
}

ModelText::ChatPrompt ModelText::chat_prompt(Json input, bool goes_on) const {
  mark_all(input);
  if (goes_on) input["add_generation_prompt"] = false;
  std::string marked = chat_text(input);
  if (goes_on) end_with(input["messages"].back()["content"].get_ref<std::string&>(), marked);
  std::string prompt;
  std::vector<std::size_t> plain;  // where special tokens begin that are text
  for (std::size_t at = 0, character = 0; at < marked.size();) {
    if (!std::string_view(marked).substr(at).starts_with(kMark)) {
      if (!text::is_continuation(marked[at])) character = prompt.size();
      prompt += marked[at++];
      continue;
    }
    at += kMark.size();
    if (std::string_view(marked).substr(at).starts_with(kMark)) {
      prompt += kMark;
      at += kMark.size();
    } else {
      plain.push_back(character);
    }
  }
  ChatPrompt result{.ids = {},
                    .thinking = text::opens_thinking(prompt),
                    .thought = goes_on || text::closes_thinking(prompt)};
  add_ids(prompt, plain, result.ids);
  return result;
}

// What lies between two special tokens is read as a whole: as text if there is one in it that is
// text. White space belongs to the special token beside it, as some tokens take it.
void ModelText::add_ids(const std::string& prompt, const std::vector<std::size_t>& plain,
                        std::vector<std::int64_t>& ids) const {
  const auto add = [&](std::size_t begin, std::size_t end, bool parse_special) {
    const std::string_view part = std::string_view(prompt).substr(begin, end - begin);
    for (const text::TokenId id : tokenizer_.encode(part, {.parse_special = parse_special}))
      ids.push_back(id);
  };
  if (plain.empty()) return add(0, prompt.size(), true);
  std::size_t done = 0;  // up to here, all is read
  std::size_t from = 0;  // where the last special token has ended
  auto next = plain.begin();
  bool has_plain = false;
  const auto end_of_stretch = [&](std::size_t end) {
    if (!has_plain) return;
    const auto is_space = [](unsigned char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
    std::size_t begin = from, until = end;
    while (begin < until && is_space(static_cast<unsigned char>(prompt[begin]))) ++begin;
    while (until > begin && is_space(static_cast<unsigned char>(prompt[until - 1]))) --until;
    if (done < begin) add(done, begin, true);
    add(begin, until, false);
    done = until;
    has_plain = false;
  };
  for (std::size_t at = 0; at < prompt.size();) {
    const std::size_t bytes = special_at(special_, std::string_view(prompt).substr(at));
    while (next != plain.end() && *next < at) ++next;
    if (bytes == 0) {
      ++at;
    } else if (next != plain.end() && *next == at) {
      has_plain = true;
      ++at;
    } else {
      end_of_stretch(at);
      at += bytes;
      from = at;
    }
  }
  end_of_stretch(prompt.size());
  if (done < prompt.size()) add(done, prompt.size(), true);
}

std::vector<std::int64_t> ModelText::ids_of_text(std::string_view text, bool parse_special) const {
  const auto ids = tokenizer_.encode(text, {.add_special = true, .parse_special = parse_special});
  return {ids.begin(), ids.end()};
}

}  // namespace ac
