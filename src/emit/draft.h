// A folder that is written beside its final name and takes it when it is whole, so that whoever
// looks there finds nothing, the old folder or the new one, whenever the writer dies.
#pragma once

#include <filesystem>

#include "base/interrupt.h"

namespace ac {

class Draft {
 public:
  // Removes what writers of the same folder left that are no more.
  explicit Draft(const std::filesystem::path& target);
  ~Draft();  // removes what was not published, as a signal does
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;

  const std::filesystem::path& target() const { return target_; }
  const std::filesystem::path& path() const { return path_; }

  // False if the target exists and shall not be replaced.
  bool publish(bool replace);

 private:
  bool publish_plainly(bool replace);

  const std::filesystem::path target_, path_;
  const UnfinishedFolder unfinished_;
};

}  // namespace ac
