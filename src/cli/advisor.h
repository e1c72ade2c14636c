// The options of an advisor, for commands that search.
#pragma once

#include <CLI/CLI.hpp>

#include "advise/advisor.h"

namespace ac {

void add_advisor_options(CLI::App& command, AdvisorOptions& options);

}  // namespace ac
