#include "text/tokenizer_pretokenizer.h"

#include <array>
#include <optional>
#include <utility>

#include "text/byte_characters.h"
#include "text/unicode.h"

namespace ac::text {
namespace {

// GPT-2's.
constexpr const char* kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

Behavior read_behavior(const TokenizerFields& fields) {
  const std::string name = fields.text("behavior");
  if (name == "Removed") return Behavior::removed;
  if (name == "Isolated") return Behavior::isolated;
  if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Behavior::merged_with_next;
  if (name == "Contiguous") return Behavior::contiguous;
  fields.refuse("behavior",
                "expected Removed, Isolated, MergedWithPrevious, MergedWithNext or "
                "Contiguous");
}

// Joins spans as the behaviour says; those to be removed go.
void join(std::vector<PatternSpan>& spans, Behavior behavior) {
  std::size_t kept = 0;
  bool before = false;  // the span before this one was a match
  const auto keep = [&](const PatternSpan& span) { spans[kept++] = span; };
  switch (behavior) {
    case Behavior::isolated:
      return;
    case Behavior::removed:
      for (const PatternSpan span : spans)
        if (!span.match) keep(span);
      break;
    case Behavior::contiguous:
    case Behavior::merged_with_previous:
      for (const PatternSpan span : spans) {
        const bool joins =
            behavior == Behavior::contiguous ? span.match == before : span.match && !before;
        if (joins && kept > 0)
          spans[kept - 1].end = span.end;
        else
          keep(span);
        before = span.match;
      }
      break;
    case Behavior::merged_with_next: {
      kept = spans.size();
      for (std::size_t i = spans.size(); i-- > 0;) {
        const PatternSpan span = spans[i];
        if (span.match && !before && kept < spans.size())
          spans[kept].begin = span.begin;
        else
          spans[--kept] = span;
        before = span.match;
      }
      spans.erase(spans.begin(), spans.begin() + static_cast<std::ptrdiff_t>(kept));
      return;
    }
  }
  spans.resize(kept);
}

// Cuts each piece into what `find(text, spans)` gives.
template <class Find>
class Cut : public PreTokenizer {
 public:
  explicit Cut(Find find) : find_(std::move(find)) {}
  void apply(Pieces& pieces) const override {
    std::vector<PreToken> list;
    list.reserve(pieces.text.size() / 4 + 1);
    std::vector<PatternSpan> spans;
    for (const PreToken& piece : pieces.list) {
      find_(std::string_view(pieces.text).substr(piece.begin, piece.end - piece.begin), spans);
      for (const PatternSpan& span : spans)
        if (span.begin < span.end)
          list.push_back({piece.begin + span.begin, piece.begin + span.end,
                          piece.at_start && span.begin == 0});
    }
    pieces.list = std::move(list);
  }

 private:
  Find find_;
};
template <class Find>
std::unique_ptr<const PreTokenizer> cut(Find find) {
  return std::make_unique<Cut<Find>>(std::move(find));
}

// Cuts at the matches of a pattern.
auto cut_at(Pattern pattern, Behavior behavior, bool invert) {
  return cut([=](std::string_view text, std::vector<PatternSpan>& spans) {
    pattern.spans(text, spans);
    if (invert)
      for (PatternSpan& span : spans) span.match = !span.match;
    join(spans, behavior);
  });
}

// Cuts at characters of a kind.
template <class Is>
auto cut_at_characters(Is is, Behavior behavior) {
  return cut([=](std::string_view text, std::vector<PatternSpan>& spans) {
    spans.clear();
    std::size_t before = 0;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t begin = at;
      if (!is(next_character(text, at))) continue;
      if (before < begin) spans.push_back({before, begin, false});
      spans.push_back({begin, at, true});
      before = at;
    }
    if (before < text.size()) spans.push_back({before, text.size(), false});
    join(spans, behavior);
  });
}

// Each piece becomes what `write(out, piece, at_start)` appends.
template <class Write>
class Rewrite : public PreTokenizer {
 public:
  explicit Rewrite(Write write) : write_(std::move(write)) {}
  void apply(Pieces& pieces) const override {
    std::string out;
    out.reserve(pieces.text.size());
    for (PreToken& piece : pieces.list) {
      const std::size_t begin = out.size();
      write_(out, std::string_view(pieces.text).substr(piece.begin, piece.end - piece.begin),
             piece.at_start);
      piece.begin = begin;
      piece.end = out.size();
    }
    pieces.text = std::move(out);
  }

 private:
  Write write_;
};
template <class Write>
std::unique_ptr<const PreTokenizer> rewrite(Write write) {
  return std::make_unique<Rewrite<Write>>(std::move(write));
}

void read_byte_level(const TokenizerFields& fields, PreTokenizers& steps) {
  if (fields.boolean("add_prefix_space"))
    steps.steps.push_back(rewrite([](std::string& out, std::string_view piece, bool) {
      if (!piece.starts_with(' ')) out += ' ';
      out += piece;
    }));
  if (fields.boolean("use_regex", true))
    steps.steps.push_back(
        cut_at(Pattern::regex(kByteLevelPattern, fields.where()), Behavior::isolated, false));
  steps.steps.push_back(rewrite(
      [](std::string& out, std::string_view piece, bool) { out += as_byte_characters(piece); }));
  steps.ends_in_bytes = true;
}

void read_metaspace(const TokenizerFields& fields, PreTokenizers& steps) {
  std::string replacement;
  append_utf8(replacement, fields.character("replacement"));
  std::string scheme = fields.text("prepend_scheme", "always");
  if (scheme != "always" && scheme != "first" && scheme != "never")
    fields.refuse("prepend_scheme", "expected always, first or never");
  if (!fields.boolean("add_prefix_space", true)) {
    if (fields.has_value("prepend_scheme") && scheme != "never")
      fields.refuse("add_prefix_space", "it contradicts prepend_scheme");
    scheme = "never";
  }
  const bool always = scheme == "always", first = scheme == "first";
  steps.steps.push_back(rewrite([=](std::string& out, std::string_view piece, bool at_start) {
    if ((always || (first && at_start)) && !piece.starts_with(replacement) &&
        !piece.starts_with(' '))
      out += replacement;
    while (!piece.empty()) {
      const std::size_t space = std::min(piece.find(' '), piece.size());
      out += piece.substr(0, space);
      if (space < piece.size()) out += replacement;
      piece.remove_prefix(std::min(space + 1, piece.size()));
    }
  }));
  if (fields.boolean("split", true))
    steps.steps.push_back(cut([=](std::string_view text, std::vector<PatternSpan>& spans) {
      spans.clear();
      std::size_t begin = 0;
      for (std::size_t at = 0; (at = text.find(replacement, at)) != std::string_view::npos;
           at += replacement.size()) {
        if (at > begin) spans.push_back({begin, at, false});
        begin = at;
      }
      spans.push_back({begin, text.size(), false});
    }));
}

// Runs of one script, in SentencePiece's sense: Han is with the scripts of Japan, and a space or an
// unknown character goes on with what was before it.
Pattern script_runs(const std::string& origin) {
  static constexpr const char* kScripts[] = {"Latin",
                                             "Common",
                                             "Cyrillic",
                                             "Arabic",
                                             "Greek",
                                             "Hebrew",
                                             "Devanagari",
                                             "Hangul",
                                             "Thai",
                                             "Adlam",
                                             "Ahom",
                                             "Anatolian_Hieroglyphs",
                                             "Armenian",
                                             "Avestan",
                                             "Balinese",
                                             "Bamum",
                                             "Bassa_Vah",
                                             "Batak",
                                             "Bengali",
                                             "Bhaiksuki",
                                             "Bopomofo",
                                             "Brahmi",
                                             "Braille",
                                             "Buginese",
                                             "Buhid",
                                             "Canadian_Aboriginal",
                                             "Carian",
                                             "Caucasian_Albanian",
                                             "Chakma",
                                             "Cham",
                                             "Cherokee",
                                             "Coptic",
                                             "Cuneiform",
                                             "Cypriot",
                                             "Deseret",
                                             "Duployan",
                                             "Egyptian_Hieroglyphs",
                                             "Elbasan",
                                             "Ethiopic",
                                             "Georgian",
                                             "Glagolitic",
                                             "Gothic",
                                             "Grantha",
                                             "Gujarati",
                                             "Gurmukhi",
                                             "Hanunoo",
                                             "Hatran",
                                             "Imperial_Aramaic",
                                             "Inherited",
                                             "Inscriptional_Pahlavi",
                                             "Inscriptional_Parthian",
                                             "Javanese",
                                             "Kaithi",
                                             "Kannada",
                                             "Kayah_Li",
                                             "Kharoshthi",
                                             "Khmer",
                                             "Khojki",
                                             "Khudawadi",
                                             "Lao",
                                             "Lepcha",
                                             "Limbu",
                                             "Linear_A",
                                             "Linear_B",
                                             "Lisu",
                                             "Lycian",
                                             "Lydian",
                                             "Mahajani",
                                             "Malayalam",
                                             "Mandaic",
                                             "Manichaean",
                                             "Marchen",
                                             "Meetei_Mayek",
                                             "Mende_Kikakui",
                                             "Meroitic_Cursive",
                                             "Meroitic_Hieroglyphs",
                                             "Miao",
                                             "Modi",
                                             "Mongolian",
                                             "Mro",
                                             "Multani",
                                             "Myanmar",
                                             "Nabataean",
                                             "New_Tai_Lue",
                                             "Newa",
                                             "Nko",
                                             "Ogham",
                                             "Ol_Chiki",
                                             "Old_Hungarian",
                                             "Old_Italic",
                                             "Old_North_Arabian",
                                             "Old_Permic",
                                             "Old_Persian",
                                             "Old_South_Arabian",
                                             "Old_Turkic",
                                             "Oriya",
                                             "Osage",
                                             "Osmanya",
                                             "Pahawh_Hmong",
                                             "Palmyrene",
                                             "Pau_Cin_Hau",
                                             "Phags_Pa",
                                             "Phoenician",
                                             "Psalter_Pahlavi",
                                             "Rejang",
                                             "Runic",
                                             "Samaritan",
                                             "Saurashtra",
                                             "Sharada",
                                             "Shavian",
                                             "Siddham",
                                             "SignWriting",
                                             "Sinhala",
                                             "Sora_Sompeng",
                                             "Sundanese",
                                             "Syloti_Nagri",
                                             "Syriac",
                                             "Tagalog",
                                             "Tagbanwa",
                                             "Tai_Le",
                                             "Tai_Tham",
                                             "Tai_Viet",
                                             "Takri",
                                             "Tamil",
                                             "Tangut",
                                             "Telugu",
                                             "Thaana",
                                             "Tibetan",
                                             "Tifinagh",
                                             "Tirhuta",
                                             "Ugaritic",
                                             "Vai",
                                             "Warang_Citi",
                                             "Yi"};
  std::string pattern =
      R"([\p{Han}\p{Hiragana}\p{Katakana}\x{30FC}][\p{Han}\p{Hiragana}\p{Katakana}\x{30FC}\p{Cn} ]*)";
  for (const std::string script : kScripts)
    pattern +=
        R"(|(?![ \x{30FC}])\p{)" + script + R"(}(?:(?!\x{30FC})[\p{)" + script + R"(}\p{Cn} ])*)";
  return Pattern::regex(pattern, origin);
}

void read_fixed_length(const TokenizerFields& fields, PreTokenizers& steps) {
  const std::int64_t length = fields.integer("length", 1, INT32_MAX, 5);
  steps.steps.push_back(cut([=](std::string_view text, std::vector<PatternSpan>& spans) {
    spans.clear();
    std::int64_t count = 0;
    std::size_t begin = 0;
    for (std::size_t at = 0; at < text.size();) {
      at += character_bytes(text[at]);
      if (++count < length && at < text.size()) continue;
      spans.push_back({begin, at, false});
      begin = at;
      count = 0;
    }
  }));
}

}  // namespace

void read_pre_tokenizers(const TokenizerFields& fields, PreTokenizers& steps) {
  const std::string type = fields.text("type");
  if (type == "Sequence") {
    fields.each("pretokenizers",
                [&](const TokenizerFields& one) { read_pre_tokenizers(one, steps); });
    return;
  }
  steps.ends_in_bytes = false;
  const auto add = [&](auto one) { steps.steps.push_back(std::move(one)); };
  if (type == "ByteLevel") {
    read_byte_level(fields, steps);
  } else if (type == "Split") {
    add(cut_at(Pattern(fields, "pattern"), read_behavior(fields), fields.boolean("invert")));
  } else if (type == "Metaspace") {
    read_metaspace(fields, steps);
  } else if (type == "Digits") {
    add(cut_at_characters(is_number, fields.boolean("individual_digits") ? Behavior::isolated
                                                                         : Behavior::contiguous));
  } else if (type == "Punctuation") {
    add(cut_at_characters(
        is_punctuation, fields.has_value("behavior") ? read_behavior(fields) : Behavior::isolated));
  } else if (type == "Whitespace") {
    // Runs of word characters, and runs of what is neither those nor white space.
    add(cut([](std::string_view text, std::vector<PatternSpan>& spans) {
      spans.clear();
      int before = 0;
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t begin = at;
        const char32_t c = next_character(text, at);
        const int kind = is_word(c) ? 1 : is_white_space(c) ? 0 : 2;
        if (kind != 0 && kind == before)
          spans.back().end = at;
        else if (kind != 0)
          spans.push_back({begin, at, false});
        before = kind;
      }
    }));
  } else if (type == "WhitespaceSplit") {
    add(cut_at_characters(is_white_space, Behavior::removed));
  } else if (type == "BertPreTokenizer") {
    add(cut_at_characters(is_white_space, Behavior::removed));
    add(cut_at_characters(is_punctuation, Behavior::isolated));
  } else if (type == "CharDelimiterSplit" || type == "Delimiter") {
    add(cut_at_characters(
        [delimiter = fields.character("delimiter")](char32_t c) { return c == delimiter; },
        Behavior::removed));
  } else if (type == "UnicodeScripts") {
    add(cut_at(script_runs(fields.where()), Behavior::removed, true));  // what is no run goes
  } else if (type == "FixedLength") {
    read_fixed_length(fields, steps);
  } else {
    fields.refuse_type("pre-tokenizer");
  }
}

}  // namespace ac::text
