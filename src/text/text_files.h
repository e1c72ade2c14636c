// The files beside a checkpoint that say how text becomes tokens, how a conversation becomes a
// prompt, and how tokens are chosen. A package keeps copies of them in a folder of its own.
#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace ac::text {

inline constexpr const char* kTextFolder = "text";  // of a package
inline constexpr std::array kTextFiles = {
    "tokenizer.json",         "tokenizer_config.json", "special_tokens_map.json", "config.json",
    "generation_config.json", "chat_template.jinja",   "chat_template.json",
};
inline constexpr const char* kMoreTemplates =
    "additional_chat_templates";  // a folder of .jinja files

struct TextFile {
  std::string text, origin;
};
// The file of this name in a model's folder, or what a GGUF file says in its place; nothing where
// there is none.
std::optional<TextFile> read_text_file(const std::filesystem::path& model, std::string_view name,
                                       std::size_t max_bytes);
// Whether a folder or a GGUF file has a tokenizer.
bool has_tokenizer(const std::filesystem::path& model);

}  // namespace ac::text
