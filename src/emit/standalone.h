// The package's own sources: all of its kernels in one file, the headers that they reach, C
// functions that launch them, and what builds these into a library, for a GPU or for the CPU.
// Someone who has the package alone can read, rebuild, profile and call every kernel.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "build/compile.h"
#include "program/program.h"

namespace ac {

// Files by their name in the package. `kernels`: those that the program launches.
std::map<std::string, std::string> standalone_files(const Program& program,
                                                    const std::vector<KernelSource>& kernels,
                                                    const std::filesystem::path& headers);

// kernels.cu: the sources one after the other, each include once and at the top.
std::string all_kernels(const std::vector<KernelSource>& kernels);

// The name of the library is lib<this>_kernels.so: of the model, as a C identifier.
std::string library_name(const Program& program);

// wrappers.h, wrappers.cc.
std::string wrapper_header(const Program& program);
std::string wrapper_source(const Program& program);

// What does not depend on the kernels, with @NAME@ for the library's name and @ARCH@ for the
// architecture that the package is compiled for.
extern const char* const kBuildScript;
extern const char* const kCMakeLists;
extern const char* const kReadme;
// Go on, where there are some.
extern const char *const kReadmeOfMaps, *const kReadmeOfProducts;

}  // namespace ac
