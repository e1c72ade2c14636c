// What the gate has said, on disk: so that equal kernels of later compilations need not be judged
// again. A verdict is bound to all that it rests on; one that is damaged, or lies in another's
// place, is warned of and counts as none.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "admit/trial.h"
#include "lab/lab.h"

namespace ac {

class Verdicts {
 public:
  // `judge` identifies the program that judges.
  Verdicts(std::filesystem::path folder, std::string judge);

  // Of a trial with kernels of these digests. Where files lie does not matter.
  std::string key(const Trial& trial, const std::vector<std::string>& kernels) const;
  std::optional<Outcome> find(const std::string& key) const;
  // Not into a folder that may only be read.
  void keep(const std::string& key, const Outcome& outcome) const;

 private:
  std::filesystem::path file(const std::string& key) const { return folder_ / (key + ".json"); }

  const std::filesystem::path folder_;
  const std::string judge_;
};

}  // namespace ac
