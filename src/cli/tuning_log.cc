#include "cli/tuning_log.h"

#include "base/warning.h"
#include "cli/command_page.h"
#include "lab/lab.h"
#include "tuning/kernel_hash.h"

namespace ac {

void add_log_option(CLI::App& command, std::string& database) {
  command
      .add_option("--database", database,
                  "The tuning database that records each attempt, or none (default: "
                  "tuning.sqlite in the cache folder)")
      ->type_name("FILE")
      ->group(kRare);
}

std::unique_ptr<tuning::Log> open_log(const std::string& database, const DeviceInfo& device,
                                      const std::string& name, const std::string& model,
                                      const BuilderOptions& building, KernelBuilder& builder) {
  if (database == "none") return nullptr;
  tuning::Origin origin{tuning::fingerprint(device, name), builder.compiler(target_of(device)),
                        model, building.sources};
  return std::make_unique<tuning::Log>(
      database.empty() ? building.cache / "tuning.sqlite" : std::filesystem::path(database),
      std::move(origin), warn_of);
}

}  // namespace ac
