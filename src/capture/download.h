// Fetches a model from the HuggingFace hub into the local cache, in the layout of Python's
// huggingface_hub, so that each sees what the other fetched:
//
//   models--org--name/blobs/HASH             the content, named by its hash
//   models--org--name/snapshots/COMMIT/FILE  a relative symlink to its blob
//   models--org--name/refs/REVISION          the commit; written last, when all files are there
//
// A blob grows in HASH.incomplete and is renamed once its hash is right, so a crash, an interrupt
// or a full disk leaves nothing wrong, and the next try continues where this one ended. A lock for
// each blob (huggingface_hub's own, in .locks) keeps two processes apart.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/environment.h"
#include "capture/hub.h"

namespace ac {

struct DownloadProgress {
  std::string file;  // being fetched
  std::uint64_t file_bytes = 0, file_total = 0;
  std::uint64_t bytes = 0, total = 0;  // of all files known so far
  bool file_done = false;
};

struct DownloadOptions {
  std::string endpoint;
  std::string token;  // empty: none
  std::filesystem::path cache;
  bool offline = false;
  std::function<void(const DownloadProgress&)> on_progress = {};
  std::function<void(const std::string&)> on_message = {};  // "HTTP 503: again in 2 s", ...
  int attempts = 6;                             // without a byte of progress between them
  std::chrono::milliseconds first_delay{1000};  // doubles with each attempt
};

DownloadOptions download_options(const Environment& environment);

// Gives the snapshot's directory. Files that are in the cache already are not fetched again.
std::filesystem::path download_model(const ModelId& id, const DownloadOptions& options);

}  // namespace ac
