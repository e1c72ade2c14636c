#include "capture/hub_listing.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "checkpoint/model_files.h"
#include "checkpoint/weight_index.h"

namespace ac {
namespace {

constexpr JsonLimits kListingLimits{.bytes = 64u << 20, .depth = 32, .values = 2'000'000};
constexpr std::size_t kMaxFiles = 100'000;
constexpr std::uint64_t kMaxFileBytes = 1ull << 44;  // 16 TiB: sums of sizes cannot overflow

std::string string_member(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

bool is_hash(std::string_view text, std::size_t digits) {
  return text.size() == digits && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

RemoteFile read_file_entry(const Json& entry, const std::string& origin) {
  if (!entry.is_object()) bad_input("{}: a file's entry is not an object", origin);
  RemoteFile file{.name = string_member(entry, "rfilename"), .blob = {}};
  if (const std::string why = why_unsafe_name(file.name); !why.empty())
    bad_input("{}: the file name {} {}", origin, quote(file.name), why);

  const auto lfs = entry.find("lfs");
  file.blob.is_sha256 = lfs != entry.end() && lfs->is_object();
  file.blob.hash =
      file.blob.is_sha256 ? string_member(*lfs, "sha256") : string_member(entry, "blobId");
  if (!is_hash(file.blob.hash, file.blob.is_sha256 ? 64 : 40))
    bad_input("{}: file {} has no valid hash", origin, quote(file.name));
  const auto size = entry.find("size");
  if (size == entry.end() || !size->is_number_unsigned() ||
      size->get<std::uint64_t>() > kMaxFileBytes)
    bad_input("{}: file {} has no valid size", origin, quote(file.name));
  file.blob.size = size->get<std::uint64_t>();
  return file;
}

bool is_wanted_small_file(std::string_view name) {
  if (name.find('/') != name.npos) return false;
  if (name.starts_with("tokenizer") && (name.ends_with(".json") || name.ends_with(".model")))
    return true;
  return name == "config.json" || name == "generation_config.json" ||
         name == "hf_quant_config.json" || name == "special_tokens_map.json" ||
         name.starts_with("chat_template") || name == kWeightIndex;
}

}  // namespace

const RemoteFile* HubListing::find(std::string_view name) const {
  const auto found = std::ranges::find(files, name, &RemoteFile::name);
  return found == files.end() ? nullptr : &*found;
}

HubListing read_hub_listing(std::string_view json, const ModelId& id) {
  const std::string origin = fmt::format("the hub's listing of {}", id.repository);
  const Json root = parse_json(json, origin, kListingLimits);
  if (!root.is_object()) bad_input("{}: not an object", origin);
  HubListing listing{.commit = string_member(root, "sha"), .files = {}};
  if (!is_commit(listing.commit)) bad_input("{}: \"sha\" is not a commit hash", origin);
  const auto siblings = root.find("siblings");
  if (siblings == root.end() || !siblings->is_array())
    bad_input("{}: has no array \"siblings\"", origin);
  if (siblings->size() > kMaxFiles) bad_input("{}: {} files", origin, siblings->size());
  for (const Json& entry : *siblings) listing.files.push_back(read_file_entry(entry, origin));
  return listing;
}

std::vector<RemoteFile> small_files(const HubListing& listing) {
  std::vector<RemoteFile> wanted;
  std::ranges::copy_if(listing.files, std::back_inserter(wanted), is_wanted_small_file,
                       &RemoteFile::name);
  return wanted;
}

}  // namespace ac
