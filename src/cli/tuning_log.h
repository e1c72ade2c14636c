// The tuning database, for commands that only tell it what they tried.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "device/device_info.h"
#include "tuning/log.h"

namespace ac {

void add_log_option(CLI::App& command, std::string& database);

// Null for "none"; an empty name stands for the file that `tune` uses. Never an error: what is
// wrong with the file is warned of.
std::unique_ptr<tuning::Log> open_log(const std::string& database, const DeviceInfo& device,
                                      const std::string& name, const std::string& model,
                                      const BuilderOptions& building, KernelBuilder& builder);

}  // namespace ac
