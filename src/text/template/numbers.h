// Numbers in texts, and rounding, as Python does both.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "text/template/value.h"

namespace ac::jinja {

std::optional<std::int64_t> parse_integer(std::string_view text, std::int64_t base);
std::optional<double> to_real(const Value& value);  // float(); nothing for what is no number
Value rounded(const Value& value, std::int64_t precision);

}  // namespace ac::jinja
