#include "text/text_ends.h"

#include <algorithm>
#include <string>

#include "base/json.h"
#include "text/text_files.h"
#include "text/tokenizer_fields.h"

namespace ac::text {
namespace {

constexpr JsonLimits kLimits{.bytes = 64u << 20};

// One id or a list of ids. Models have rows that no token uses: their ids are as good.
std::vector<TokenId> read_ids(const TokenizerFields& fields, std::string_view name) {
  const Json& value = fields.value(name);
  std::vector<TokenId> ids;
  for (const Json& id : value.is_array() ? value : Json::array({value})) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 ||
        id.get<std::int64_t>() >= kMostTokens)
      fields.refuse(name, "expected a token's id, or a list of them");
    ids.push_back(id.get<TokenId>());
  }
  return ids;
}

// "</s>", or {"content": "</s>", ...}
std::vector<TokenId> read_named(const TokenizerFields& fields, std::string_view name,
                                const TokenTable& tokens) {
  const std::string text =
      fields.value(name).is_object() ? fields.object(name).text("content") : fields.text(name);
  const std::optional<TokenId> id = tokens.find(text);
  if (!id) return {};  // a name that the model has no token for
  return {*id};
}

}  // namespace

TextEnds read_text_ends(const std::filesystem::path& folder, const TokenTable& tokens) {
  std::vector<TokenId> begin, end;
  const auto read = [&](const char* name, auto&& find) {
    const auto file = read_text_file(folder, name, kLimits.bytes);
    if (!file) return;
    const Json json = parse_json(file->text, file->origin, kLimits);
    find(TokenizerFields(json, file->origin + ":"));
  };
  for (const char* name : {"generation_config.json", "config.json"})
    read(name, [&](const TokenizerFields& fields) {
      if (begin.empty() && fields.has_value("bos_token_id"))
        begin = read_ids(fields, "bos_token_id");
      if (end.empty() && fields.has_value("eos_token_id")) end = read_ids(fields, "eos_token_id");
    });
  std::vector<TokenId> named;
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"})
    read(name, [&](const TokenizerFields& fields) {
      if (begin.empty() && fields.has_value("bos_token"))
        begin = read_named(fields, "bos_token", tokens);
      if (named.empty() && fields.has_value("eos_token"))
        named = read_named(fields, "eos_token", tokens);
    });
  for (const TokenId id : named)
    if (std::ranges::find(end, id) == end.end()) end.push_back(id);
  TextEnds ends;
  if (!begin.empty()) ends.begin = begin[0];
  ends.end = std::move(end);
  return ends;
}

}  // namespace ac::text
