// The files beside a checkpoint that say how text becomes tokens, how a conversation becomes a
// prompt, and how tokens are chosen. A package keeps copies of them in a folder of its own.
#pragma once

#include <array>

namespace ac::text {

inline constexpr const char* kTextFolder = "text";  // of a package
inline constexpr std::array kTextFiles = {
    "tokenizer.json",         "tokenizer_config.json", "special_tokens_map.json", "config.json",
    "generation_config.json", "chat_template.jinja",   "chat_template.json",
};
inline constexpr const char* kMoreTemplates =
    "additional_chat_templates";  // a folder of .jinja files

}  // namespace ac::text
