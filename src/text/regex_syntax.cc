// From Oniguruma's syntax to PCRE2's.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "text/regex.h"
#include "text/unicode_since.h"

namespace ac::text {
namespace {

constexpr int kDeepest = 50;

constexpr std::string_view kSpace =
    R"(\x09-\x0D\x20\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view kNotSpace =
    R"(\x00-\x08\x0E-\x1F\x21-\x{84}\x{86}-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027})"
    R"(\x{202A}-\x{202E}\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{10FFFF})";
// Letters in circles and squares are alphabetic, and symbols by category.
constexpr std::string_view kLetterLikeSymbols =
    R"(\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})";
// Numbers that \w takes for letters, and [\w] does not.
constexpr std::string_view kLetterLikeNumbers = R"(\xB2\xB3\xB9\xBC-\xBE)";
constexpr std::string_view kHanSince = R"(\x{2B739}\x{2EBF0}-\x{2EE5D}\x{31350}-\x{323AF})";

constexpr std::string_view kCategoryNames[] = {
    "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
    "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};

// A script's name means the script itself. From 10.40 on, PCRE2 takes it for all that the script
// uses, and has another way to say it.
std::string pcre2_property(std::string_view name) {
  const std::string script = fmt::format("\\p{{sc:{}}}", name);
  int error = 0;
  std::size_t place = 0;
  pcre2_code* const code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(script.data()), script.size(),
                                         PCRE2_UTF, &error, &place, nullptr);
  pcre2_code_free(code);
  return code ? script : fmt::format("\\p{{{}}}", name);
}

// The characters of a property, as the inside of a set.
std::string property_members(std::string_view name) {
  std::string members = pcre2_property(name);
  if (name == "Han") return members.append(kHanSince);
  for (const AssignedSince& row : kAssignedSince) {
    const std::string_view of = kCategoryNames[static_cast<int>(row.category)];
    if (name.size() <= 2 && of.starts_with(name))
      members += fmt::format("\\x{{{:X}}}-\\x{{{:X}}}", static_cast<std::uint32_t>(row.first),
                             static_cast<std::uint32_t>(row.last));
  }
  return members;
}

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& origin)
      : pattern_(pattern), origin_(origin) {}

  std::string translate() {
    std::vector<std::size_t> groups;  // where each open group starts in out_
    std::size_t atom = 0;             // where what a quantifier repeats starts in out_
    while (more()) {
      const char c = peek();
      if (c == '{' && interval(atom)) continue;
      if (c != '*' && c != '+' && c != '?') atom = out_.size();
      if (c == '\\') {
        ++at_;
        out_ += escape(false);
      } else if (c == '[') {
        out_ += set(0);
      } else if (c == '(') {
        groups.push_back(out_.size());
        open_group();
      } else if (c == ')') {
        if (!groups.empty()) {
          atom = groups.back();
          groups.pop_back();
        }
        out_ += c, ++at_;
      } else {
        out_ += c, ++at_;
      }
    }
    return std::move(out_);
  }

 private:
  bool more() const { return at_ < pattern_.size(); }
  char peek() const { return pattern_[at_]; }
  bool at(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  char take() {
    if (!more()) refuse("it ends too early");
    return pattern_[at_++];
  }
  [[noreturn]] void refuse(std::string_view why) const {
    bad_input("{}: the regular expression {} is not supported: {}", origin_, quote(pattern_), why);
  }

  // {n}, {n,}, {,m} or {n,m}. A + after it repeats it, which PCRE2 takes for a possessive one.
  bool interval(std::size_t atom) {
    const std::size_t close = pattern_.find('}', at_);
    if (close == std::string_view::npos) return false;
    std::string inside(pattern_.substr(at_ + 1, close - at_ - 1));
    if (inside.find_first_not_of("0123456789,") != std::string::npos ||
        std::count(inside.begin(), inside.end(), ',') > 1 || inside.empty() || inside == ",")
      return false;
    if (inside[0] == ',') inside.insert(0, "0");
    at_ = close + 1;
    out_ += fmt::format("{{{}}}", inside);
    if (more() && peek() == '+') {
      out_.insert(atom, "(?:");
      out_ += ')';
    } else if (more() && peek() == '?' && inside.find(',') == std::string::npos) {
      refuse("{n}? has another meaning in other places");
    }
    return true;
  }

  void open_group() {
    const std::size_t start = at_++;
    if (!at("?")) {
      out_ += '(';
      return;
    }
    ++at_;
    if (at("<=") || at("<!")) {
      out_ += fmt::format("(?{}", pattern_.substr(at_, 2));
      at_ += 2;
    } else if (more() && std::string_view(":=!><").find(peek()) != std::string_view::npos) {
      out_ += fmt::format("(?{}", take());
    } else {
      out_ += "(?";
      while (more() && std::string_view("imx-").find(peek()) != std::string_view::npos) {
        const char option = take();
        out_ += option == 'm' ? 's' : option;  // Ruby's m lets the dot match a line's end
      }
      const char end = take();
      if (end != ':' && !(end == ')' && start == 0)) refuse("this kind of group");
      out_ += end;
      if (end == ')') return;
    }
  }

  std::string hexadecimal(std::size_t digits) {
    const std::string_view text = pattern_.substr(at_, digits);
    if (text.size() < digits || !std::all_of(text.begin(), text.end(),
                                             [](unsigned char c) { return std::isxdigit(c) != 0; }))
      refuse("a character's number is cut short");
    at_ += digits;
    return fmt::format("\\x{{{}}}", text);
  }

  std::string in_set(std::string_view members, bool inside, bool negative = false) {
    return inside ? std::string(members) : fmt::format("[{}{}]", negative ? "^" : "", members);
  }

  // What follows a backslash. `inside`: of a set, where a list of members is due.
  std::string escape(bool inside) {
    const char c = take();
    switch (c) {
      case 's':
        return in_set(kSpace, inside);
      case 'S':
        return in_set(kNotSpace, inside);
      case 'd':
        return in_set(property_members("Nd"), inside);
      case 'D':
        return inside ? "\\P{Nd}" : in_set(property_members("Nd"), false, true);
      case 'w':
        return inside ? word() : word_character();
      case 'W':
        if (inside) refuse("\\W in a set");
        return fmt::format("[^{}{}]", word(), kLetterLikeNumbers);
      case 'h':
        return in_set("0-9A-Fa-f", inside);
      case 'H':
        if (inside) refuse("\\H in a set");
        return in_set("0-9A-Fa-f", false, true);
      case 'p':
      case 'P':
        return property(c == 'P', inside);
      case 'u':
        return hexadecimal(4);
      case 'x': {
        if (!at("{")) {
          const std::string number = hexadecimal(2);
          if (number[3] >= '8') refuse("\\x of half a character");
          return number;
        }
        const std::size_t close = pattern_.find('}', at_);
        if (close == std::string_view::npos || close - at_ > 9) refuse("\\x{ without its end");
        ++at_;
        const std::string number = hexadecimal(close - at_);
        ++at_;
        return number;
      }
      case 'v':
        return "\\x0B";
      case 'a':
      case 'e':
      case 'f':
      case 'n':
      case 'r':
      case 't':
        return {'\\', c};
      case 'b':
        if (inside) return "\\x08";
        return fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word_character());
      case 'B':
        if (inside) refuse("an anchor in a set");
        return fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word_character());
      case 'A':
      case 'z':
      case 'Z':
      case 'G':
      case 'R':
      case 'X':
      case 'K':
        if (inside) refuse("an anchor in a set");
        return {'\\', c};
      default:
        if (std::isalnum(static_cast<unsigned char>(c)) && !(c >= '1' && c <= '9' && !inside))
          refuse(fmt::format("the escape \\{}", c));
        return {'\\', c};
    }
  }

  static std::string word() {
    return property_members("L") + property_members("M") + property_members("Nd") +
           property_members("Nl") + property_members("Pc") + std::string(kLetterLikeSymbols);
  }

  static std::string word_character() { return fmt::format("[{}{}]", word(), kLetterLikeNumbers); }

  std::string property(bool negative, bool inside) {
    if (!at("{")) refuse("\\p without a name in braces");
    const std::size_t close = pattern_.find('}', ++at_);
    if (close == std::string_view::npos) refuse("\\p{ without its end");
    std::string_view name = pattern_.substr(at_, close - at_);
    at_ = close + 1;
    if (name.starts_with('^')) {
      negative = !negative;
      name.remove_prefix(1);
    }
    if (!negative) return in_set(property_members(name), inside);
    return inside ? fmt::format("\\P{}", pcre2_property(name).substr(2))
                  : in_set(property_members(name), false, true);
  }

  // A set: [...], and the sets that && takes the common part of.
  std::string set(int depth) {
    if (depth > kDeepest) refuse("sets nested too deep");
    ++at_;
    const bool negative = at("^");
    if (negative) ++at_;
    std::vector<std::string> parts{""};
    bool first = true;
    while (true) {
      if (at("&&")) {
        at_ += 2;
        parts.emplace_back();
        continue;
      }
      const char c = take();
      if (c == ']' && !first) break;
      first = false;
      if (c == '\\') {
        parts.back() += escape(true);
      } else if (c == '[') {
        if (at(":")) refuse("a POSIX class");
        --at_;
        const std::string inner = set(depth + 1);
        if (inner.starts_with("[^") && parts.size() > 1 && parts.back().empty() &&
            (at("]") || at("&&")))
          parts.back() = inner.substr(1, inner.size() - 2);
        else if (inner.starts_with("[") && !inner.starts_with("[^"))
          parts.back().append(inner, 1, inner.size() - 2);
        else
          refuse("this set in a set");
      } else if (c == ']') {
        parts.back() += "\\]";
      } else {
        parts.back() += c;
      }
    }
    if (parts.size() == 1) return fmt::format("[{}{}]", negative ? "^" : "", parts[0]);
    if (depth > 0) refuse("&& in a set in a set");
    std::string all;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) all += fmt::format("(?=[{}])", parts[i]);
    all += fmt::format("[{}]", parts.back());
    return negative ? fmt::format("(?:(?!{})(?s:.))", all) : fmt::format("(?:{})", all);
  }

  std::string_view pattern_;
  const std::string& origin_;
  std::size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string pcre2_pattern(std::string_view pattern, const std::string& origin) {
  return Translator(pattern, origin).translate();
}

}  // namespace ac::text
