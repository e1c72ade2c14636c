#include "runtime/fingerprint.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "build/digest.h"
#include "checkpoint/weight_part.h"
#include "gguf/gguf_model.h"

namespace ac {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "weights.json";
constexpr int kFormat = 1;
// Of each tensor so many pieces are looked at, the first and the last among them.
constexpr std::size_t kPieces = 4, kPieceBytes = 4096;

// A copy of a part of a mapped file. The system would read megabytes around each place.
std::string copy_alone(std::string_view part) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(part.data()) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(part.data() + part.size());
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_RANDOM);
  std::string copy(part);
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_NORMAL);
  return copy;
}

std::string sample_of(const StoredTensor& view) {
  const std::string_view bytes(reinterpret_cast<const char*>(view.bytes.data()), view.bytes.size());
  if (bytes.size() <= kPieces * kPieceBytes) return sha256(bytes);
  std::string pieces;
  for (std::size_t i = 0; i < kPieces; ++i)
    pieces +=
        copy_alone(bytes.substr((bytes.size() - kPieceBytes) * i / (kPieces - 1), kPieceBytes));
  return sha256(pieces);
}

TensorPrint print_of(const StoredTensor& stored) {
  return {stored.type, stored.shape, sample_of(stored)};
}

// As the file has it. Another shape is an error (bad_input).
StoredTensor require_as_stored(const Checkpoint& checkpoint, const std::string& key,
                               const std::vector<std::int64_t>& shape) {
  std::optional<StoredTensor> stored = checkpoint.find_stored(key);
  if (!stored || stored->shape != shape) checkpoint.require(key, shape);  // says what is wrong
  return *std::move(stored);
}

StoredTensor stored_of(const Checkpoint& checkpoint, const Buffer& buffer) {
  if (buffer.in_file.format.is_plain())
    return require_as_stored(checkpoint, buffer.key, buffer.shape);
  // Parts of blocks are made, and only for who loads them.
  if (buffer.in_file.layout != FileLayout::gguf || !checkpoint.find_stored(buffer.key))
    require_stored(checkpoint, buffer.key, buffer.shape, buffer.in_file);
  return checkpoint.find_stored(buffer.key).value();
}

// Fields that no result of a decoder depends on.
constexpr std::array kWithoutMeaning = {
    "_name_or_path", "architectures", "transformers_version", "use_cache",         "bos_token_id",
    "eos_token_id",  "pad_token_id",  "attention_dropout",    "initializer_range", "label2id",
    "id2label",
};

// With its fields in one order.
nlohmann::json meaning_of(const Json& json) {
  if (json.is_array()) {
    nlohmann::json list = nlohmann::json::array();
    for (const Json& value : json) list.push_back(meaning_of(value));
    return list;
  }
  if (!json.is_object()) return json;
  nlohmann::json object = nlohmann::json::object();
  for (const auto& [key, value] : json.items())
    if (std::ranges::find(kWithoutMeaning, key) == kWithoutMeaning.end())
      object[key] = meaning_of(value);
  return object;
}

std::string config_of(const fs::path& folder) {
  if (is_gguf(folder)) return sha256(meaning_of(GgufModel(folder).config()).dump());
  const fs::path file = folder / "config.json";
  std::error_code error;
  return fs::is_regular_file(file, error) ? sha256(meaning_of(read_json(file)).dump())
                                          : std::string();
}

bool has_weights(const fs::path& path) {
  std::error_code error;
  if (fs::is_regular_file(path, error)) return true;
  for (const auto& entry : fs::directory_iterator(path, error))
    if (entry.path().extension() == ".safetensors") return true;
  return false;
}

std::string others(std::size_t count) {
  return count > 1 ? fmt::format(" (and {} more)", count - 1) : std::string();
}

}  // namespace

bool is_own(const std::string& store_path) { return !fs::path(store_path).is_absolute(); }

Checkpoint open_store(const fs::path& path) {
  return fs::is_directory(path)
             ? Checkpoint::open_model(path)
             : Checkpoint::open_file(path.parent_path(), path.filename().string());
}

Fingerprint fingerprint_of(const Program& program, std::vector<std::string>& warnings) {
  Fingerprint fingerprint;
  for (const auto& [store, path] : program.stores) {
    if (is_own(path) || !has_weights(path)) continue;
    try {
      const Checkpoint checkpoint = open_store(path);
      CheckpointPrint print;
      for (const Buffer& buffer : program.buffers)
        if (buffer.role == Buffer::Role::weight && buffer.store == store)
          print.tensors[buffer.key] = print_of(stored_of(checkpoint, buffer));
      print.config = config_of(path);
      fingerprint[store] = std::move(print);
    } catch (const Error& error) {
      warnings.push_back(
          fmt::format("{}; the package will ask for its weights by --checkpoint", error.what()));
    }
  }
  return fingerprint;
}

namespace {

Json to_json(const Fingerprint& fingerprint) {
  Json stores = Json::object();
  for (const auto& [store, print] : fingerprint) {
    Json tensors = Json::object();
    for (const auto& [name, tensor] : print.tensors)
      tensors[name] = {tensor.dtype, tensor.shape, tensor.sample};
    stores[store] = {{"config", print.config}, {"tensors", std::move(tensors)}};
  }
  return stores;
}

// Of each file of weights, by name.
std::map<std::string, std::string> stamps_of(const fs::path& path) {
  std::map<std::string, std::string> stamps;
  const auto add = [&](const fs::path& file) {
    struct stat info{};
    if (stat(file.c_str(), &info) != 0) job_failed("{}: {}", file.string(), std::strerror(errno));
    stamps[file.filename().string()] = fmt::format("{} bytes of {}.{:09}", info.st_size,
                                                   info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
  };
  if (!fs::is_directory(path))
    add(path);
  else
    for (const auto& entry : fs::directory_iterator(path))
      if (entry.path().extension() == ".safetensors") add(entry.path());
  return stamps;
}

}  // namespace

void write_fingerprint(const Fingerprint& fingerprint, const fs::path& package) {
  write_file(package / kFile,
             Json{{"format", kFormat}, {"stores", to_json(fingerprint)}}.dump(1) + "\n");
}

std::string identity_of_weights(const Program& program, const fs::path& named) {
  Program placed = program;
  Json stamps = Json::object();
  for (auto& [store, path] : placed.stores) {
    if (is_own(path)) continue;
    if (!named.empty()) path = named.string();
    stamps[store] = stamps_of(path);
  }
  std::vector<std::string> warnings;
  const Fingerprint fingerprint = fingerprint_of(placed, warnings);
  if (!warnings.empty()) job_failed("{}", warnings.front());
  return sha256(to_json(fingerprint).dump() + stamps.dump());
}

Fingerprint read_fingerprint(const PackageFiles& files) {
  Fingerprint fingerprint;
  const std::string origin = (files.folder() / kFile).string();
  const Json json = parse_json(files.read(kFile), origin);
  try {
    if (json.at("format") != kFormat) bad_input("{}: compile the model again", origin);
    for (const auto& [store, from] : json.at("stores").items()) {
      CheckpointPrint& print = fingerprint[store];
      from.at("config").get_to(print.config);
      for (const auto& [name, tensor] : from.at("tensors").items())
        print.tensors[name] = {tensor.at(0), tensor.at(1), tensor.at(2)};
    }
  } catch (const Json::exception& error) {
    bad_input("{}: not as this program writes it: compile the model again ({})", origin,
              error.what());
  }
  return fingerprint;
}

std::optional<Difference> difference(const CheckpointPrint& print, const Checkpoint& checkpoint) {
  std::vector<std::string> values;
  for (const auto& [name, wanted] : print.tensors) {
    const StoredTensor stored = require_as_stored(checkpoint, name, wanted.shape);
    if (stored.type != wanted.dtype)
      return Difference{false, fmt::format("{}: tensor {} is {}, and was {}", stored.file,
                                           quote(name), stored.type, wanted.dtype)};
    if (sample_of(stored) != wanted.sample)
      values.push_back(fmt::format("{}: tensor {}", stored.file, quote(name)));
  }
  if (values.empty()) return {};
  return Difference{true, fmt::format("{}{} has other values", values[0], others(values.size()))};
}

bool config_differs(const CheckpointPrint& print, const fs::path& folder) {
  if (print.config.empty()) return false;
  const std::string config = config_of(folder);
  return !config.empty() && config != print.config;
}

}  // namespace ac
