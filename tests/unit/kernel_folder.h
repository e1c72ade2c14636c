// For tests of building: a builder with a cache of its own, and a folder of small kernel headers.
#pragma once

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <fstream>
#include <string>
#include <vector>

#include "base/temporary_folder.h"
#include "build/compile.h"
#include "tests/unit/contains.h"

namespace ac::test {

// Its sources need no standard header, so that building takes little time.
struct TinyKernels {
  TemporaryFolder folder;

  TinyKernels() {
    write("kernels/tiny.h", "#include \"kernels/inner.h\"\n");
    write("kernels/inner.h", "constexpr int offset = 1000;\n");
  }
  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = folder.path() / "sources" / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::filesystem::path cache() const { return folder.path() / "cache"; }
  BuilderOptions options() const {
    BuilderOptions options;
    options.cache = cache(), options.sources = folder.path() / "sources", options.jobs = 2;
    return options;
  }
  BuildResult build(const KernelSource& source) const {
    return KernelBuilder(options()).build(source, {});
  }

  // Entries, and folders that are not finished.
  std::vector<std::filesystem::path> entries(bool unfinished) const {
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::directory_iterator(cache())) {
      const std::string name = entry.path().filename();
      if (name != ".lock" && name.starts_with(".unfinished") == unfinished)
        found.push_back(entry.path());
    }
    return found;
  }
};

// A function that returns 1000 + number.
inline KernelSource tiny(int number) {
  return {"tiny",
          "#include \"kernels/tiny.h\"\nextern \"C\" __attribute__((visibility(\"default\")))"
          " int tiny() { return offset + " +
              std::to_string(number) + "; }\n"};
}

inline const Artifact& built(const BuildResult& result) {
  if (const auto* failure = std::get_if<CompileFailure>(&result)) FAIL(failure->log);
  return std::get<Artifact>(result);
}

inline const CompileFailure& failed(const BuildResult& result) {
  REQUIRE(std::holds_alternative<CompileFailure>(result));
  return std::get<CompileFailure>(result);
}

// What the built function returns.
inline int call(const Artifact& artifact) {
  void* const library = dlopen(artifact.file.c_str(), RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  const auto function = reinterpret_cast<int (*)()>(dlsym(library, "tiny"));
  REQUIRE(static_cast<bool>(function));
  const int value = function();
  dlclose(library);
  return value;
}

}  // namespace ac::test
