// What the hub says that a revision of a model holds, and which of its files we want.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "capture/blob_store.h"
#include "capture/hub.h"

namespace ac {

struct RemoteFile {
  std::string name;
  BlobId blob;
};

struct HubListing {
  std::string commit;
  std::vector<RemoteFile> files;

  const RemoteFile* find(std::string_view name) const;
};

// Validates the answer of {endpoint}/api/models/{id}/revision/{revision}?blobs=true: names that
// could leave the directory are refused, whether we want those files or not.
HubListing read_hub_listing(std::string_view json, const ModelId& id);

// Configuration, tokenizer, chat template and the index of the weights.
std::vector<RemoteFile> small_files(const HubListing& listing);

}  // namespace ac
