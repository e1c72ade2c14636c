#include "tuning/log.h"

#include <fmt/format.h>

#include "tuning/kernel_hash.h"

namespace ac::tuning {
namespace {

// That another writer may take: an attempt of his is done in a moment.
constexpr std::chrono::milliseconds kPatience{3000};

}  // namespace

Log::Log(const std::filesystem::path& database, Origin origin, Say say)
    : origin_(std::move(origin)), say_(std::move(say)), headers_(origin_.sources) {
  try {
    database_.emplace(database, kPatience);
  } catch (const std::exception& error) {
    give_up(error.what());
  }
}

void Log::add(TimedAttempt attempt, const std::vector<KernelSource>& sources) {
  if (!database_) return;
  attempt.key.kernels = kernel_hash(sources, headers_);
  attempt.key.device = origin_.device;
  attempt.key.toolkit = origin_.toolkit;
  attempt.model = origin_.model;
  try {
    database_->add(attempt);
  } catch (const std::exception& error) {
    give_up(error.what());
  }
}

void Log::give_up(const std::string& why) {
  database_.reset();
  say_(fmt::format("the tuning database is left alone: {}", why));
}

std::string setting_of(std::int64_t tokens, std::int64_t position) {
  return fmt::format("T={} P={}", tokens, position);
}

}  // namespace ac::tuning
