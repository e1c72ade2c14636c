// A conversation with a model: what was said, and what the model answers. Keys and values that the
// next prompt shares with what was said are kept.
#pragma once

#include <functional>
#include <string>

#include "base/json.h"
#include "cli/text_model.h"

namespace ac {

class Dialogue {
 public:
  // An empty system text is none.
  Dialogue(TextModel& model, const std::string& system);

  struct Shown {
    std::string text;
    bool thinking = false;  // reasoning, without its tags
  };
  // The user's message and the model's answer become part of the conversation; neither does if that
  // fails, or if it is stopped before there is a token.
  TextAnswer ask(const std::string& message, const std::function<void(const Shown&)>& on_text,
                 const std::function<bool()>& stopped);

  void reset();  // to the system's text
  const std::string& system() const { return system_; }
  void set_system(const std::string& text);
  const Json& messages() const { return messages_; }
  // As `messages` of an earlier conversation; anything else is an error (bad_input).
  void load(const Json& saved, const std::string& origin);

 private:
  TextModel& model_;
  std::string system_;
  Json messages_ = Json::array();
};

}  // namespace ac
