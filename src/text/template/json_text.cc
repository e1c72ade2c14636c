#include "text/template/json_text.h"

#include <algorithm>
#include <cmath>

#include "text/template/characters.h"

namespace ac::jinja {
namespace {

class Writer {
 public:
  explicit Writer(const JsonStyle& style) : style_(style) {}

  void write(const Value& value) {
    work(1);
    if (const String* string = value.as_string()) return text(string->text);
    if (value.is_none()) return add("null");
    if (const bool* boolean = value.as_bool()) return add(*boolean ? "true" : "false");
    if (value.is_integer()) return add(fmt::format("{}", value.integer()));
    if (value.is_number()) return add(real(value.real()));
    if (const List* list = value.as_sequence()) return sequence(*list);
    if (const Dict* dict = value.as_dict()) return mapping(*dict);
    fail("Object of type {} is not JSON serializable", type_name(value));
  }

  std::string take() { return out_.take(); }

 private:
  void add(std::string_view more) { out_ += more; }

  static std::string real(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return real_text(value);
  }

  void text(std::string_view text) {
    add("\"");
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t begin = at;
      const char32_t character = next_character(text, at);
      switch (character) {
        case '"':
          add("\\\"");
          break;
        case '\\':
          add("\\\\");
          break;
        case '\n':
          add("\\n");
          break;
        case '\r':
          add("\\r");
          break;
        case '\t':
          add("\\t");
          break;
        case '\f':
          add("\\f");
          break;
        case '\b':
          add("\\b");
          break;
        default:
          if (character < 0x20 || (style_.ascii && character > 0x7e))
            escape(character);
          else
            add(text.substr(begin, at - begin));
      }
    }
    add("\"");
  }

  void escape(char32_t character) {
    if (character < 0x10000) return add(fmt::format("\\u{:04x}", static_cast<unsigned>(character)));
    const auto rest = static_cast<unsigned>(character - 0x10000);
    add(fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ff)));
  }

  void new_line() {
    if (!style_.indent) return;
    add("\n");
    for (int i = 0; i < level_; ++i) add(*style_.indent);
  }

  void sequence(const List& list) {
    if (list.items.empty()) return add("[]");
    add("[");
    ++level_;
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) add(style_.item_separator);
      new_line();
      write(list.items[i]);
    }
    --level_;
    new_line();
    add("]");
  }

  static std::string key_text(const Value& key) {
    if (const String* string = key.as_string()) return string->text;
    if (key.is_none()) return "null";
    if (const bool* boolean = key.as_bool()) return *boolean ? "true" : "false";
    if (key.is_integer()) return fmt::format("{}", key.integer());
    if (key.is_number()) return real(key.real());
    fail("keys must be str, int, float, bool or None, not {}", type_name(key));
  }

  void mapping(const Dict& dict) {
    if (dict.items.empty()) return add("{}");
    std::vector<const std::pair<Value, Value>*> items;
    for (const auto& item : dict.items) items.push_back(&item);
    if (style_.sort_keys)
      std::stable_sort(items.begin(), items.end(), [](const auto* a, const auto* b) {
        return compare(a->first, b->first, "<") < 0;
      });
    add("{");
    ++level_;
    bool first = true;
    for (const auto* item : items) {
      if (!std::exchange(first, false)) add(style_.item_separator);
      new_line();
      text(key_text(item->first));
      add(style_.key_separator);
      write(item->second);
    }
    --level_;
    new_line();
    add("}");
  }

  const JsonStyle& style_;
  TextBuilder out_;
  int level_ = 0;
};

}  // namespace

std::string to_json(const Value& value, const JsonStyle& style) {
  Writer writer(style);
  writer.write(value);
  return writer.take();
}

}  // namespace ac::jinja
