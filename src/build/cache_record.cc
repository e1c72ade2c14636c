#include "build/cache_record.h"

#include "base/error.h"
#include "base/files.h"
#include "build/digest.h"

namespace ac {
namespace {

constexpr std::size_t kLargest = 64u << 20;

}  // namespace

// The checksum in the first line, then the JSON.
std::string record_text(const std::string& key, Json content) {
  content["key"] = key;
  const std::string text = content.dump(1, ' ', false, Json::error_handler_t::replace);
  return sha256(text) + "\n" + text;
}

Json read_record(const std::filesystem::path& path, const std::string& key) {
  const std::string file = read_file(path, kLargest);
  const std::string_view all = file;
  const std::size_t line = all.find('\n');
  if (line == std::string::npos || sha256(all.substr(line + 1)) != all.substr(0, line))
    bad_input("{}: it is damaged: its checksum is wrong", path.string());
  Json content = parse_json(all.substr(line + 1), path);
  if (!content.is_object() || content.value("key", Json()) != key)
    bad_input("{}: it belongs elsewhere: it is about something else", path.string());
  return content;
}

}  // namespace ac
