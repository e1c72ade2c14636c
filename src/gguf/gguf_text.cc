#include "gguf/gguf_text.h"

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>
#include <unordered_map>

#include "base/error.h"
#include "base/text.h"

namespace ac {
namespace {

constexpr const char *kModel = "tokenizer.ggml.model", *kPre = "tokenizer.ggml.pre",
                     *kTokens = "tokenizer.ggml.tokens", *kTypes = "tokenizer.ggml.token_type",
                     *kScores = "tokenizer.ggml.scores", *kMerges = "tokenizer.ggml.merges",
                     *kTemplate = "tokenizer.chat_template";

enum class TokenKind : std::uint8_t { normal = 1, unknown, control, user, unused, byte };

// How a text is cut before bytes are merged: each pattern cuts what the one before it left.
struct Cut {
  std::string_view name;  // of tokenizer.ggml.pre
  std::vector<const char*> patterns;
  bool whole_first = false;  // a piece that is a token is that token
  bool composed = false;     // the text is brought into NFC first
  bool begins = false;       // with the token that begins a text, where the file does not say
};

constexpr const char* kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

const std::vector<Cut>& cuts() {
  static const std::vector<Cut> known = {
      {.name = "llama-bpe", .patterns = {kLlama3}, .whole_first = true, .begins = true},
      {.name = "llama3", .patterns = {kLlama3}, .whole_first = true, .begins = true},
      {.name = "llama-v3", .patterns = {kLlama3}, .whole_first = true, .begins = true},
      {.name = "smaug-bpe", .patterns = {kLlama3}},
      {.name = "qwen2", .patterns = {kQwen2}, .composed = true},
      {.name = "deepseek-r1-qwen", .patterns = {kQwen2}},
      {.name = "tekken", .patterns = {kTekken}, .whole_first = true, .begins = true},
      {.name = "smollm", .patterns = {R"(\p{N})", kGpt2}},
      {.name = "gpt-2", .patterns = {kGpt2}},
      // llama.cpp's own, of files whose converter did not know the tokenizer.
      {.name = "default",
       .patterns = {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
  };
  return known;
}

class Tokens {
 public:
  explicit Tokens(const GgufFile& file) : file_(file) {
    const auto texts = file.texts(kTokens);
    if (!texts || texts->empty()) file.fail(kTokens, "is missing: the file has no tokenizer");
    texts_ = *texts;
    kinds_.assign(texts_.size(), TokenKind::normal);
    if (const auto types = file.numbers(kTypes)) {
      if (types->size() != texts_.size()) wrong_size(kTypes, types->size());
      for (std::size_t id = 0; id < texts_.size(); ++id) {
        const double type = (*types)[id];
        if (type < 1 || type > 6 || type != static_cast<int>(type))
          file.fail(kTypes, fmt::format("has the unknown type {} at {}", type, id));
        kinds_[id] = static_cast<TokenKind>(type);
      }
    }
  }

  std::size_t size() const { return texts_.size(); }
  std::string_view text(std::size_t id) const { return texts_[id]; }
  TokenKind kind(std::size_t id) const { return kinds_[id]; }
  [[noreturn]] void wrong_size(const char* key, std::size_t size) const {
    file_.fail(key, fmt::format("has {} values for {} tokens", size, texts_.size()));
  }
  // In JSON.
  std::string quoted(std::string_view text, const char* key) const {
    try {
      return Json(text).dump();
    } catch (const Json::exception&) {
      file_.fail(key, fmt::format("has {}, which is not UTF-8", quote(text)));
    }
  }
  // What a key like tokenizer.ggml.bos_token_id names; nothing if it is absent.
  std::optional<std::size_t> named(const char* key) const {
    const auto id = file_.integer(key);
    if (!id) return std::nullopt;
    if (*id < 0 || std::cmp_greater_equal(*id, size()))
      file_.fail(key, fmt::format("is {}, and there are {} tokens", *id, size()));
    return static_cast<std::size_t>(*id);
  }

 private:
  const GgufFile& file_;
  std::vector<std::string_view> texts_;
  std::vector<TokenKind> kinds_;
};

class TokenizerWriter {
 public:
  explicit TokenizerWriter(const GgufFile& file) : file_(file), tokens_(file) {}

  std::string write() const {
    const auto model = file_.text(kModel);
    if (!model) file_.fail(kModel, "is missing");
    if (*model == "gpt2") return of_bytes();
    if (*model == "llama") return of_pieces();
    file_.fail(kModel, fmt::format("is {}, and only gpt2 (byte-level BPE) and llama (SentencePiece "
                                   "with scores) are supported",
                                   quote(*model)));
  }

 private:
  std::string of_bytes() const {
    const auto name = file_.text(kPre);
    if (!name)
      file_.fail(kPre,
                 "is missing, so that nobody knows how texts are cut: convert the model again");
    const auto cut = std::ranges::find(cuts(), *name, &Cut::name);
    if (cut == cuts().end()) {
      std::string known;
      for (const Cut& one : cuts()) known += (known.empty() ? "" : ", ") + std::string(one.name);
      file_.fail(kPre, fmt::format("is {}, and only these are known: {}", quote(*name), known));
    }
    const auto merges = file_.texts(kMerges);
    if (!merges) file_.fail(kMerges, "is missing");
    std::string list;
    for (const std::string_view merge : *merges)
      list += (list.empty() ? "" : ",") + tokens_.quoted(merge, kMerges);
    Json steps = Json::array();
    for (const char* const pattern : cut->patterns)
      steps.push_back({{"type", "Split"},
                       {"pattern", {{"Regex", pattern}}},
                       {"behavior", "Isolated"},
                       {"invert", false}});
    const Json bytes = {{"type", "ByteLevel"},
                        {"add_prefix_space", false},
                        {"trim_offsets", true},
                        {"use_regex", false}};
    steps.push_back(bytes);
    Json rest = {{"normalizer", cut->composed ? Json{{"type", "NFC"}} : Json()},
                 {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", steps}}},
                 {"decoder", bytes}};
    const Json model = {{"type", "BPE"}, {"ignore_merges", cut->whole_first}};
    return join(std::move(rest), model, list, cut->begins);
  }

  // SentencePiece's BPE has a score for each token and no rules. Two neighbours may merge if they
  // make a token: that of the highest score first.
  std::string of_pieces() const {
    for (const char* const key :
         {"tokenizer.ggml.remove_extra_whitespaces", "tokenizer.ggml.precompiled_charsmap"})
      if (file_.has(key) &&
          !(file_.metadata().at(key).type == GgufType::boolean && file_.boolean(key) == false))
        file_.fail(key, "is set, and texts are not changed that way here");
    const bool prefix = file_.boolean("tokenizer.ggml.add_space_prefix").value_or(true);
    const Json spaces = {
        {"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}};
    Json before = Json::array(), after = Json::array();
    if (prefix) before.push_back({{"type", "Prepend"}, {"prepend", "\u2581"}});
    before.push_back(spaces);
    after.push_back({{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}});
    after.push_back({{"type", "ByteFallback"}});
    after.push_back({{"type", "Fuse"}});
    if (prefix) after.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    Json rest = {{"normalizer", {{"type", "Sequence"}, {"normalizers", before}}},
                 {"decoder", {{"type", "Sequence"}, {"decoders", after}}}};
    Json model = {{"type", "BPE"}, {"fuse_unk", true}, {"byte_fallback", true}};
    if (const auto unknown = tokens_.named("tokenizer.ggml.unknown_token_id"))
      model["unk_token"] = std::string(tokens_.text(*unknown));
    return join(std::move(rest), model, merges_by_score(), true);
  }

  std::string merges_by_score() const {
    const auto scores = file_.numbers(kScores);
    if (!scores) file_.fail(kScores, "is missing");
    if (scores->size() != tokens_.size()) tokens_.wrong_size(kScores, scores->size());
    std::unordered_map<std::string_view, std::size_t> pieces;
    for (std::size_t id = 0; id < tokens_.size(); ++id)
      if (tokens_.kind(id) == TokenKind::normal || tokens_.kind(id) == TokenKind::user)
        pieces.emplace(tokens_.text(id), id);
    struct Rule {
      double score;
      std::size_t left, right;  // tokens
    };
    std::vector<Rule> rules;
    for (const auto& [text, id] : pieces)
      for (std::size_t at = 1; at < std::min(text.size(), kLongestPiece); ++at) {
        const auto left = pieces.find(text.substr(0, at)), right = pieces.find(text.substr(at));
        if (left != pieces.end() && right != pieces.end())
          rules.push_back({(*scores)[id], left->second, right->second});
      }
    std::ranges::sort(rules, [](const Rule& a, const Rule& b) {
      return std::tie(b.score, a.left, a.right) < std::tie(a.score, b.left, b.right);
    });
    std::string list;
    for (const Rule& rule : rules)
      list += fmt::format("{}[{},{}]", list.empty() ? "" : ",",
                          tokens_.quoted(tokens_.text(rule.left), kTokens),
                          tokens_.quoted(tokens_.text(rule.right), kTokens));
    return list;
  }

  // Which tokens are matched in texts before anything is merged.
  Json added() const {
    Json list = Json::array();
    for (std::size_t id = 0; id < tokens_.size(); ++id) {
      const TokenKind kind = tokens_.kind(id);
      const bool special = kind == TokenKind::control || kind == TokenKind::unknown;
      if (special || kind == TokenKind::user)
        list.push_back({{"id", id},
                        {"content", std::string(tokens_.text(id))},
                        {"single_word", false},
                        {"lstrip", false},
                        {"rstrip", false},
                        {"normalized", false},
                        {"special", special}});
    }
    return list;
  }

  Json around(bool begins) const {
    Json single = Json::array(), special = Json::object();
    const auto add = [&](const char* flag, const char* key, bool unsaid) {
      if (!file_.boolean(flag).value_or(unsaid)) return;
      const auto id = tokens_.named(key);
      if (!id) {
        if (file_.has(flag)) file_.fail(key, fmt::format("is missing, and {} is true", flag));
        return;
      }
      const std::string text(tokens_.text(*id));
      single.push_back({{"SpecialToken", {{"id", text}, {"type_id", 0}}}});
      special[text] = {{"id", text}, {"ids", {*id}}, {"tokens", {text}}};
    };
    add("tokenizer.ggml.add_bos_token", "tokenizer.ggml.bos_token_id", begins);
    single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
    add("tokenizer.ggml.add_eos_token", "tokenizer.ggml.eos_token_id", false);
    if (special.empty()) return {};
    Json pair = single;
    pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
    return {{"type", "TemplateProcessing"},
            {"single", single},
            {"pair", pair},
            {"special_tokens", special}};
  }

  std::string join(Json rest, Json model, const std::string& merges, bool begins) const {
    std::string vocabulary;
    for (std::size_t id = 0; id < tokens_.size(); ++id)
      if (tokens_.kind(id) != TokenKind::unused)
        vocabulary += fmt::format("{}{}:{}", vocabulary.empty() ? "" : ",",
                                  tokens_.quoted(tokens_.text(id), kTokens), id);
    rest["version"] = "1.0";
    rest["added_tokens"] = added();
    rest["post_processor"] = around(begins);
    std::string text = rest.dump(), of_model = model.dump();
    text.back() = ',';
    of_model.back() = ',';
    return text + "\"model\":" + of_model + "\"vocab\":{" + vocabulary + "},\"merges\":[" + merges +
           "]}}";
  }

  static constexpr std::size_t kLongestPiece = 1000;  // that is merged

  const GgufFile& file_;
  const Tokens tokens_;
};

}  // namespace

std::string gguf_tokenizer(const GgufFile& file) {
  try {
    return TokenizerWriter(file).write();
  } catch (const Json::exception&) {
    file.fail(kTokens, "has a token that is not UTF-8");
  }
}

Json gguf_tokenizer_config(const GgufFile& file) {
  Json config = Json::object();
  const Tokens tokens(file);
  for (const auto& [name, key] : std::initializer_list<std::pair<const char*, const char*>>{
           {"bos_token", "tokenizer.ggml.bos_token_id"},
           {"eos_token", "tokenizer.ggml.eos_token_id"},
           {"unk_token", "tokenizer.ggml.unknown_token_id"},
           {"pad_token", "tokenizer.ggml.padding_token_id"}})
    if (const auto id = tokens.named(key)) config[name] = std::string(tokens.text(*id));
  Json templates = Json::array();
  if (const auto text = file.text(kTemplate))
    templates.push_back({{"name", "default"}, {"template", *text}});
  const std::string prefix = std::string(kTemplate) + ".";
  for (const auto& [key, value] : file.metadata())
    if (key.starts_with(prefix))
      templates.push_back(
          {{"name", key.substr(prefix.size())}, {"template", file.text(key).value()}});
  if (!templates.empty()) config["chat_template"] = templates;
  return config;
}

std::vector<std::int64_t> gguf_end_tokens(const GgufFile& file) {
  // Control tokens that end a turn in the formats of chats that models know; llama.cpp ends there,
  // too.
  constexpr std::array kEnds = {"<|eot_id|>", "<|eom_id|>",    "<|im_end|>",
                                "<|end|>",    "<end_of_turn>", "<|endoftext|>"};
  const Tokens tokens(file);
  std::vector<std::int64_t> ends;
  const auto add = [&](std::size_t id) {
    const auto end = static_cast<std::int64_t>(id);
    if (std::ranges::find(ends, end) == ends.end()) ends.push_back(end);
  };
  for (const char* const key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                "tokenizer.ggml.eom_token_id"})
    if (const auto id = tokens.named(key)) add(*id);
  for (std::size_t id = 0; id < tokens.size(); ++id)
    if (tokens.kind(id) == TokenKind::control &&
        std::ranges::find(kEnds, tokens.text(id)) != kEnds.end())
      add(id);
  return ends;
}

}  // namespace ac
