// The options of an advisor, for commands that search.
#pragma once

#include <CLI/CLI.hpp>

#include "advise/advisor.h"

namespace ac {

void add_advisor_options(CLI::App& command, AdvisorOptions& options);

// --model and --date: who answered, and when, where replies do not say it.
void add_author_options(CLI::App& command, std::string& model, std::string& date);
// Files do not say who answered, services do: an error (wrong_usage) where they lack, or are given
// in vain. Of services they become today and the model that was asked for, as not all name theirs.
void check_author(const std::string& who, std::string& model, std::string& date);

}  // namespace ac
