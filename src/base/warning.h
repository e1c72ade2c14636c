// What a user should know although the job goes on: on stderr, whatever --quiet says of progress.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

namespace ac {

// Each text once.
void warn_of(const std::string& text);

template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  warn_of(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace ac
