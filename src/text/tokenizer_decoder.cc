#include "text/tokenizer_decoder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "text/byte_characters.h"
#include "text/tokenizer_pattern.h"
#include "text/unicode.h"

namespace ac::text {
namespace {

void replace_all(std::string& text, std::string_view what, std::string_view with) {
  for (std::size_t at = 0; !what.empty() && (at = text.find(what, at)) != std::string::npos;
       at += with.size())
    text.replace(at, what.size(), with);
}

// What English puts no space before.
void clean_up(std::string& text) {
  static constexpr std::pair<std::string_view, std::string_view> kChanges[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [what, with] : kChanges) replace_all(text, what, with);
}

// A step that changes each token by itself: change(token, is it the first one?).
template <class Change>
class EachToken : public DecodeStep {
 public:
  explicit EachToken(Change change) : change_(std::move(change)) {}
  void push(std::string_view token, const Give& give) override {
    std::string text(token);
    change_(text, std::exchange(first_, false));
    give(text);
  }
  bool is_settled() const override { return !first_; }

 private:
  Change change_;
  bool first_ = true;
};

// Gives another step its one token when all parts are there.
class Whole : public DecodeStep {
 public:
  explicit Whole(std::unique_ptr<DecodeStep> step) : step_(std::move(step)) {}
  void push(std::string_view part, const Give&) override { token_ += part, any_ = true; }
  void finish(const Give& give) override {
    if (any_) step_->push(token_, give);
    step_->finish(give);
  }
  bool is_settled() const override { return false; }

 private:
  std::unique_ptr<DecodeStep> step_;
  std::string token_;
  bool any_ = false;
};

template <class Make>
Decoder whole_tokens(Make make) {
  return {[make](bool parts) -> std::unique_ptr<DecodeStep> {
    if (parts) return std::make_unique<Whole>(make());
    return make();
  }};
}
template <class Change>
Decoder each_token(Change change) {
  return whole_tokens([change] { return std::make_unique<EachToken<Change>>(change); });
}

class Fuse : public DecodeStep {
 public:
  void push(std::string_view token, const Give& give) override { give(token); }
  bool is_settled() const override { return true; }
};

// Bytes of the byte-level alphabet; a token with other characters stands for itself.
class ByteLevel : public DecodeStep {
 public:
  void push(std::string_view token, const Give& give) override {
    std::string out;
    const std::optional<std::string> bytes = from_byte_characters(token);
    const std::string_view taken = bytes ? *bytes : token;
    repair_.push(taken, out);
    taken_ += taken.size();
    if (!out.empty()) give(out);
  }
  void finish(const Give& give) override {
    std::string out;
    repair_.finish(out);
    if (!out.empty()) give(out);
  }
  // A character that has begun takes three more bytes at most.
  bool is_settled() const override { return taken_ >= 3; }

 private:
  Utf8Repair repair_;
  std::size_t taken_ = 0;  // bytes
};

std::optional<char> byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return {};
  int byte = 0;
  for (const char c : token.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return {};
    byte = 16 * byte + digit;
  }
  return static_cast<char>(byte);
}

// Runs of <0xE2>: a text if they are UTF-8, or as many U+FFFD.
class ByteFallback : public DecodeStep {
 public:
  void push(std::string_view token, const Give& give) override {
    if (const std::optional<char> byte = byte_of(token)) {
      run_ += *byte;
      return;
    }
    finish(give);
    give(token);
    settled_ = true;
  }
  void finish(const Give& give) override {
    if (run_.empty()) return;
    if (is_utf8(run_))
      give(run_);
    else
      for (std::size_t i = 0; i < run_.size(); ++i) give(kReplacementCharacter);
    run_.clear();
  }
  bool is_settled() const override { return settled_; }

 private:
  std::string run_;
  bool settled_ = false;  // there was a token that is no byte: it ends every run
};

struct Strip {
  std::string content;  // one character
  std::int64_t start, stop;

  void operator()(std::string& token, bool) const {
    std::string_view rest = token;
    for (std::int64_t i = 0; i < start && rest.starts_with(content); ++i)
      rest.remove_prefix(content.size());
    for (std::int64_t i = 0; i < stop && rest.ends_with(content); ++i)
      rest.remove_suffix(content.size());
    token = std::string(rest);
  }
};

// The same of a token that comes in parts, which may end within a character's run.
class StripParts : public DecodeStep {
 public:
  explicit StripParts(Strip strip) : strip_(std::move(strip)) {}
  void push(std::string_view part, const Give& give) override {
    for (; at_start_ < strip_.start && part.starts_with(strip_.content); ++at_start_)
      part.remove_prefix(strip_.content.size());
    if (part.empty()) return;
    settled_ |= part.find_first_not_of(strip_.content) != std::string_view::npos;
    at_start_ = strip_.start;
    if (strip_.stop == 0) return give(part);
    held_ += part;
    std::int64_t at_end = 0;
    std::string_view sure = held_;
    for (; at_end < strip_.stop && sure.ends_with(strip_.content); ++at_end)
      sure.remove_suffix(strip_.content.size());
    if (!sure.empty()) give(sure);
    held_.erase(0, sure.size());
  }
  bool is_settled() const override { return settled_; }

 private:
  Strip strip_;
  std::int64_t at_start_ = 0;
  std::string held_;      // may be at the end
  bool settled_ = false;  // there was a byte that is none of what is stripped
};

// Replaces a text in a token that comes in parts, and so may come in parts itself.
class ReplaceParts : public DecodeStep {
 public:
  ReplaceParts(std::string what, std::string with)
      : what_(std::move(what)), with_(std::move(with)) {}
  void push(std::string_view part, const Give& give) override {
    settled_ |= part.find_first_not_of(what_) != std::string_view::npos;
    held_ += part;
    std::string out;
    std::size_t at = 0;
    for (std::size_t found; (found = held_.find(what_, at)) != std::string::npos;
         at = found + what_.size())
      out.append(held_, at, found - at).append(with_);
    // The longest end that may go on to be another one.
    std::size_t kept = std::min(held_.size() - at, what_.size() - 1);
    while (kept > 0 && !what_.starts_with(std::string_view(held_).substr(held_.size() - kept)))
      --kept;
    out.append(held_, at, held_.size() - kept - at);
    held_.erase(0, held_.size() - kept);
    if (!out.empty()) give(out);
  }
  void finish(const Give& give) override {
    if (!held_.empty()) give(held_);
    held_.clear();
  }
  bool is_settled() const override { return settled_; }

 private:
  std::string what_, with_, held_;
  bool settled_ = false;  // there was a byte that is none of what is replaced
};

// The suffix ends a word: a space, but not after the last one.
class BpeDecoder : public DecodeStep {
 public:
  explicit BpeDecoder(std::string suffix) : suffix_(std::move(suffix)) {}
  void push(std::string_view token, const Give& give) override {
    put(" ", give);
    held_ = token;
  }
  void finish(const Give& give) override { put("", give); }
  bool is_settled() const override { return held_.has_value(); }

 private:
  void put(std::string_view end, const Give& give) {
    if (!held_) return;
    replace_all(*held_, suffix_, end);
    give(*held_);
    held_.reset();
  }
  std::string suffix_;
  std::optional<std::string> held_;
};

// Keeps one of equal tokens in a row.
class Ctc : public DecodeStep {
 public:
  Ctc(std::string pad, std::string delimiter, bool cleanup)
      : pad_(std::move(pad)), delimiter_(std::move(delimiter)), cleanup_(cleanup) {}
  void push(std::string_view token, const Give& give) override {
    if (before_ == token) return;
    before_ = token;
    std::string text(token);
    replace_all(text, pad_, "");
    if (cleanup_) {
      clean_up(text);
      replace_all(text, delimiter_, " ");
    }
    if (!text.empty()) give(text);
  }
  bool is_settled() const override { return before_.has_value(); }

 private:
  std::string pad_, delimiter_;
  bool cleanup_;
  std::optional<std::string> before_;
};

Decoder read_replace(const TokenizerFields& fields) {
  const Pattern pattern(fields, "pattern");
  const std::string content = fields.text("content");
  const Decoder one = each_token([=](std::string& token, bool) {
    token = token.empty() ? token : pattern.replaced(token, content);
  });
  Decoder decoder{[=](bool parts) -> std::unique_ptr<DecodeStep> {
    if (parts && !pattern.literal().empty())
      return std::make_unique<ReplaceParts>(pattern.literal(), content);
    return one.make(parts);
  }};
  // Several characters may be in two tokens.
  decoder.bytes = [=](std::string& token, bool parts) {
    if (parts && pattern.literal().size() != 1) return false;
    token = token.empty() ? token : pattern.replaced(token, content);
    return true;
  };
  return decoder;
}

Decoder read_strip(const TokenizerFields& fields) {
  Strip strip{"", fields.integer("start", 0, INT32_MAX), fields.integer("stop", 0, INT32_MAX)};
  append_utf8(strip.content, fields.character("content"));
  return {.make = [strip](bool parts) -> std::unique_ptr<DecodeStep> {
            if (parts) return std::make_unique<StripParts>(strip);
            return std::make_unique<EachToken<Strip>>(strip);
          },
          .fuses = false,
          .bytes =
              [strip](std::string& token, bool parts) {
                // The end of a text strips what was in its middle before.
                if (parts) return strip.stop == 0;
                strip(token, false);
                return true;
              }};
}

Decoder read_metaspace(const TokenizerFields& fields) {
  std::string replacement;
  append_utf8(replacement, fields.character("replacement"));
  const bool prepended = fields.text("prepend_scheme", "always") != "never" &&
                         fields.boolean("add_prefix_space", true);
  const auto change = [=](std::string& token, bool first) {
    replace_all(token, replacement, first && prepended ? "" : " ");
  };
  Decoder decoder = each_token(change);
  decoder.bytes = [change](std::string& token, bool parts) {
    change(token, false);
    return !parts;
  };
  return decoder;
}

Decoder read_word_piece(const TokenizerFields& fields) {
  return each_token([prefix = fields.text("prefix"), cleanup = fields.boolean("cleanup")](
                        std::string& token, bool first) {
    if (!first) {
      if (token.starts_with(prefix))
        token.erase(0, prefix.size());
      else
        token.insert(0, " ");
    }
    if (cleanup) clean_up(token);
  });
}

}  // namespace

void read_decoders(const TokenizerFields& fields, Decoders& decoders) {
  const std::string type = fields.text("type");
  if (type == "Sequence") {
    fields.each("decoders", [&](const TokenizerFields& one) { read_decoders(one, decoders); });
  } else if (type == "ByteLevel") {
    decoders.push_back(whole_tokens([] { return std::make_unique<ByteLevel>(); }));
    decoders.back().fuses = true;
    decoders.back().bytes = [](std::string& token, bool parts) {
      token = from_byte_characters(token).value_or(token);
      return !parts;
    };
  } else if (type == "ByteFallback") {
    decoders.push_back(whole_tokens([] { return std::make_unique<ByteFallback>(); }));
    decoders.back().bytes = [](std::string& token, bool parts) {
      if (const std::optional<char> byte = byte_of(token)) token = std::string(1, *byte);
      return !parts;
    };
  } else if (type == "Fuse") {
    decoders.push_back({[](bool) { return std::make_unique<Fuse>(); }, true,
                        [](std::string&, bool) { return true; }});
  } else if (type == "Strip") {
    decoders.push_back(read_strip(fields));
  } else if (type == "Replace") {
    decoders.push_back(read_replace(fields));
  } else if (type == "Metaspace") {
    decoders.push_back(read_metaspace(fields));
  } else if (type == "WordPiece") {
    decoders.push_back(read_word_piece(fields));
  } else if (type == "BPEDecoder") {
    decoders.push_back(whole_tokens(
        [suffix = fields.text("suffix")] { return std::make_unique<BpeDecoder>(suffix); }));
  } else if (type == "CTC") {
    decoders.push_back(whole_tokens([pad = fields.text("pad_token"),
                                     delimiter = fields.text("word_delimiter_token"),
                                     cleanup = fields.boolean("cleanup")] {
      return std::make_unique<Ctc>(pad, delimiter, cleanup);
    }));
  } else {
    fields.refuse_type("decoder");
  }
}

Decoder spaces_between() {
  return each_token([](std::string& token, bool first) {
    if (!first) token.insert(0, " ");
  });
}

DecodeChain::DecodeChain(const Decoders& decoders, bool in_middle) : in_middle_(in_middle) {
  bool parts = false;
  for (const Decoder& decoder : decoders) {
    steps_.push_back(decoder.make(parts));
    parts = parts || decoder.fuses;
  }
}

void DecodeChain::push(std::size_t step, std::string_view token, std::string& out) {
  if (step == steps_.size()) {
    out += token;
    return;
  }
  const bool sure = !in_middle_ || steps_[step]->is_settled();
  steps_[step]->push(token, [&](std::string_view given) {
    if (sure) push(step + 1, given, out);
  });
}

bool DecodeChain::is_settled() const {
  return !in_middle_ || std::ranges::all_of(steps_, &DecodeStep::is_settled);
}

void DecodeChain::finish(std::string& out) {
  for (std::size_t i = 0; i < steps_.size(); ++i)
    steps_[i]->finish([&](std::string_view given) { push(i + 1, given, out); });
}

}  // namespace ac::text
