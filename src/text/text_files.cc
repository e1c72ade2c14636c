#include "text/text_files.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/files.h"
#include "gguf/gguf_model.h"

namespace ac::text {

std::optional<TextFile> read_text_file(const std::filesystem::path& model, std::string_view name,
                                       std::size_t max_bytes) {
  if (is_gguf(model)) {
    std::optional<std::string> text = gguf_document(model, name);
    if (!text) return std::nullopt;
    return TextFile{*std::move(text), fmt::format("{} (as {})", model.string(), name)};
  }
  const std::filesystem::path file = model / name;
  if (!std::filesystem::exists(file)) return std::nullopt;
  return TextFile{read_file(file, max_bytes), file.string()};
}

bool has_tokenizer(const std::filesystem::path& model) {
  if (is_gguf(model)) return GgufFile(model).has("tokenizer.ggml.tokens");
  std::error_code error;
  const std::filesystem::path file = model / "tokenizer.json";
  const bool there = std::filesystem::exists(file, error);
  if (error == std::errc::permission_denied) bad_input("{}: {}", file.string(), error.message());
  return there;
}

}  // namespace ac::text
