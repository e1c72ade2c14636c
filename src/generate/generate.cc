#include "generate/generate.h"

#include <algorithm>

namespace ac {

int Generated::refer(const Storage& storage) {
  const auto known = std::find(storages.begin(), storages.end(), storage);
  if (known != storages.end()) return static_cast<int>(known - storages.begin());
  storages.push_back(storage);
  return static_cast<int>(storages.size()) - 1;
}

}  // namespace ac
