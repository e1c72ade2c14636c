// Reading untrusted JSON. The parser of nlohmann-json is iterative, but destroying, copying and
// dumping a value recurse, so depth is capped while parsing; size is capped before reading.
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace ac {

using Json = nlohmann::ordered_json;

struct JsonLimits {
  std::size_t bytes = 256u << 20;
  int depth = 64;
  // Values of all kinds; each costs memory many times its text.
  std::size_t values = 32'000'000;
};

// `origin` names the text in errors (a file name, usually). Duplicate keys are an error.
Json parse_json(std::string_view text, const std::string& origin, JsonLimits limits = {});
Json read_json(const std::filesystem::path& path, JsonLimits limits = {});

}  // namespace ac
