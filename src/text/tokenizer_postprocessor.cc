#include "text/tokenizer_postprocessor.h"

#include <string>

#include "base/error.h"
#include "base/text.h"

namespace ac::text {
namespace {

TokenId known_id(const Json& value, const TokenizerFields& fields, std::string_view name,
                 const TokenTable& tokens) {
  if (!value.is_number_integer() || value.get<std::int64_t>() < 0 ||
      value.get<std::int64_t>() >= kMostTokens || !tokens.has(value.get<TokenId>()))
    fields.refuse(name, fmt::format("{} is no token's id", value.dump().substr(0, 40)));
  return value.get<TokenId>();
}

// ["[SEP]", 102]
TokenId read_pair(const TokenizerFields& fields, std::string_view name, const TokenTable& tokens) {
  const Json& pair = fields.value(name);
  if (!pair.is_array() || pair.size() != 2) fields.refuse(name, "expected a token and its id");
  return known_id(pair[1], fields, name, tokens);
}

Template read_template(const TokenizerFields& fields, const TokenTable& tokens) {
  const TokenizerFields specials = fields.object("special_tokens");
  Template read;
  fields.each("single", [&](const TokenizerFields& piece) {
    if (piece.has_value("Sequence")) {
      if (piece.object("Sequence").text("id") != "A")
        piece.refuse("Sequence.id", "one text has no second one");
      read.emplace_back();
      return;
    }
    const std::string name = piece.object("SpecialToken").text("id");
    if (!specials.has_value(name))
      piece.refuse("SpecialToken.id", fmt::format("{} is none of special_tokens", quote(name)));
    const TokenizerFields special = specials.object(name);
    const Json& ids = special.value("ids");
    if (!ids.is_array()) special.refuse("ids", "expected a list");
    for (const Json& id : ids) read.emplace_back(known_id(id, special, "ids", tokens));
  });
  return read;
}

}  // namespace

void read_post_processors(const TokenizerFields& fields, const TokenTable& tokens,
                          std::vector<Template>& templates) {
  const std::string type = fields.text("type");
  if (type == "Sequence") {
    fields.each("processors",
                [&](const TokenizerFields& one) { read_post_processors(one, tokens, templates); });
  } else if (type == "TemplateProcessing") {
    templates.push_back(read_template(fields, tokens));
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    const TokenId first = read_pair(fields, "cls", tokens), last = read_pair(fields, "sep", tokens);
    templates.push_back({first, std::nullopt, last});
  } else if (type != "ByteLevel") {  // which moves offsets only
    fields.refuse_type("post-processor");
  }
}

std::vector<TokenId> put_around(const std::vector<Template>& templates, std::vector<TokenId> tokens,
                                bool special) {
  for (const Template& one : templates) {
    std::vector<TokenId> out;
    out.reserve(tokens.size() + one.size());
    for (const std::optional<TokenId>& token : one)
      if (!token)
        out.insert(out.end(), tokens.begin(), tokens.end());
      else if (special)
        out.push_back(*token);
    tokens = std::move(out);
  }
  return tokens;
}

}  // namespace ac::text
