#include "build/cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "build/digest.h"

namespace ac {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUnfinished = ".unfinished-";
constexpr const char* kRecord = "record";
constexpr std::size_t kLargestRecord = 64u << 20, kLargestArtifact = 1u << 30;

std::string reason() { return std::strerror(errno); }

// A checksum in the first line, then JSON.
std::string written(const Json& record) {
  const std::string text = record.dump(1, ' ', false, Json::error_handler_t::replace);
  return sha256(text) + "\n" + text;
}

Json parsed(const std::string& content, const fs::path& path) {
  const std::size_t line = content.find('\n');
  if (line == std::string::npos || sha256(std::string_view(content).substr(line + 1)) !=
                                       std::string_view(content).substr(0, line))
    bad_input("{}: the checksum is wrong", path.string());
  return parse_json(content.substr(line + 1), path);
}

BuildResult result_of(const fs::path& folder, const std::string& key, const CacheEntry& entry,
                      bool from_cache) {
  if (entry.artifact_name.empty()) return CompileFailure{key, entry.log, entry.seconds, from_cache};
  return Artifact{.file = folder / entry.artifact_name,
                  .key = key,
                  .log = entry.log,
                  .seconds = entry.seconds,
                  .from_cache = from_cache,
                  .registers = entry.registers,
                  .spill_bytes = entry.spill_bytes,
                  .static_shared = entry.static_shared};
}

// Throws if anything is amiss.
BuildResult read_entry(const fs::path& folder, const std::string& key) {
  const fs::path path = folder / kRecord;
  const Json record = parsed(read_file(path, kLargestRecord), path);
  if (record.at("key") != key) bad_input("{}: of another kernel", path.string());
  const CacheEntry entry{.artifact_name = record.at("artifact"),
                         .log = record.at("log"),
                         .seconds = record.at("seconds"),
                         .registers = record.at("registers"),
                         .spill_bytes = record.at("spill_bytes"),
                         .static_shared = record.at("static_shared")};
  if (!entry.artifact_name.empty() &&
      sha256(read_file(folder / entry.artifact_name, kLargestArtifact)) != record.at("sha256"))
    bad_input("{}: the artifact is harmed", path.string());
  return result_of(folder, key, entry, true);
}

}  // namespace

KernelCache::Workspace::Workspace(const fs::path& cache) {
  std::string name = cache / (std::string(kUnfinished) + "XXXXXX");
  if (!mkdtemp(name.data()))
    job_failed("{}: cannot create a folder in the kernel cache: {}", cache.string(), reason());
  path_ = name;
  std::error_code error;
  for (const fs::path& folder : {scratch(), entry()})
    if (!fs::create_directory(folder, error))
      job_failed("{}: cannot create: {}", folder.string(), error.message());
}

KernelCache::Workspace::~Workspace() {
  std::error_code ignored;  // what is left is swept one day
  fs::remove_all(path_, ignored);
}

KernelCache::KernelCache(fs::path folder) : folder_(std::move(folder)) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (!fs::is_directory(folder_))
    job_failed("{}: cannot create the kernel cache: {}", folder_.string(), error.message());
  folder_ = fs::canonical(folder_);
  sweep();
}

void KernelCache::sweep() const {
  std::error_code ignored;
  const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(2);
  for (const auto& entry : fs::directory_iterator(folder_, ignored))
    if (entry.path().filename().string().starts_with(kUnfinished) &&
        fs::last_write_time(entry.path(), ignored) < long_ago)
      fs::remove_all(entry.path(), ignored);
}

std::optional<BuildResult> KernelCache::find(const std::string& key) const {
  const fs::path folder = folder_ / key;
  std::error_code error;
  if (!fs::exists(folder / kRecord, error)) return std::nullopt;
  try {
    return read_entry(folder, key);
  } catch (const Error&) {
    return std::nullopt;
  } catch (const Json::exception&) {  // another version's record
    return std::nullopt;
  }
}

BuildResult KernelCache::keep(const std::string& key, const Workspace& workspace,
                              const CacheEntry& entry) const {
  const fs::path artifact = workspace.entry() / entry.artifact_name;
  const Json record = {
      {"key", key},
      {"artifact", entry.artifact_name},
      {"sha256", entry.artifact_name.empty() ? "" : sha256(read_file(artifact, kLargestArtifact))},
      {"seconds", entry.seconds},
      {"registers", entry.registers},
      {"spill_bytes", entry.spill_bytes},
      {"static_shared", entry.static_shared},
      {"log", entry.log}};
  write_file(workspace.entry() / kRecord, written(record));

  const fs::path folder = folder_ / key;
  for (int attempt = 0; attempt < 100; ++attempt) {
    if (std::rename(workspace.entry().c_str(), folder.c_str()) == 0)
      return result_of(folder, key, entry, false);
    if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR)
      job_failed("{}: cannot rename into place: {}", folder.string(), reason());
    if (auto other = find(key)) return *other;
    remove_harmed(key);
  }
  job_failed("{}: a harmed entry of the kernel cache comes back again and again", folder.string());
}

// Under a lock and after another look: somebody may have mended the entry, and be using it.
void KernelCache::remove_harmed(const std::string& key) const {
  const fs::path lock_path = folder_ / ".lock";
  const int lock = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock < 0 || flock(lock, LOCK_EX) != 0) {
    const std::string why = reason();
    if (lock >= 0) close(lock);
    job_failed("{}: cannot lock: {}", lock_path.string(), why);
  }
  std::string why;
  try {
    if (!find(key)) {
      const Workspace grave(folder_);
      const fs::path folder = folder_ / key;
      if (std::rename(folder.c_str(), (grave.scratch() / key).c_str()) != 0 && errno != ENOENT)
        why = reason();
    }
  } catch (...) {
    close(lock);
    throw;
  }
  close(lock);
  if (!why.empty())
    job_failed("{}: cannot remove a harmed entry: {}", (folder_ / key).string(), why);
}

}  // namespace ac
