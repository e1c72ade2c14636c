#include "tests/tools/source_folder.h"

namespace ac {

std::filesystem::path source_folder() { return AC_SOURCE_FOLDER; }

std::filesystem::path test_data() { return source_folder() / "tests/data"; }

}  // namespace ac
