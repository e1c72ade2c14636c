// The page at /: a chat with the model, in one file that is part of the program.
#pragma once

#include <string_view>

namespace ac::serve {

std::string_view chat_page();

}  // namespace ac::serve
