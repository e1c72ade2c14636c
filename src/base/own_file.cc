#include "base/own_file.h"

#include <dlfcn.h>
#include <link.h>

#include <system_error>

namespace ac {

std::filesystem::path own_file() {
  Dl_info info{};
  void* found = nullptr;
  if (dladdr1(reinterpret_cast<void*>(&own_file), &info, &found, RTLD_DL_LINKMAP) != 0)
    // The loader has no name for the program itself.
    if (const std::string name = static_cast<const link_map*>(found)->l_name; !name.empty())
      return std::filesystem::absolute(name);
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error);
}

}  // namespace ac
