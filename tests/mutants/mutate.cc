#include "tests/mutants/mutate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "tests/mutants/tokens.h"

namespace ac::mutants {
namespace {

using Kind = Token::Kind;

struct Replace {
  std::string_view from, change, to;
};
// Of two operands, with spaces around.
constexpr Replace kBinary[] = {
    {"<", "boundary", "<="},  {"<=", "boundary", "<"},  {">", "boundary", ">="},
    {">=", "boundary", ">"},  {"<", "turned", ">"},     {"<=", "turned", ">="},
    {">", "turned", "<"},     {">=", "turned", "<="},   {"==", "turned", "!="},
    {"!=", "turned", "=="},   {"+", "arithmetic", "-"}, {"-", "arithmetic", "+"},
    {"*", "arithmetic", "/"}, {"/", "arithmetic", "*"}, {"%", "arithmetic", "/"},
    {"&&", "logic", "||"},    {"||", "logic", "&&"},    {"&", "bits", "|"},
    {"|", "bits", "&"},       {"^", "bits", "&"},       {"<<", "bits", ">>"},
    {">>", "bits", "<<"},
};
constexpr Replace kAssignments[] = {
    {"+=", "assigned", "-="}, {"-=", "assigned", "+="}, {"*=", "assigned", "/="},
    {"/=", "assigned", "*="}, {"^=", "assigned", "|="}, {"|=", "assigned", "&="},
    {"&=", "assigned", "|="}, {"+=", "not added", "="}, {"*=", "not added", "="},
};
constexpr Replace kNames[] = {
    {"fmaxf", "function", "fminf"},
    {"fminf", "function", "fmaxf"},
    {"warp_sum", "function", "warp_max"},
    {"warp_max", "function", "warp_sum"},
};
constexpr Replace kComponents[] = {{"x", "component", "y"},
                                   {"y", "component", "x"},
                                   {"z", "component", "w"},
                                   {"w", "component", "z"}};
constexpr std::array kNoStatement = std::to_array<std::string_view>(
    {"const", "constexpr", "auto",   "static",   "using",    "if",      "for",     "while",
     "do",    "else",      "struct", "template", "public",   "private", "extern",  "namespace",
     "case",  "switch",    "inline", "enum",     "typename", "typedef", "default", "unsigned",
     "float", "int",       "bool",   "long",     "void"});
constexpr std::array kWaits =
    std::to_array<std::string_view>({"barrier", "wait", "sync", "fence", "arrive", "commit"});

// Calls that change when something happens, and never what; nor does when they are made.
constexpr std::array kHints = std::to_array<std::string_view>(
    {"launch_dependents", "prefetch_map", "bring_to_l1", "bring_scales"});

// Rounds floats to f16; of integers, the mutant does not compile.
constexpr std::string_view kRounded =
    "[](auto v) {{ static_assert(decltype(v)(0.5) != 0); return to_float(from_float<f16>(v)); "
    "}}({})";

template <class Range>
bool is_among(std::string_view text, const Range& range) {
  return std::ranges::find(range, text) != std::end(range);
}

class Mutator {
 public:
  Mutator(const std::string& file, std::string_view text)
      : file_(file), text_(text), tokens_(tokens_of(text)) {
    match_brackets();
    find_skipped();
  }

  std::vector<Mutant> run() {
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (skipped_[i]) continue;
      const Token& token = tokens_[i];
      if (token.kind == Kind::number) constant(i);
      if (token.kind == Kind::sign) sign(i);
      if (token.kind == Kind::name) name(i);
      if (starts_statement(i)) statement(i);
    }
    name_all();
    return std::move(found_);
  }

 private:
  std::string_view at(std::size_t i) const {
    return i < tokens_.size() ? tokens_[i].text : std::string_view{};
  }
  std::string_view before(std::size_t i) const { return i > 0 ? at(i - 1) : std::string_view{}; }
  std::string source(std::size_t from, std::size_t to) const {  // tokens, with the last
    return std::string(text_.substr(tokens_[from].at, tokens_[to].end() - tokens_[from].at));
  }

  // ---- structure

  void match_brackets() {
    match_.assign(tokens_.size(), 0);
    in_for_.assign(tokens_.size(), false);
    std::vector<std::size_t> open;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      const std::string_view text = at(i);
      for (const std::size_t bracket : open)
        if (at(bracket) == "(" && before(bracket) == "for") in_for_[i] = true;
      if (text == "(" || text == "[" || text == "{") open.push_back(i);
      if ((text == ")" || text == "]" || text == "}") && !open.empty()) {
        match_[open.back()] = i, match_[i] = open.back();
        open.pop_back();
      }
    }
  }

  // The `>` that closes the template arguments that open at i.
  std::size_t end_of_angles(std::size_t i) const {
    int depth = 0;
    for (std::size_t j = i; j < tokens_.size(); ++j) {
      if (at(j) == "<") ++depth;
      if (at(j) == ">") --depth;
      if (at(j) == ">>") depth -= 2;
      if (depth <= 0) return j;
      if (at(j) == "(" || at(j) == "[" || at(j) == "{") j = match_[j];
    }
    return i;
  }

  void skip(std::size_t from, std::size_t to) {
    for (std::size_t i = from; i <= to && i < tokens_.size(); ++i) skipped_[i] = true;
  }

  void find_skipped() {
    skipped_.assign(tokens_.size(), false);
    for (std::size_t i = 0; i + 1 < tokens_.size(); ++i) {
      if (at(i) == "static_assert") skip(i, match_[i + 1]);
      if (at(i) == "template" && at(i + 1) == "<") skip(i, end_of_angles(i + 1));
      if (at(i) == "AC_UNROLL_BY") skip(i, match_[i + 1]);
      if (at(i) == "[" && declares_array(i)) skip(i, match_[i]);
      if (const std::size_t hint = hint_behind(i); hint > i) skip(i, hint - 1);
    }
  }

  // Behind the conditions and loops that begin here, the hint that is all they are for; or i.
  std::size_t hint_behind(std::size_t i) const {
    std::size_t call = i;
    while (at(call) == "if" || at(call) == "for")
      call = match_[at(call + 1) == "constexpr" ? call + 2 : call + 1] + 1;
    return is_among(at(call), kHints) ? call : i;
  }

  // "float v[vector]" and "uint4 slot[plan.depth][rows]", but not "return v[i]".
  bool declares_array(std::size_t i) const {
    while (i > 0 && before(i) == "]") i = match_[i - 1];
    if (i < 2) return false;
    if (before(i) == ")")  // const float (&sums)[rows]
      return i >= 4 && at(i - 3) == "&" && at(i - 4) == "(";
    if (tokens_[i - 1].kind != Kind::name) return false;
    const std::string_view type = at(i - 2);
    if (type == "*" || type == "&")
      return tokens_[i - 2].space_after && !tokens_[i - 2].space_before;
    if (type == ">") return !tokens_[i - 2].space_before;
    return tokens_[i - 2].kind == Kind::name && type != "return" && type != "else" &&
           !type.starts_with("AC_");
  }

  bool is_binary(std::size_t i) const { return tokens_[i].space_before && tokens_[i].space_after; }

  bool follows_operand(std::size_t i) const {
    if (i == 0) return false;
    const Token& last = tokens_[i - 1];
    if (last.kind == Kind::number) return true;
    if (last.kind == Kind::name) return last.text != "return";
    return last.text == ")" || last.text == "]";
  }

  // Top-level arguments between brackets, as pairs of first and last tokens.
  std::vector<std::pair<std::size_t, std::size_t>> arguments(std::size_t open,
                                                             std::size_t close) const {
    std::vector<std::pair<std::size_t, std::size_t>> all;
    std::size_t first = open + 1;
    for (std::size_t i = open + 1; i <= close; ++i) {
      if (i == close || at(i) == ",") {
        if (i > first) all.emplace_back(first, i - 1);
        first = i + 1;
      } else if (at(i) == "(" || at(i) == "[" || at(i) == "{") {
        i = match_[i];
      } else if (at(i) == "<" && !tokens_[i].space_before) {
        i = end_of_angles(i);
      }
    }
    return all;
  }

  // ---- mutants

  void add(std::string_view change, std::size_t first, std::size_t last, std::string replacement) {
    const std::string old = source(first, last);
    // Line numbers of what follows stay.
    const auto lines = std::ranges::count(old, '\n') - std::ranges::count(replacement, '\n');
    if (lines < 0 || replacement == old) return;
    replacement.append(static_cast<std::size_t>(lines), '\n');
    found_.push_back({.id = {},
                      .file = file_,
                      .change = std::string(change),
                      .line = tokens_[first].line,
                      .last_line = tokens_[last].line,
                      .at = tokens_[first].at,
                      .length = old.size(),
                      .replacement = std::move(replacement)});
  }
  template <class Table>
  void add_from(const Table& table, std::size_t i) {
    for (const Replace& replace : table)
      if (at(i) == replace.from) add(replace.change, i, i, std::string(replace.to));
  }

  void constant(std::size_t i) {
    const std::string number(at(i));
    const bool hex = number.starts_with("0x");
    const bool is_float =
        number.find('.') != std::string::npos || number.find(hex ? "p" : "e") != std::string::npos;
    if (is_float) {
      add("constant x2", i, i, fmt::format("({} * 2)", number));
      return;
    }
    add("constant + 1", i, i, fmt::format("({} + 1)", number));
    if (number != "0") add("constant - 1", i, i, fmt::format("({} - 1)", number));
  }

  void sign(std::size_t i) {
    if (is_binary(i)) {
      if (follows_operand(i)) add_from(kBinary, i);
      if (!in_for_[i]) add_from(kAssignments, i);
      if ((at(i) == "+=" || at(i) == "-=") && !in_for_[i]) round_sum(i);
      if (at(i) == "?") {
        add("never", i, i, "&& false ?");
        add("always", i, i, "|| true ?");
      }
    } else if (!follows_operand(i) && !tokens_[i].space_after) {
      const bool literal = i + 1 < tokens_.size() && tokens_[i + 1].kind == Kind::number;
      if (at(i) == "!" || at(i) == "~" || (at(i) == "-" && !literal)) add("sign", i, i, " ");
      if (at(i) == "++" && !in_for_[i] && !starts_statement(i)) add("not counted", i, i, "  ");
    }
    // A literal index has its mutants as a constant.
    const bool is_index = at(i) == "[" && follows_operand(i) && match_[i] > i + 1;
    if (is_index && (match_[i] > i + 2 || tokens_[i + 1].kind != Kind::number))
      add("next index", match_[i] - 1, match_[i] - 1, fmt::format("{} + 1", at(match_[i] - 1)));
  }

  void round_sum(std::size_t i) {
    std::size_t first = i;
    while (first > 0 &&
           !is_among(before(first), std::array<std::string_view, 5>{";", "{", "}", ",", "else"})) {
      if (before(first) == "]")
        first = match_[first - 1];
      else if (before(first) == ")")
        break;
      else
        --first;
    }
    std::size_t last = i + 1;
    while (last + 1 < tokens_.size() && at(last + 1) != ";" && at(last + 1) != "," &&
           at(last + 1) != ")") {
      ++last;
      if (at(last) == "(" || at(last) == "[" || at(last) == "{") last = match_[last];
    }
    if (first >= i || last >= tokens_.size()) return;
    const std::string to = source(first, i - 1), sum = source(i + 1, last);
    add("rounded", first, last,
        fmt::format("{} = {}", to,
                    fmt::format(fmt::runtime(kRounded),
                                fmt::format("{} {} ({})", to, at(i).substr(0, 1), sum))));
  }

  void name(std::size_t i) {
    if (before(i) == "." || before(i) == "->") add_from(kComponents, i);
    add_from(kNames, i);
    if (at(i) == "long" && at(i + 1) == "long" && at(i + 2) == ">" && before(i) == "<")
      add("narrow", i, i + 1, "int");
    std::size_t open = i + 1;
    if (at(i) == "if") {
      if (at(open) == "constexpr") ++open;
      if (at(open) != "(" || match_[open] < open + 2) return;
      for (const char* value : {"true", "false"})
        add(value[0] == 't' ? "always" : "never", open + 1, match_[open] - 1, value);
      return;
    }
    if (at(open) == "<" && !tokens_[open].space_before) open = end_of_angles(open) + 1;
    if (at(open) == "(" && is_call(i)) call(i, open);
  }

  bool is_call(std::size_t i) const {
    if (is_among(at(i), std::array<std::string_view, 6>{"for", "while", "switch", "sizeof",
                                                        "return", "decltype"}) ||
        at(i).starts_with("AC_") || at(i).ends_with("_cast"))
      return false;
    if (i == 0) return false;
    const Token& last = tokens_[i - 1];
    if (last.kind == Kind::name)
      return last.text == "return" || last.text == "else" || last.text == "AC_UNROLL";
    // A declaration: "float4& part(...", "Vector<T> of(...".
    return !((last.text == "*" || last.text == "&" || last.text == ">") && !last.space_before);
  }

  void call(std::size_t i, std::size_t open) {
    const auto parts = arguments(open, match_[open]);
    if (at(i) == "fmaf")
      add("rounded", i, match_[open],
          fmt::format("to_float(from_float<f16>({}))", source(i, match_[open])));
    if (parts.size() < 2) return;
    const auto [a, b] = parts[parts.size() - 2];
    const auto [c, d] = parts.back();
    const std::string between(text_.substr(tokens_[b].end(), tokens_[c].at - tokens_[b].end()));
    add("swapped", a, d, source(c, d) + between + source(a, b));
  }

  // ---- statements

  bool starts_statement(std::size_t i) const {
    if (i == 0 || is_among(at(i), kNoStatement)) return false;
    const std::string_view last = before(i);
    const bool follows = last == ";" || last == "{" || last == "}" || last == "else" ||
                         last == "AC_UNROLL" || (last == ")" && ends_condition(i - 1));
    if (!follows || in_for_[i]) return false;
    if (is_among(at(i), std::array<std::string_view, 3>{"continue", "return", "break"}))
      return at(i + 1) == ";";
    if (at(i) == "*" || at(i) == "++" || at(i) == "--") return true;
    if (tokens_[i].kind != Kind::name) return false;
    // "T name" is a declaration; "f(", "a.b", "a[i]", "a = ", "f<n>(", "a::f(" are not.
    const std::string_view next = at(i + 1);
    return is_among(next, std::array<std::string_view, 6>{"(", ".", "[", "::", "->", "++"}) ||
           next.ends_with('=') || (next == "<" && !tokens_[i + 1].space_before);
  }

  bool ends_condition(std::size_t close) const {
    const std::size_t open = match_[close];
    const std::string_view name = before(open);
    return name == "if" || name == "for" || name == "while" || name == "constexpr";
  }

  void statement(std::size_t i) {
    std::size_t end = i;
    while (end < tokens_.size() && at(end) != ";") {
      if (at(end) == "{" || at(end) == "}") return;
      if (at(end) == "(" || at(end) == "[") end = match_[end];
      ++end;
    }
    if (end >= tokens_.size()) return;
    if (is_among(at(i), kHints)) return;
    const std::string whole = source(i, end - 1);
    const auto parts = arguments(i - 1, end);
    for (const auto& [first, last] : parts) {
      if (parts.size() > 1)
        add("left out", first, last, "(void)0");
      else
        add(kind_of_statement(whole), i, end, ";");
    }
  }

  static std::string_view kind_of_statement(std::string_view text) {
    if (text == "continue" || text == "return" || text == "break") return "no end";
    const std::string_view callee = text.substr(0, text.find('('));
    const bool waits = std::ranges::any_of(
        kWaits, [&](std::string_view part) { return callee.find(part) != std::string_view::npos; });
    return waits ? "no wait" : "left out";
  }

  // ---- names

  static std::uint32_t hash_of(std::string_view text) {
    std::uint32_t hash = 2166136261u;
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
    return hash;
  }

  void name_all() {
    std::map<int, std::pair<std::string, std::size_t>> lines;  // name, and where its text begins
    std::map<std::string, int> times;
    std::size_t begin = 0;
    for (int line = 1; begin < text_.size(); ++line) {
      const std::size_t end = std::min(text_.find('\n', begin), text_.size());
      const std::size_t first = std::min(text_.find_first_not_of(' ', begin), end);
      const std::string text(text_.substr(first, end - first));
      lines[line] = {fmt::format("{}#{:08x}.{}", file_, hash_of(text), times[text]++), first};
      begin = end + 1;
    }
    std::map<std::string, int> known;
    for (Mutant& mutant : found_) {
      const auto& [name, first] = lines.at(mutant.line);
      mutant.id = fmt::format("{}:{}@{}", name, mutant.change, mutant.at - first);
      std::ranges::replace(mutant.id, ' ', '_');
      if (const int n = known[mutant.id]++; n > 0) mutant.id += fmt::format("~{}", n);
    }
  }

  const std::string& file_;
  std::string_view text_;
  std::vector<Token> tokens_;
  std::vector<std::size_t> match_;
  std::vector<bool> skipped_, in_for_;
  std::vector<Mutant> found_;
};

std::string on_one_line(std::string_view text) {
  std::string line;
  for (const char c : text) {
    if (c == '\n' || c == ' ') {
      if (!line.empty() && line.back() != ' ') line += ' ';
    } else {
      line += c;
    }
  }
  return line;
}

}  // namespace

std::vector<Mutant> mutants_of(const std::string& file, std::string_view text) {
  return Mutator(file, text).run();
}

std::string mutated(std::string_view text, const Mutant& mutant) {
  std::string result(text);
  return result.replace(mutant.at, mutant.length, mutant.replacement);
}

std::string describe(std::string_view text, const Mutant& mutant) {
  const std::size_t begin = text.rfind('\n', mutant.at) + 1;
  const std::size_t end = std::min(text.find('\n', mutant.at + mutant.length), text.size());
  const std::string_view head = text.substr(begin, mutant.at - begin);
  const std::string_view tail =
      text.substr(mutant.at + mutant.length, end - mutant.at - mutant.length);
  return on_one_line(fmt::format("{}⟦{} → {}⟧{}", head, text.substr(mutant.at, mutant.length),
                                 mutant.replacement, tail));
}

}  // namespace ac::mutants
