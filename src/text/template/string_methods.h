// The methods of strings.
#pragma once

#include "text/template/bind.h"

namespace ac::jinja {

// Missing if strings have none of that name.
Value string_method(const Value& string, std::string_view name);

// Shared with filters.
std::string capitalized(std::string_view text);
std::vector<Value> split_lines(const std::string& text, bool keep_ends);
std::string replaced(const std::string& text, const std::string& from, const std::string& to,
                     std::int64_t count);
std::string centered(const String& string, std::int64_t width, std::string_view fill);
bool is_cased_text(std::string_view text, bool upper);  // isupper(), islower()

}  // namespace ac::jinja
