#include "capture/hub.h"

#include <algorithm>
#include <cctype>
#include <system_error>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "checkpoint/model_files.h"

namespace ac {
namespace fs = std::filesystem;
namespace {

bool is_word(unsigned char c) { return std::isalnum(c) || c == '_'; }

// The hub's own rule: up to 96 of A-Z a-z 0-9 _ - . with a letter, digit or _ at both ends.
bool is_repository_part(std::string_view part) {
  return !part.empty() && part.size() <= 96 && is_word(part.front()) && is_word(part.back()) &&
         std::ranges::all_of(part,
                             [](unsigned char c) { return is_word(c) || c == '-' || c == '.'; }) &&
         part.find("--") == part.npos && part.find("..") == part.npos;
}

bool is_revision(std::string_view text) {
  return text.size() <= 200 && why_unsafe_name(text).empty() &&
         std::ranges::all_of(text, [](unsigned char c) {
           return is_word(c) || c == '-' || c == '.' || c == '/' || c == '+';
         });
}

std::string trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())))
    text.remove_suffix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())))
    text.remove_prefix(1);
  return std::string(text);
}

bool has_config(const fs::path& directory) {
  std::error_code ignored;
  return fs::exists(directory / "config.json", ignored);
}

// A path that the user plainly meant as one: no use to look it up as an id.
bool looks_like_path(std::string_view source) {
  return source.starts_with('/') || source.starts_with("./") || source.starts_with("../") ||
         source.starts_with('~') || source.ends_with('/') || source == "." || source == "..";
}

}  // namespace

std::optional<ModelId> parse_model_id(std::string_view text) {
  ModelId id{.repository = std::string(text), .revision = "main"};
  if (const auto at = text.find('@'); at != text.npos) {
    id.repository = text.substr(0, at);
    id.revision = text.substr(at + 1);
  }
  const std::string_view repository = id.repository;
  const auto slash = repository.find('/');
  const bool right = slash == repository.npos
                         ? is_repository_part(repository)
                         : is_repository_part(repository.substr(0, slash)) &&
                               is_repository_part(repository.substr(slash + 1));
  if (!right || !is_revision(id.revision)) return std::nullopt;
  return id;
}

fs::path repository_folder(const fs::path& cache, const ModelId& id) {
  std::string folder = "models--" + id.repository;
  if (const auto slash = folder.find('/'); slash != folder.npos) folder.replace(slash, 1, "--");
  return cache / folder;
}

bool is_commit(std::string_view text) {
  return text.size() == 40 && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::optional<fs::path> find_in_cache(const fs::path& cache, const ModelId& id) {
  const fs::path repository = repository_folder(cache, id);
  std::string commit = id.revision;
  const fs::path reference = repository / "refs" / id.revision;
  std::error_code ignored;
  if (fs::is_regular_file(reference, ignored)) {
    commit = trimmed(read_file(reference, 1000));
    if (!is_commit(commit))
      bad_input("{}: {} is not a commit hash", reference.string(), quote(commit));
  } else if (!is_commit(commit)) {
    return std::nullopt;
  }
  const fs::path snapshot = repository / "snapshots" / commit;
  if (!has_config(snapshot)) return std::nullopt;
  return snapshot;
}

fs::path resolve_model(const std::string& source, const Environment& environment) {
  std::error_code ignored;
  if (fs::is_directory(source, ignored)) {
    if (has_config(source)) return source;
    bad_input("{}: the directory holds no config.json, so it is no HuggingFace model", source);
  }
  if (looks_like_path(source)) bad_input("{}: there is no such directory", source);
  const auto id = parse_model_id(source);
  if (!id)
    bad_input("{}: neither a directory nor a model id (\"org/name\" or \"org/name@revision\")",
              quote(source));
  if (environment.hub_cache.empty())
    wrong_usage("{}: cannot look it up: set HOME, HF_HOME or HF_HUB_CACHE", source);
  if (auto snapshot = find_in_cache(environment.hub_cache, *id)) return *snapshot;
  bad_input(
      "{}: no such directory, and revision {} is not in the HuggingFace cache ({}); "
      "fetch it: agentcompile pull {}, or --download",
      source, quote(id->revision), repository_folder(environment.hub_cache, *id).string(), source);
}

std::string hub_token(const Environment& environment) {
  if (!environment.hf_token.empty() || environment.hf_home.empty()) return environment.hf_token;
  const fs::path file = environment.hf_home / "token";
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return {};
  const std::string token = trimmed(read_file(file, 10'000));
  if (!std::ranges::all_of(token, [](unsigned char c) { return std::isgraph(c); }))
    bad_input("{}: holds more than one token", file.string());
  return token;
}

}  // namespace ac
