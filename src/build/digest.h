// SHA-256 of what a build depends on and of what it made.
#pragma once

#include <string>
#include <string_view>

namespace ac {

std::string sha256(std::string_view bytes);  // 64 hexadecimal digits

}  // namespace ac
