#include "text/tokenizer.h"

#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "gguf/gguf_file.h"
#include "text/text_ends.h"
#include "text/text_files.h"
#include "text/tokenizer_added.h"
#include "text/tokenizer_file.h"
#include "text/unicode.h"

namespace ac::text {
namespace {

constexpr std::size_t kMostText = 1u << 30;

// Caches that no encode() uses at the moment.
class CachePool {
 public:
  std::unique_ptr<PieceCache> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<PieceCache>();
    std::unique_ptr<PieceCache> cache = std::move(free_.back());
    free_.pop_back();
    return cache;
  }
  void give_back(std::unique_ptr<PieceCache> cache) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(cache));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<PieceCache>> free_;
};

}  // namespace

struct Tokenizer::Impl {
  TokenizerParts parts;
  AddedTokens raw, normalized;
  std::vector<bool> special;  // by id
  std::optional<TokenId> begin;
  std::vector<TokenId> end;
  mutable CachePool caches;

  explicit Impl(TokenizerParts read)
      : parts(std::move(read)),
        raw(parts.added, false),
        normalized(parts.added, true),
        special(static_cast<std::size_t>(parts.tokens.end())) {
    for (const AddedToken& token : parts.added)
      special[static_cast<std::size_t>(token.id)] = token.special;
  }

  void encode_pieces(std::string text, bool at_start, std::vector<TokenId>& out,
                     PieceCache& cache) const {
    Pieces pieces{std::move(text), {}};
    if (!pieces.text.empty()) pieces.list = {{0, pieces.text.size(), at_start}};
    for (const auto& step : parts.pre_tokenizers.steps) step->apply(pieces);
    for (const PreToken& piece : pieces.list)
      parts.model->encode(
          std::string_view(pieces.text).substr(piece.begin, piece.end - piece.begin), out, cache);
  }

  void encode_part(std::string_view part, bool at_start, bool parse_special,
                   std::vector<TokenId>& out, PieceCache& cache) const {
    NormalizedText text{std::string(part), at_start};
    for (const auto& step : parts.normalizers) step->apply(text);
    const std::vector<AddedTokens::Part> split = normalized.split(text.text, parse_special);
    if (split.size() == 1 && !split[0].token)
      return encode_pieces(std::move(text.text), text.at_start, out, cache);
    for (const AddedTokens::Part& one : split)
      if (one.token)
        out.push_back(one.token->id);
      else
        encode_pieces(text.text.substr(one.begin, one.end - one.begin),
                      text.at_start && one.begin == 0, out, cache);
  }
};

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::parse(const std::string& text, const std::string& origin) {
  return Tokenizer(std::make_unique<Impl>(parse_tokenizer(text, origin)));
}

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  const bool folder = std::filesystem::is_directory(path) || is_gguf(path);
  const std::filesystem::path file =
      std::filesystem::is_directory(path) ? path / "tokenizer.json" : path;
  if (!std::filesystem::exists(file))
    bad_input(
        "{}: no such file. transformers writes it: "
        "AutoTokenizer.from_pretrained(MODEL).save_pretrained(FOLDER)",
        file.string());
  Tokenizer tokenizer = [&] {
    if (!is_gguf(path)) return Tokenizer(std::make_unique<Impl>(read_tokenizer(file)));
    const TextFile of_gguf = read_text_file(path, "tokenizer.json", kMostText).value();
    return parse(of_gguf.text, of_gguf.origin);
  }();
  if (folder) {
    TextEnds ends = read_text_ends(path, tokenizer.impl_->parts.tokens);
    tokenizer.impl_->begin = ends.begin;
    tokenizer.impl_->end = std::move(ends.end);
  }
  return tokenizer;
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  if (text.size() > kMostText)
    bad_input("a text of {} bytes is more than the limit of {}", text.size(), kMostText);
  std::string repaired;
  if (!is_utf8(text)) text = repaired = repaired_utf8(std::string(text));
  std::unique_ptr<PieceCache> cache = impl_->caches.take();
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 3);
  for (const AddedTokens::Part& part : impl_->raw.split(text, options.parse_special))
    if (part.token)
      ids.push_back(part.token->id);
    else
      impl_->encode_part(text.substr(part.begin, part.end - part.begin), part.begin == 0,
                         options.parse_special, ids, *cache);
  impl_->caches.give_back(std::move(cache));
  return put_around(impl_->parts.templates, std::move(ids), options.add_special);
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  Detokenizer stream(*this, skip_special);
  std::string text;
  for (const TokenId id : ids) text += stream.push(id);
  return text += stream.finish();
}

std::optional<TokenId> Tokenizer::id(std::string_view token) const {
  return impl_->parts.tokens.find(token);
}
bool Tokenizer::has(TokenId id) const { return impl_->parts.tokens.has(id); }
bool Tokenizer::is_special(TokenId id) const {
  return has(id) && impl_->special[static_cast<std::size_t>(id)];
}
std::string_view Tokenizer::token(TokenId id) const {
  AC_ASSERT(has(id));
  return impl_->parts.tokens.text(id);
}
std::size_t Tokenizer::size() const { return static_cast<std::size_t>(impl_->parts.tokens.end()); }
std::optional<std::string> Tokenizer::bytes(TokenId id) const {
  std::string bytes(token(id));
  bool parts = false;
  for (const Decoder& decoder : impl_->parts.decoders) {
    if (!decoder.bytes || !decoder.bytes(bytes, parts)) return {};
    parts = parts || decoder.fuses;
  }
  return bytes;
}
std::optional<TokenId> Tokenizer::begin_of_text() const { return impl_->begin; }
const std::vector<TokenId>& Tokenizer::end_of_text() const { return impl_->end; }

struct Detokenizer::State {
  const Tokenizer::Impl& tokenizer;
  bool skip_special;
  DecodeChain chain;
};

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special, bool in_middle)
    : state_(new State{*tokenizer.impl_, skip_special,
                       DecodeChain(tokenizer.impl_->parts.decoders, in_middle)}) {}
Detokenizer::Detokenizer(Detokenizer&&) noexcept = default;
Detokenizer& Detokenizer::operator=(Detokenizer&&) noexcept = default;
Detokenizer::~Detokenizer() = default;

bool Detokenizer::is_settled() const { return state_->chain.is_settled(); }

std::string Detokenizer::push(TokenId id) {
  const Tokenizer::Impl& tokenizer = state_->tokenizer;
  if (!tokenizer.parts.tokens.has(id))
    bad_input("{}: no token has the id {} (they are below {})", tokenizer.parts.origin, id,
              tokenizer.parts.tokens.end());
  std::string text;
  if (!state_->skip_special || !tokenizer.special[static_cast<std::size_t>(id)])
    state_->chain.push(tokenizer.parts.tokens.text(id), text);
  return text;
}

std::string Detokenizer::finish() {
  std::string text;
  state_->chain.finish(text);
  return text;
}

}  // namespace ac::text
