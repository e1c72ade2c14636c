#include "text/tokenizer_file.h"

#include <simdjson.h>

#include <optional>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "text/unicode.h"

namespace ac::text {
namespace {

using simdjson::dom::element;
using simdjson::dom::element_type;

constexpr std::size_t kMostBytes = 256u << 20;
constexpr std::size_t kMostDepth = 64;
constexpr std::size_t kMostMerges = 64'000'000;

// A small part as a value of the JSON library that all else uses.
Json as_json(element value, const std::string& where) {
  switch (value.type()) {
    case element_type::OBJECT: {
      const simdjson::dom::object members = value;
      Json object = Json::object();
      for (const auto& [key, member] : members) {
        const std::string name(key);
        if (object.contains(name)) bad_input("{}: duplicate key {}", where, quote(name));
        object[name] = as_json(member, where);
      }
      return object;
    }
    case element_type::ARRAY: {
      const simdjson::dom::array members = value;
      Json array = Json::array();
      for (const element member : members) array.push_back(as_json(member, where));
      return array;
    }
    case element_type::STRING:
      return std::string(std::string_view(value));
    case element_type::INT64:
      return std::int64_t(value);
    case element_type::UINT64:
      return std::uint64_t(value);
    case element_type::DOUBLE:
      return double(value);
    case element_type::BOOL:
      return bool(value);
    case element_type::NULL_VALUE:
      return nullptr;
  }
  AC_UNREACHABLE();
}

std::string_view text_of(element value, const std::string& where) {
  std::string_view text;
  if (value.get_string().get(text)) bad_input("{}: expected a text", where);
  return text;
}

// {"token": id, ...}
void read_vocabulary(element value, const std::string& where, Vocabulary& vocabulary) {
  simdjson::dom::object object;
  if (value.get_object().get(object)) bad_input("{}: expected an object of tokens and ids", where);
  vocabulary.reserve(object.size());
  for (const auto& [text, member] : object) {
    std::int64_t id = -1;
    if (member.get_int64().get(id) || id < 0 || id >= kMostTokens)
      bad_input("{}: the id of {} is not a whole number from 0 to {}", where, quote(text),
                kMostTokens - 1);
    switch (vocabulary.add(text, static_cast<TokenId>(id))) {
      case Vocabulary::Added::yes:
        break;
      case Vocabulary::Added::text_known:
        bad_input("{}: {} is there twice", where, quote(text));
      case Vocabulary::Added::id_known:
        bad_input("{}: {} and {} have the same id, {}", where,
                  quote(vocabulary.text(static_cast<TokenId>(id))), quote(text), id);
    }
  }
}

// [["token", score], ...]
std::vector<double> read_scores(element value, const std::string& where, Vocabulary& vocabulary) {
  simdjson::dom::array array;
  if (value.get_array().get(array)) bad_input("{}: expected a list of tokens and scores", where);
  std::vector<double> scores;
  for (const element member : array) {
    const auto id = static_cast<TokenId>(scores.size());
    const std::string here = fmt::format("{}[{}]", where, id);
    simdjson::dom::array pair;
    double score = 0;
    if (id == kMostTokens) bad_input("{}: more than {} tokens", where, kMostTokens);
    if (member.get_array().get(pair) || pair.size() != 2 || pair.at(1).get_double().get(score))
      bad_input("{}: expected a token and its score", here);
    const std::string_view text = text_of(pair.at(0), here);
    if (vocabulary.add(text, id) != Vocabulary::Added::yes)
      bad_input("{}: {} is there twice", here, quote(text));
    scores.push_back(score);
  }
  return scores;
}

// "left right" or ["left", "right"]
std::vector<Merge> read_merges(element value, const std::string& where) {
  simdjson::dom::array array;
  if (value.get_array().get(array)) bad_input("{}: expected a list", where);
  std::vector<Merge> merges;
  for (const element member : array) {
    const auto here = [&] { return fmt::format("{}[{}]", where, merges.size()); };
    std::string_view text;
    simdjson::dom::array pair;
    if (merges.size() == kMostMerges) bad_input("{}: more than {} merges", where, kMostMerges);
    if (!member.get_string().get(text)) {
      if (text.starts_with("#version")) continue;
      const std::size_t space = text.find(' ');
      if (space == text.npos || text.find(' ', space + 1) != text.npos)
        bad_input("{}: expected two tokens and a space between them, found {}", here(),
                  quote(text));
      merges.push_back({text.substr(0, space), text.substr(space + 1)});
    } else if (!member.get_array().get(pair) && pair.size() == 2) {
      merges.push_back({text_of(pair.at(0), here()), text_of(pair.at(1), here())});
    } else {
      bad_input("{}: expected two tokens", here());
    }
  }
  return merges;
}

class Reader {
 public:
  Reader(const std::string& text, const std::string& origin) : where_(origin + ":") {
    parts_.origin = origin;
    if (text.size() > kMostBytes)
      bad_input("{}: {} bytes, more than the limit of {}", origin, text.size(), kMostBytes);
    element root;
    simdjson::error_code error = parser_.allocate(text.size(), kMostDepth);
    if (!error) error = parser_.parse(text).get(root);
    if (error == simdjson::MEMALLOC) throw std::bad_alloc();
    if (error) {
      parse_json(text, origin);  // which says where it is wrong
      bad_input("{}: not valid JSON: {}", origin, simdjson::error_message(error));
    }
    simdjson::dom::object object;
    if (root.get_object().get(object)) bad_input("{}: expected an object", origin);
    for (const auto& [key, member] : object) {
      const std::string name(key);
      if (name == "model") {
        if (model_.is_object()) bad_input("{}: duplicate key {}", origin, quote(name));
        read_model_members(member);
      } else {
        if (rest_.contains(name)) bad_input("{}: duplicate key {}", origin, quote(name));
        rest_[name] = as_json(member, origin);
      }
    }
  }

  TokenizerParts read() {
    const TokenizerFields fields(rest_, where_);
    if (fields.text("version", "1.0") != "1.0") fields.refuse("version", "expected 1.0");
    if (fields.has_value("normalizer"))
      read_normalizers(fields.object("normalizer"), parts_.normalizers);
    if (fields.has_value("pre_tokenizer"))
      read_pre_tokenizers(fields.object("pre_tokenizer"), parts_.pre_tokenizers);
    if (!model_.is_object()) fields.refuse("model", "missing");
    read_model(TokenizerFields(model_, fields.where("model")));
    read_added(fields);
    if (fields.has_value("post_processor"))
      read_post_processors(fields.object("post_processor"), parts_.tokens, parts_.templates);
    if (fields.has_value("decoder"))
      read_decoders(fields.object("decoder"), parts_.decoders);
    else
      parts_.decoders.push_back(spaces_between());
    return std::move(parts_);
  }

 private:
  void read_model_members(element value) {
    simdjson::dom::object object;
    if (value.get_object().get(object)) bad_input("{} model: expected an object", where_);
    model_ = Json::object();
    for (const auto& [key, member] : object) {
      const std::string name(key);
      auto& large = name == "vocab" ? vocabulary_ : merges_;
      if (large ? name == "vocab" || name == "merges" : model_.contains(name))
        bad_input("{} model: duplicate key {}", where_, quote(name));
      if (name == "vocab" || name == "merges")
        large = member;
      else
        model_[name] = as_json(member, where_);
    }
  }

  // Old files do not say the type.
  std::string model_type(const TokenizerFields& fields) const {
    if (fields.has_value("type")) return fields.text("type");
    if (merges_) return "BPE";
    if (vocabulary_->is_array()) return "Unigram";
    return fields.has_value("max_input_chars_per_word") ? "WordPiece" : "WordLevel";
  }

  void read_model(const TokenizerFields& fields) {
    if (!vocabulary_) fields.refuse("vocab", "missing");
    const std::string type = model_type(fields), where = fields.where("vocab");
    Vocabulary& tokens = *parts_.model_tokens;
    if (type == "BPE") {
      read_vocabulary(*vocabulary_, where, tokens);
      parts_.model = read_bpe(fields, tokens);
    } else if (type == "Unigram") {
      std::vector<double> scores = read_scores(*vocabulary_, where, tokens);
      UnigramOptions options;
      if (fields.has_value("unk_id"))
        options.unknown = static_cast<TokenId>(
            fields.integer("unk_id", 0, static_cast<std::int64_t>(scores.size()) - 1));
      options.byte_fallback = fields.boolean("byte_fallback", false);
      parts_.model = make_unigram(tokens, std::move(scores), options, fields.where());
    } else if (type == "WordPiece") {
      read_vocabulary(*vocabulary_, where, tokens);
      const WordPieceOptions options{
          fields.text("unk_token"), fields.text("continuing_subword_prefix"),
          static_cast<std::size_t>(fields.integer("max_input_chars_per_word", 0, INT32_MAX))};
      parts_.model = make_word_piece(tokens, options, fields.where());
    } else if (type == "WordLevel") {
      read_vocabulary(*vocabulary_, where, tokens);
      parts_.model = make_word_level(tokens, fields.text("unk_token"), fields.where());
    } else {
      fields.refuse_type("model");
    }
  }

  std::unique_ptr<const TokenModel> read_bpe(const TokenizerFields& fields,
                                             const Vocabulary& tokens) {
    if (!merges_) fields.refuse("merges", "missing");
    if (fields.has_value("dropout") && fields.value("dropout") != 0)
      fields.refuse("dropout", "tokens at random are for training: make it null");
    BpeOptions options;
    if (fields.has_value("unk_token")) options.unknown = fields.text("unk_token");
    options.prefix = fields.text("continuing_subword_prefix", "");
    options.suffix = fields.text("end_of_word_suffix", "");
    options.fuse_unknown = fields.boolean("fuse_unk", false);
    options.byte_fallback = fields.boolean("byte_fallback", false);
    options.ignore_merges = fields.boolean("ignore_merges", false);
    if (parts_.pre_tokenizers.ends_in_bytes && options.prefix.empty() && options.suffix.empty()) {
      parts_.pre_tokenizers.steps.pop_back();
      options.bytes = true;
    }
    return make_bpe(tokens, read_merges(*merges_, fields.where("merges")), options, fields.where());
  }

  // Added tokens take the model's id where it has their text, or the next free one.
  void read_added(const TokenizerFields& fields) {
    const Vocabulary& model = *parts_.model_tokens;
    Vocabulary known;
    std::vector<std::string> texts;  // their own
    auto next = static_cast<std::int64_t>(model.size());
    if (fields.has_value("added_tokens"))
      fields.each("added_tokens", [&](const TokenizerFields& one) {
        AddedToken token{.id = static_cast<TokenId>(one.integer("id", 0, kMostTokens - 1)),
                         .text = one.text("content"),
                         .single_word = one.boolean("single_word", false),
                         .lstrip = one.boolean("lstrip", false),
                         .rstrip = one.boolean("rstrip", false),
                         .normalized = one.boolean("normalized", true),
                         .special = one.boolean("special", false)};
        if (token.text.empty()) return;
        const std::optional<TokenId> of_model = model.find(token.text);
        const std::int64_t due = of_model ? *of_model : next;
        if (token.id != due)
          one.refuse("id", fmt::format("{} is {} for {}", token.id,
                                       of_model ? "not the vocabulary's" : "not the next free one",
                                       quote(token.text)) +
                               fmt::format(", which is {}", due));
        if (known.add(token.text, token.id) != Vocabulary::Added::yes)
          one.refuse("content", fmt::format("{} is there twice", quote(token.text)));
        if (!of_model) ++next;
        texts.push_back(token.text);
        if (token.normalized) token.text = normalized(std::move(token.text));
        parts_.added.push_back(std::move(token));
      });
    parts_.tokens = TokenTable(model, parts_.added, texts);
  }

  std::string normalized(std::string text) const {
    NormalizedText one{std::move(text), true};
    for (const auto& step : parts_.normalizers) step->apply(one);
    return std::move(one.text);
  }

  std::string where_;
  simdjson::dom::parser parser_;  // owns all texts
  Json rest_ = Json::object(), model_;
  std::optional<element> vocabulary_, merges_;
  TokenizerParts parts_;
};

}  // namespace

TokenizerParts parse_tokenizer(const std::string& text, const std::string& origin) {
  return Reader(text, origin).read();
}

TokenizerParts read_tokenizer(const std::filesystem::path& file) {
  return parse_tokenizer(read_file(file, kMostBytes), file.string());
}

}  // namespace ac::text
