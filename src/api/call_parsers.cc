// Calls of tools, in the forms that models were trained on. What is not in its form is text.
#include <algorithm>
#include <utility>

#include "api/json_call.h"
#include "api/marked.h"
#include "api/reply.h"
#include "api/tool_format.h"
#include "base/error.h"

namespace ac::api {
namespace {

// Reads as far as what has come allows. `step` returns false where more has to come.
class Parser : public PartParser {
 public:
  void push(std::string_view text, std::vector<Part>& out) final {
    unread_.add(text);
    while (!unread_.empty() && step(out)) {
    }
  }
  void finish(std::vector<Part>& out) final {
    end(out);
    text_.finish(out);
  }

 protected:
  virtual bool step(std::vector<Part>& out) = 0;
  virtual void end(std::vector<Part>& out) = 0;  // what was held back is no call

  bool text_up_to(std::string_view marker, std::vector<Part>& out) {
    std::string before;
    const bool found = unread_.take_to(marker, &before);
    text_.push(before, out);
    return found;
  }
  void begin_call(const std::string& name, std::vector<Part>& out) {
    text_.call();
    out.push_back({Part::Kind::call, name});
  }

  Unread unread_;
  TextBesideCalls text_;
};

// One JSON call. Parts are given on where it is one; else its bytes are text, after `before`.
class OneCall {
 public:
  explicit OneCall(std::string before, std::function<bool(const std::string&)> accepts = {})
      : before_(std::move(before)), call_(std::move(accepts)) {}
  bool step(Unread& unread, TextBesideCalls& text, std::vector<Part>& out) {
    std::vector<Part> parts;
    unread.drop(call_.push(unread.all(), parts));
    if (!parts.empty()) text.call();
    out.insert(out.end(), parts.begin(), parts.end());
    if (call_.done() && !call_.is_call()) text.push(before_ + call_.raw(), out);
    return call_.done();
  }
  bool is_call() const { return call_.is_call(); }
  void end(TextBesideCalls& text, std::vector<Part>& out) const {
    if (!call_.is_call()) text.push(before_ + call_.raw(), out);
  }

 private:
  const std::string before_;
  JsonCall call_;
};

class Hermes : public Parser {
  static constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>";

  bool step(std::vector<Part>& out) override {
    switch (at_) {
      case At::outside:
        if (!text_up_to(kOpen, out)) return false;
        call_.emplace(std::string(kOpen));
        at_ = At::call;
        return true;
      case At::call:
        if (!call_->step(unread_, text_, out)) return false;
        at_ = call_->is_call() ? At::close : At::outside;
        call_.reset();
        return true;
      case At::close: {
        unread_.skip_space();
        if (unread_.all().starts_with('{')) {  // some put several into one pair of tags
          call_.emplace("");
          at_ = At::call;
          return true;
        }
        // A brace too much or one too few: the call was given already.
        if (unread_.take_to(kClose, nullptr))
          at_ = At::outside;
        else if (const std::size_t next = unread_.all().find(kOpen); next != std::string::npos)
          unread_.drop(next), at_ = At::outside;
        else
          return false;
        return true;
      }
    }
    AC_UNREACHABLE();
  }
  void end(std::vector<Part>& out) override {
    if (call_) call_->end(text_, out);
    if (at_ == At::outside) text_.push(unread_.all(), out);
  }

  enum class At { outside, call, close } at_ = At::outside;
  std::optional<OneCall> call_;
};

class Llama : public Parser {
 public:
  explicit Llama(const Json& tools) {
    for (const Json& tool : tools) names_.insert(tool.at("function").at("name").get<std::string>());
  }

 private:
  static constexpr std::string_view kTag = "<|python_tag|>";

  bool step(std::vector<Part>& out) override {
    switch (at_) {
      case At::begin: {
        // Text that begins with white space keeps it.
        const std::size_t space =
            std::min(unread_.all().find_first_not_of(" \t\r\n"), unread_.all().size());
        before_ += unread_.take(space);
        if (unread_.empty()) return false;
        const auto tag = unread_.take_if(kTag);
        if (!tag) return false;
        if (*tag) return true;
        if (unread_.all().starts_with('{')) {
          call_.emplace(before_, [this](const std::string& name) { return names_.contains(name); });
          at_ = At::call;
        } else {
          text_.push(before_, out);
          at_ = At::text;
        }
        return true;
      }
      case At::call:
        if (!call_->step(unread_, text_, out)) return false;
        at_ = call_->is_call() ? At::between : At::text;
        call_.reset();
        return true;
      case At::between:
        unread_.skip_space();
        if (unread_.all().starts_with(';') || unread_.all().starts_with(',')) {
          unread_.drop(1);
        } else if (!unread_.empty()) {
          before_.clear();
          at_ = At::begin;
        }
        return !unread_.empty();
      case At::text:
        text_.push(unread_.take(unread_.all().size()), out);
        return false;
    }
    AC_UNREACHABLE();
  }
  void end(std::vector<Part>& out) override {
    if (call_) return call_->end(text_, out);
    text_.push((at_ == At::begin ? before_ : "") + unread_.all(), out);
  }

  enum class At { begin, call, between, text } at_ = At::begin;
  std::set<std::string> names_;
  std::string before_;
  std::optional<OneCall> call_;
};

// A marker, and then a list of JSON calls, one of them, or NAME[ARGS]{...}.
class Marked : public Parser {
 public:
  explicit Marked(std::string_view marker) : marker_(marker) {}

 private:
  static constexpr std::string_view kArguments = "[ARGS]", kId = "[CALL_ID]";

  bool step(std::vector<Part>& out) override {
    switch (at_) {
      case At::outside:
        if (!text_up_to(marker_, out)) return false;
        at_ = At::begin;
        return true;
      case At::begin:
        unread_.skip_space();
        if (unread_.empty()) return false;
        list_ = unread_.all()[0] == '[';
        if (list_) unread_.drop(1);
        if (list_ || unread_.all()[0] == '{') {
          call_.emplace(std::string(marker_) + (list_ ? "[" : ""));
          at_ = At::call;
        } else {
          at_ = At::name;
        }
        return true;
      case At::call:
        if (!call_->step(unread_, text_, out)) return false;
        at_ = call_->is_call() && list_ ? At::between : At::outside;
        call_.reset();
        return true;
      case At::between:
        unread_.skip_space();
        if (unread_.empty()) return false;
        if (unread_.all()[0] == ',') {
          unread_.drop(1);
          call_.emplace("");
          at_ = At::call;
        } else {
          if (unread_.all()[0] == ']') unread_.drop(1);
          at_ = At::outside;
        }
        return true;
      case At::name: {
        const std::size_t brace = unread_.all().find('{');
        if (brace == std::string::npos) return false;
        std::string name = unread_.take(brace);
        name.resize(std::min({name.size(), name.find(kArguments), name.find(kId)}));
        name.erase(name.find_last_not_of(" \t\r\n") + 1);
        begin_call(name, out);
        arguments_ = {};
        at_ = At::arguments;
        return true;
      }
      case At::arguments: {
        const std::size_t bytes = arguments_.push(unread_.all());
        out.push_back({Part::Kind::arguments, unread_.take(bytes)});
        if (!arguments_.done()) return false;
        at_ = At::outside;
        return true;
      }
    }
    AC_UNREACHABLE();
  }
  void end(std::vector<Part>& out) override {
    if (call_) call_->end(text_, out);
    if (at_ == At::begin || at_ == At::name) text_.push(marker_, out);
    if (at_ == At::outside || at_ == At::name) text_.push(unread_.all(), out);
  }

  const std::string_view marker_;
  enum class At { outside, begin, call, between, name, arguments } at_ = At::outside;
  bool list_ = false;
  std::optional<OneCall> call_;
  JsonEnd arguments_;
};

class DeepSeek : public Parser {
  static constexpr std::string_view kCalls = "<｜tool▁calls▁begin｜>",
                                    kNoMore = "<｜tool▁calls▁end｜>",
                                    kOpen = "<｜tool▁call▁begin｜>", kClose = "<｜tool▁call▁end｜>",
                                    kThen = "<｜tool▁sep｜>";

  bool step(std::vector<Part>& out) override {
    switch (at_) {
      case At::outside:
        if (!text_up_to(kCalls, out)) return false;
        at_ = At::between;
        return true;
      case At::between: {
        unread_.skip_space();
        const auto end = unread_.take_if(kNoMore), open = unread_.take_if(kOpen);
        if (end.value_or(false)) {
          at_ = At::outside;
        } else if (open.value_or(false)) {
          at_ = At::head;
        } else if (end && open) {  // neither: the calls are over
          at_ = At::outside;
        } else {
          return false;
        }
        return true;
      }
      case At::head:
        // function<sep>NAME\n```json\n{...}, or NAME<sep>{...}
        if (!head_) {
          std::string head;
          const std::size_t at = unread_.all().find(kThen);
          if (at == std::string::npos) return false;
          head = unread_.take(at);
          unread_.drop(kThen.size());
          head_ = std::move(head);
        }
        if (*head_ == "function") {
          const std::size_t line = unread_.all().find('\n');
          if (line == std::string::npos) return false;
          head_ = unread_.take(line);
        }
        if (const std::size_t brace = unread_.all().find('{'); brace == std::string::npos)
          return false;
        else
          unread_.drop(brace);
        begin_call(*std::exchange(head_, {}), out);
        arguments_ = {};
        at_ = At::arguments;
        return true;
      case At::arguments: {
        const std::size_t bytes = arguments_.push(unread_.all());
        out.push_back({Part::Kind::arguments, unread_.take(bytes)});
        if (!arguments_.done()) return false;
        at_ = At::close;
        return true;
      }
      case At::close:
        if (!unread_.take_to(kClose, nullptr)) return false;
        at_ = At::between;
        return true;
    }
    AC_UNREACHABLE();
  }
  void end(std::vector<Part>& out) override {
    if (at_ == At::outside) text_.push(unread_.all(), out);
  }

  enum class At { outside, between, head, arguments, close } at_ = At::outside;
  std::optional<std::string> head_;
  JsonEnd arguments_;
};

class Xml : public Parser {
 public:
  explicit Xml(const Json& tools) : tools_(tools) {}

 private:
  static constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>",
                                    kFunction = "<function=", kFunctionEnd = "</function>",
                                    kParameter = "<parameter=", kParameterEnd = "</parameter>";

  bool step(std::vector<Part>& out) override {
    switch (at_) {
      case At::outside:
        if (!text_up_to(kOpen, out)) return false;
        at_ = At::function;
        return true;
      case At::function: {
        unread_.skip_space();
        if (unread_.empty()) return false;
        if (!name_) {
          const auto is = unread_.take_if(kFunction);
          if (!is) return false;
          if (!*is) {
            text_.push(kOpen, out);
            at_ = At::outside;
            return true;
          }
          name_ = "";
        }
        const std::size_t end = unread_.all().find('>');
        if (end == std::string::npos) return false;
        name_ = unread_.take(end);
        unread_.drop(1);
        begin_call(*name_, out);
        out.push_back({Part::Kind::arguments, "{"});
        count_ = 0;
        at_ = At::parameter;
        return true;
      }
      case At::parameter: {
        unread_.skip_space();
        const auto parameter = unread_.take_if(kParameter), end = unread_.take_if(kFunctionEnd);
        if (parameter.value_or(false)) {
          at_ = At::value;
          return true;
        }
        if (!end.value_or(false) && !(parameter && end)) return false;
        out.push_back({Part::Kind::arguments, "}"});
        name_.reset();
        at_ = At::close;
        return true;
      }
      case At::value: {
        const std::size_t end = unread_.all().find(kParameterEnd);
        if (end == std::string::npos) return false;
        std::string value = unread_.take(end);
        unread_.drop(kParameterEnd.size());
        const std::size_t name_end = std::min(value.find('>'), value.size());
        const std::string name = value.substr(0, name_end);
        value.erase(0, name_end + 1);
        if (value.starts_with('\n')) value.erase(0, 1);
        if (value.ends_with('\n')) value.pop_back();
        out.push_back({Part::Kind::arguments, (count_++ > 0 ? ", " : "") + dump(name) + ": " +
                                                  dump(json_of(name, value))});
        at_ = At::parameter;
        return true;
      }
      case At::close:
        if (!unread_.take_to(kClose, nullptr)) return false;
        at_ = At::outside;
        return true;
    }
    AC_UNREACHABLE();
  }
  void end(std::vector<Part>& out) override {
    if (at_ == At::function)
      text_.push(std::string(kOpen) + std::string(name_ ? kFunction : ""), out);
    if (at_ == At::outside || at_ == At::function) text_.push(unread_.all(), out);
  }

  // Whether a schema says that a value may be of a type.
  static bool takes(const Json& schema, const std::string& type) {
    if (!schema.is_object()) return false;
    const auto any_of = [&](const char* name, const auto& is) {
      const auto found = schema.find(name);
      return found != schema.end() && found->is_array() && std::ranges::any_of(*found, is);
    };
    if (const auto only = schema.find("type"); only != schema.end() && only->is_string())
      return *only == type;
    const auto branch = [&](const Json& each) { return takes(each, type); };
    return any_of("type", [&](const Json& each) { return each == type; }) ||
           any_of("enum", [&](const Json& each) { return each.type_name() == type; }) ||
           any_of("anyOf", branch) || any_of("oneOf", branch);
  }
  // A string where the tool wants one; else JSON if it is some.
  Json json_of(const std::string& parameter, const std::string& value) const {
    const Json parsed = json_in(value);
    if (parsed.is_discarded()) return value;
    for (const Json& tool : tools_) {
      const Json& function = tool.at("function");
      if (function.at("name") != *name_) continue;
      const auto path = Json::json_pointer("/parameters/properties") / parameter;
      if (!function.contains(path) || !takes(function[path], "string")) continue;
      const bool fits = takes(function[path], parsed.type_name()) ||
                        (parsed.is_number_integer() && takes(function[path], "integer"));
      if (parsed.is_string() || !fits) return value;
    }
    return parsed;
  }

  const Json tools_;
  enum class At { outside, function, parameter, value, close } at_ = At::outside;
  std::optional<std::string> name_;
  int count_ = 0;
};

class Harmony : public PartParser {
 public:
  explicit Harmony(bool calls) : calls_(calls) {}

  void push(std::string_view text, std::vector<Part>& out) override {
    unread_.add(text);
    while (!unread_.empty() && step(out)) {
    }
  }
  void finish(std::vector<Part>& out) override {
    if (in_body_) give(unread_.all(), out);
  }

 private:
  static constexpr std::string_view kMessage = "<|message|>", kChannel = "<|channel|>",
                                    kTo = "to=functions.";
  static constexpr std::string_view kEnds[] = {"<|end|>", "<|call|>", "<|return|>", "<|start|>",
                                               kChannel};

  bool step(std::vector<Part>& out) {
    if (!in_body_) {
      if (!begun_ && !unread_.all().starts_with('<')) {  // no channel: all is text
        kind_ = Part::Kind::text;
        begun_ = in_body_ = true;
        return true;
      }
      begun_ = true;
      const std::size_t at = unread_.all().find(kMessage);
      if (at == std::string::npos) return false;
      begin(unread_.take(at), out);
      unread_.drop(kMessage.size());
      in_body_ = true;
      return true;
    }
    std::size_t end = std::string::npos, marker = 0, held = 0;
    for (const std::string_view each : kEnds) {
      if (const std::size_t at = unread_.all().find(each); at < end) end = at, marker = each.size();
      held = std::max(held, text::beginning_of(each, unread_.all()));
    }
    if (end == std::string::npos) {
      give(unread_.take(unread_.all().size() - held), out);
      return false;
    }
    give(unread_.take(end), out);
    unread_.drop(marker);
    in_body_ = false;
    return true;
  }
  void begin(const std::string& head, std::vector<Part>& out) {
    const std::size_t to = head.find(kTo);
    if (calls_ && to != std::string::npos) {
      std::string name = head.substr(to + kTo.size());
      name.resize(std::min(name.find_first_of(" <"), name.size()));
      out.push_back({Part::Kind::call, name});
      kind_ = Part::Kind::arguments;
      return;
    }
    // What the model says between calls in the channel "commentary" is for the user.
    const bool thinks = head.find("analysis") != std::string::npos || to != std::string::npos;
    kind_ = thinks ? Part::Kind::reasoning : Part::Kind::text;
  }
  void give(std::string text, std::vector<Part>& out) const {
    if (!text.empty()) out.push_back({kind_, std::move(text)});
  }

  const bool calls_;
  Unread unread_;
  bool begun_ = false, in_body_ = false;
  Part::Kind kind_ = Part::Kind::text;
};

}  // namespace

std::unique_ptr<PartParser> call_parser(ToolFormat format, const Json& tools) {
  switch (format) {
    case ToolFormat::none:
      return nullptr;
    case ToolFormat::hermes:
      return std::make_unique<Hermes>();
    case ToolFormat::xml:
      return std::make_unique<Xml>(tools);
    case ToolFormat::llama:
      return std::make_unique<Llama>(tools);
    case ToolFormat::mistral:
      return std::make_unique<Marked>("[TOOL_CALLS]");
    case ToolFormat::granite:
      return std::make_unique<Marked>("<|tool_call|>");
    case ToolFormat::deepseek:
      return std::make_unique<DeepSeek>();
    case ToolFormat::harmony:
      return harmony_parser(true);
  }
  AC_UNREACHABLE();
}

std::unique_ptr<PartParser> harmony_parser(bool calls) { return std::make_unique<Harmony>(calls); }

}  // namespace ac::api
