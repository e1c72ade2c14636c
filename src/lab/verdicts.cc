#include "lab/verdicts.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/files.h"
#include "base/folders.h"
#include "base/warning.h"
#include "build/cache_record.h"
#include "build/digest.h"

namespace ac {

namespace fs = std::filesystem;

Verdicts::Verdicts(fs::path folder, std::string judge)
    : folder_(std::move(folder)), judge_(std::move(judge)) {}

std::string Verdicts::key(const Trial& trial, const std::vector<std::string>& kernels) const {
  std::string all = "agentcompile verdict 1\n";
  const auto add = [&](const std::string& part) {
    all += fmt::format("{}:{}\n", part.size(), part);
  };
  add(judge_);
  add(to_json(trial).dump());
  for (const std::string& digest : kernels) add(digest);
  const validate::GateOptions gate = gate_for(trial);
  add(fmt::format("{} {} {} {} {}", gate.seeds, gate.scales.size(), gate.structured, gate.hostile,
                  gate.repeats));
  return sha256(all);
}

std::optional<Outcome> Verdicts::find(const std::string& key) const {
  const fs::path path = file(key);
  std::error_code error;
  if (!fs::exists(fs::symlink_status(path, error))) return std::nullopt;
  try {
    const Json record = read_record(path, key);
    Outcome outcome = outcome_from_json(record.at("verdict"), path.string());
    outcome.from_cache = true;
    return outcome;
  } catch (const Error& harmed) {
    warn("{}; the kernel is judged again", harmed.what());
  } catch (const Json::exception& harmed) {
    warn("{}: not as this program writes it ({}); the kernel is judged again", path.string(),
         harmed.what());
  }
  return std::nullopt;
}

void Verdicts::keep(const std::string& key, const Outcome& outcome) const {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (is_read_only(folder_)) {
    warn("{}: it cannot be written: verdicts are not kept", folder_.string());
    return;
  }
  if (fs::is_directory(file(key))) fs::remove_all(file(key), error);  // no file takes its place
  write_file_atomically(file(key), record_text(key, {{"verdict", to_json(outcome)}}));
}

}  // namespace ac
