// Functions of a library that is loaded at run time, by their names.
#pragma once

#include <dlfcn.h>

namespace ac {

// False if the library, which dlopen() gave, has no function of that name.
template <class Function>
bool find_symbol(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace ac
