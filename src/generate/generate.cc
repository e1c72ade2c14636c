#include "generate/generate.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "program/program.h"

namespace ac {

int Generated::refer(const Storage& storage) {
  const auto known = std::find(storages.begin(), storages.end(), storage);
  if (known != storages.end()) return static_cast<int>(known - storages.begin());
  storages.push_back(storage);
  return static_cast<int>(storages.size()) - 1;
}

namespace {

constexpr std::array<std::string_view, 10> kStorages = {
    "value", "keys",      "values",   "position", "token",
    "log",   "workspace", "counters", "settings", "rope_table"};

}  // namespace

Json to_json(const Storage& storage) {
  Json json{{"kind", kStorages[static_cast<std::size_t>(storage.kind)]}};
  if (storage.node >= 0) json["node"] = storage.node;
  if (storage.cache >= 0) json["cache"] = storage.cache;
  if (storage.bytes != Count()) json["bytes"] = to_json(storage.bytes);
  if (storage.scale != 1) json["scale"] = storage.scale;
  return json;
}

Storage storage_from_json(const Json& json, const std::string& origin) {
  Storage storage;
  const auto kind =
      std::find(kStorages.begin(), kStorages.end(), json.at("kind").get<std::string>());
  if (kind == kStorages.end()) bad_input("{}: a storage of unknown kind", origin);
  storage.kind = static_cast<Storage::Kind>(kind - kStorages.begin());
  storage.node = json.value("node", -1);
  storage.cache = json.value("cache", std::int64_t{-1});
  if (json.contains("bytes")) storage.bytes = count_from_json(json.at("bytes"), origin);
  storage.scale = json.value("scale", 1.0);
  return storage;
}

}  // namespace ac
