// The files of a package that are about text.
#pragma once

#include <filesystem>
#include <functional>

namespace ac {

// The folder that has them, each checked against its digest; empty: the package has no tokenizer.
std::filesystem::path text_of_package(const std::filesystem::path& package);

// Another process may put a package in the place of this one while it is read: then once more.
void reading_whole(const std::filesystem::path& package, const std::function<void()>& read);

}  // namespace ac
