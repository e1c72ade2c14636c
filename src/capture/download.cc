#include "capture/download.h"

#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "capture/blob_store.h"
#include "capture/hub_listing.h"
#include "checkpoint/weight_index.h"
#include "net/http_client.h"

namespace ac {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kMaxListingBytes = 64u << 20;
constexpr std::chrono::seconds kLongestDelay{60};

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) job_failed("{}: cannot create the folder: {}", folder.string(), error.message());
}

// "bytes 100-199/200" -> starts at 100
bool starts_at(const std::string& content_range, std::uint64_t offset) {
  return content_range.starts_with(fmt::format("bytes {}-", offset));
}

class Downloader {
 public:
  Downloader(const ModelId& id, const DownloadOptions& options)
      : id_(id),
        options_(options),
        client_(options.endpoint, options.token, "HF_ENDPOINT"),
        repository_(repository_folder(options.cache, id)) {}

  fs::path run() {
    listing_ = fetch_listing();
    check_format();
    snapshot_ = repository_ / "snapshots" / listing_.commit;
    make_folder(repository_ / "blobs");
    make_folder(repository_ / "refs");
    make_folder(options_.cache / ".locks" / repository_.filename());
    make_folder(snapshot_);
    fetch_all(small_files(listing_));
    fetch_all(weight_files());
    if (id_.revision != listing_.commit) {
      const fs::path reference = repository_ / "refs" / id_.revision;
      make_folder(reference.parent_path());
      write_file_atomically(reference, listing_.commit);
    }
    return snapshot_;
  }

 private:
  HubListing fetch_listing() {
    const std::string url =
        fmt::format("{}/api/models/{}/revision/{}?blobs=true", options_.endpoint, id_.repository,
                    url_encode(id_.revision, false));
    std::string body;
    persist("the list of files", [&] {
      body.clear();
      return client_.get(url, 0, [&](const HttpHead&, std::string_view bytes) {
        if (body.size() + bytes.size() > kMaxListingBytes)
          bad_input("{}: the hub's listing is larger than {} bytes", id_.repository,
                    kMaxListingBytes);
        body += bytes;
      });
    });
    return read_hub_listing(body, id_);
  }

  // Before anything is fetched: would we be able to use it?
  void check_format() const {
    if (!listing_.find("config.json"))
      bad_input("{}: the repository has no config.json, so it is no HuggingFace model",
                id_.repository);
    const auto ends_in = [&](std::string_view ending) {
      return std::ranges::any_of(listing_.files,
                                 [&](const auto& file) { return file.name.ends_with(ending); });
    };
    if (!ends_in(".safetensors"))
      bad_input("{}: the repository has no safetensors weights{}", id_.repository,
                ends_in(".bin") || ends_in(".pth")
                    ? ", only pickles, which can run code when read; convert it to safetensors"
                    : "");
  }

  // The same choice as Checkpoint::open_model.
  std::vector<RemoteFile> weight_files() const {
    const RemoteFile* single = listing_.find(kSingleWeights);
    if (listing_.find(kWeightIndex)) {
      const fs::path path = snapshot_ / kWeightIndex;
      const WeightIndex index = read_weight_index(path, path.string());
      if (!single || index.mentions(kSingleWeights)) {
        std::vector<RemoteFile> shards;
        for (const std::string& shard : index.shards) {
          const RemoteFile* file = listing_.find(shard);
          if (!file)
            bad_input("{}: {} names {}, which the repository does not have", id_.repository,
                      kWeightIndex, quote(shard));
          shards.push_back(*file);
        }
        return shards;
      }
    }
    if (single) return {*single};
    std::vector<RemoteFile> all;
    for (const RemoteFile& file : listing_.files)
      if (file.name.ends_with(".safetensors") && file.name.find('/') == file.name.npos)
        all.push_back(file);
    return all;
  }

  bool have(const RemoteFile& file) const {
    std::error_code error;
    return fs::file_size(blob_path(file), error) == file.blob.size && !error;
  }

  fs::path blob_path(const RemoteFile& file) const {
    return repository_ / "blobs" / file.blob.hash;
  }

  void fetch_all(const std::vector<RemoteFile>& files) {
    std::uint64_t missing = 0;
    for (const RemoteFile& file : files) {
      progress_.total += file.blob.size;
      if (have(file)) continue;
      std::error_code none_yet;
      const auto partial = fs::file_size(blob_path(file).string() + ".incomplete", none_yet);
      missing += file.blob.size - (none_yet ? 0 : std::min<std::uint64_t>(partial, file.blob.size));
    }
    std::error_code error;
    const fs::space_info space = fs::space(repository_, error);
    if (!error && missing > space.available)
      job_failed("{}: not enough disk space: {} needs {} bytes more, {} are free",
                 repository_.string(), id_.repository, missing, space.available);
    for (const RemoteFile& file : files) fetch(file);
  }

  void fetch(const RemoteFile& file) {
    const std::uint64_t before = progress_.bytes;
    progress_.file = file.name;
    progress_.file_total = file.blob.size;
    if (!have(file)) {
      const fs::path lock_file =
          options_.cache / ".locks" / repository_.filename() / (file.blob.hash + ".lock");
      const BlobLock lock(lock_file, [&] {
        say(fmt::format("{}: another process is fetching it; waiting", file.name));
      });
      if (!have(file)) fetch_blob(file, before);  // another process may have, meanwhile
    }
    link_into_snapshot(file);
    progress_.bytes = before + file.blob.size;
    progress_.file_bytes = file.blob.size;
    report(true);
  }

  void fetch_blob(const RemoteFile& file, std::uint64_t bytes_before) {
    PartialBlob partial(repository_ / "blobs", file.blob);
    bool resumed = partial.size() > 0;
    while (true) {
      if (partial.size() < file.blob.size)
        persist(quote(file.name), [&] { return fetch_rest(file, partial, bytes_before); });
      if (partial.is_right()) return partial.publish();
      partial.restart();
      // What an earlier try left may be to blame: once more, from nothing.
      if (!resumed)
        bad_input(
            "{}: the file {} came with a wrong hash (expected {}): damaged on the way or "
            "not what the hub lists; try again later",
            id_.repository, quote(file.name), file.blob.hash);
      resumed = false;
    }
  }

  HttpResult fetch_rest(const RemoteFile& file, PartialBlob& partial, std::uint64_t bytes_before) {
    const std::string url = fmt::format("{}/{}/resolve/{}/{}", options_.endpoint, id_.repository,
                                        listing_.commit, url_encode(file.name, true));
    const std::uint64_t from = partial.size();
    bool first = true;
    HttpResult result = client_.get(url, from, [&](const HttpHead& head, std::string_view bytes) {
      if (std::exchange(first, false)) {
        const bool is_rest = head.status == 206 && starts_at(head.content_range, from);
        if (head.status == 206 && !is_rest)
          bad_input("{}: the server sent another part of {} than was asked for ({})",
                    id_.repository, quote(file.name), quote(head.content_range));
        if (!is_rest) partial.restart();  // the server does not do ranges: all of it comes
      }
      if (bytes.size() > file.blob.size - partial.size())
        bad_input("{}: the server sent more of {} than the {} bytes it lists", id_.repository,
                  quote(file.name), file.blob.size);
      partial.append(bytes);
      progress_.file_bytes = partial.size();
      progress_.bytes = bytes_before + partial.size();
      report(false);
    });
    if (result.status == 416) partial.restart();
    if (result.status == 416 || (result.ok() && partial.size() < file.blob.size))
      return {.failure = "the file ended early",
              .worth_retrying = true,
              .made_progress = partial.size() > from};
    result.made_progress = partial.size() > from;
    return result;
  }

  // Repeats `attempt` while that may help; throws an explained error when it does not.
  template <class Attempt>
  void persist(const std::string& what, const Attempt& attempt) {
    std::chrono::milliseconds delay = options_.first_delay;
    for (int failures = 0;;) {
      const HttpResult result = attempt();
      if (result.ok()) return;
      if (result.made_progress) {
        failures = 0;
        delay = options_.first_delay;
      }
      if (!result.worth_retrying || ++failures >= options_.attempts) explain(what, result);
      const std::chrono::milliseconds wait = std::min<std::chrono::milliseconds>(
          std::max<std::chrono::milliseconds>(delay, result.retry_after), kLongestDelay);
      say(fmt::format("{} of {}: {}; trying again in {:.1f} s", what, id_.repository,
                      result.failure, std::chrono::duration<double>(wait).count()));
      std::this_thread::sleep_for(wait);
      delay *= 2;
    }
  }

  [[noreturn]] void explain(const std::string& what, const HttpResult& result) const {
    const std::string page = options_.endpoint + "/" + id_.repository;
    if (result.status == 401 || result.status == 403)
      job_failed(
          "{}: the hub refuses {} (HTTP {}): the model is gated, private or does not exist. "
          "Accept its licence at {} and set HF_TOKEN to a token of that account{}",
          id_.repository, what, result.status, page,
          options_.token.empty() ? " (none is set)" : "");
    if (result.status == 404)
      job_failed("{}: the hub has no {} for revision {} (HTTP 404); look at {}", id_.repository,
                 what, quote(id_.revision), page);
    job_failed("{}: cannot fetch {} from {}: {}", id_.repository, what, options_.endpoint,
               result.failure);
  }

  void link_into_snapshot(const RemoteFile& file) {
    const fs::path link = snapshot_ / file.name;
    make_folder(link.parent_path());
    const fs::path target = fs::relative(blob_path(file), link.parent_path());
    std::error_code error;
    if (fs::read_symlink(link, error) == target && !error) return;
    // Made under a name of its own and renamed, so that no moment shows a missing file.
    const fs::path temporary = link.string() + fmt::format(".{}.link", getpid());
    fs::remove(temporary, error);
    fs::create_symlink(target, temporary, error);
    if (!error) fs::rename(temporary, link, error);
    if (error) job_failed("{}: cannot create the symlink: {}", link.string(), error.message());
  }

  void say(const std::string& text) const {
    if (options_.on_message) options_.on_message(text);
  }

  void report(bool file_done) {
    progress_.file_done = file_done;
    if (options_.on_progress) options_.on_progress(progress_);
  }

  const ModelId& id_;
  const DownloadOptions& options_;
  HttpClient client_;
  fs::path repository_, snapshot_;
  HubListing listing_;
  DownloadProgress progress_;
};

}  // namespace

DownloadOptions download_options(const Environment& environment) {
  DownloadOptions options;
  options.endpoint = environment.hf_endpoint;
  options.token = hub_token(environment);
  options.cache = environment.hub_cache;
  options.offline = environment.hub_offline;
  return options;
}

fs::path download_model(const ModelId& id, const DownloadOptions& options) {
  if (options.offline)
    job_failed("{}: cannot download: HF_HUB_OFFLINE forbids all use of the network", id.repository);
  if (options.cache.empty())
    wrong_usage("{}: nowhere to keep it: set HOME, HF_HOME or HF_HUB_CACHE", id.repository);
  return Downloader(id, options).run();
}

}  // namespace ac
