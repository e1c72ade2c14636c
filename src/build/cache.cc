#include "build/cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "base/error.h"
#include "base/files.h"
#include "base/folders.h"
#include "base/warning.h"
#include "build/cache_record.h"
#include "build/digest.h"

namespace ac {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUnfinished = ".unfinished-";
constexpr const char* kRecord = "record";
constexpr std::size_t kLargestArtifact = 1u << 30;

std::string reason() { return std::strerror(errno); }

BuildResult result_of(const fs::path& folder, const std::string& key, const CacheEntry& entry,
                      bool from_cache) {
  if (entry.artifact_name.empty()) return CompileFailure{key, entry.log, entry.seconds, from_cache};
  return Artifact{.file = folder / entry.artifact_name,
                  .key = key,
                  .digest = entry.digest,
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
  const Json record = read_record(path, key);
  try {
    const CacheEntry entry{.artifact_name = record.at("artifact"),
                           .digest = record.at("sha256"),
                           .log = record.at("log"),
                           .seconds = record.at("seconds"),
                           .registers = record.at("registers"),
                           .spill_bytes = record.at("spill_bytes"),
                           .static_shared = record.at("static_shared")};
    const fs::path artifact = folder / entry.artifact_name;
    if (!entry.artifact_name.empty() &&
        sha256(read_file(artifact, kLargestArtifact)) != entry.digest)
      bad_input("{}: it is damaged: its checksum is wrong", artifact.string());
    return result_of(folder, key, entry, true);
  } catch (const Json::exception& error) {
    bad_input("{}: not as this program writes it ({})", path.string(), error.what());
  }
}

}  // namespace

KernelCache::Workspace::Workspace(const fs::path& cache) : folder_(cache, kUnfinished) {
  std::error_code error;
  for (const fs::path& folder : {scratch(), entry()})
    if (!fs::create_directory(folder, error))
      job_failed("{}: cannot create: {}", folder.string(), error.message());
}

KernelCache::KernelCache(fs::path folder) : folder_(std::move(folder)) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (is_read_only(folder_))
    own_.emplace();
  else if (!fs::is_directory(folder_))
    job_failed("{}: cannot create the kernel cache: {}", folder_.string(), error.message());
  if (fs::is_directory(folder_)) folder_ = fs::canonical(folder_);
  if (!own_) TemporaryFolder::sweep(folder_, kUnfinished);
}

KernelCache::Workspace KernelCache::workspace() const {
  if (own_)
    warn("{}: the kernel cache cannot be written: what is built now is not kept", folder_.string());
  return Workspace(writable());
}

std::optional<BuildResult> KernelCache::find(const std::string& key) const {
  if (std::optional<BuildResult> known = find_in(folder_, key)) return known;
  return own_ ? find_in(own_->path(), key) : std::nullopt;
}

std::optional<BuildResult> KernelCache::find_in(const fs::path& cache,
                                                const std::string& key) const {
  const fs::path folder = cache / key;
  std::error_code error;
  if (!fs::exists(folder / kRecord, error)) return std::nullopt;
  try {
    return read_entry(folder, key);
  } catch (const Error& harmed) {
    // Another process may be mending it right now.
    if (fs::exists(folder / kRecord, error)) warn("{}; the kernel is built anew", harmed.what());
    return std::nullopt;
  }
}

BuildResult KernelCache::keep(const std::string& key, const Workspace& workspace,
                              CacheEntry entry) const {
  const fs::path artifact = workspace.entry() / entry.artifact_name;
  if (!entry.artifact_name.empty()) entry.digest = sha256(read_file(artifact, kLargestArtifact));
  const Json record = {{"artifact", entry.artifact_name},
                       {"sha256", entry.digest},
                       {"seconds", entry.seconds},
                       {"registers", entry.registers},
                       {"spill_bytes", entry.spill_bytes},
                       {"static_shared", entry.static_shared},
                       {"log", entry.log}};
  write_file(workspace.entry() / kRecord, record_text(key, record));

  const fs::path folder = writable() / key;
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
  const fs::path lock_path = writable() / ".lock";
  const int lock = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock < 0 || flock(lock, LOCK_EX) != 0) {
    const std::string why = reason();
    if (lock >= 0) close(lock);
    job_failed("{}: cannot lock: {}", lock_path.string(), why);
  }
  std::string why;
  try {
    if (!find(key)) {
      const Workspace grave(writable());
      const fs::path folder = writable() / key;
      if (std::rename(folder.c_str(), (grave.scratch() / key).c_str()) != 0 && errno != ENOENT)
        why = reason();
    }
  } catch (...) {
    close(lock);
    throw;
  }
  close(lock);
  if (!why.empty())
    job_failed("{}: cannot remove a harmed entry: {}", (writable() / key).string(), why);
}

}  // namespace ac
