#include "emit/standalone.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "build/headers.h"

namespace ac {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargestSource = 1u << 20;

void replace_all(std::string& text, const std::string& what, const std::string& by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
}

// As nvcc -arch has it; a package for the CPU names one that most have.
std::string architecture(const std::string& target) {
  if (target == "host") return "sm_90a";
  return target == "sm_90" || target.starts_with("sm_1") ? target + "a" : target;
}

// What the host device is made of.
std::map<std::string, std::string> shim_sources(const fs::path& headers) {
  std::map<std::string, std::string> files;
  const fs::path folder = headers / "kernels/shim";
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".cc")
      files["kernels/shim/" + entry.path().filename().string()] =
          read_file(entry.path(), kLargestSource);
  if (files.empty()) job_failed("{}: the host device's sources are missing", folder.string());
  return files;
}

bool has_maps(const Program& program) {
  for (const Phase& phase : program.phases)
    for (const Launch* launch : phase.all())
      if (!launch->maps.empty()) return true;
  return false;
}

bool has_products(const Program& program) {
  for (const Phase& phase : program.phases)
    for (const Launch& launch : phase.launches)
      if (launch.product) return true;
  return false;
}

}  // namespace

std::string all_kernels(const std::vector<KernelSource>& kernels) {
  std::set<std::string> includes;
  std::string bodies;
  for (const KernelSource& kernel : kernels)
    for (std::size_t at = 0; at < kernel.text.size();) {
      const std::size_t end = std::min(kernel.text.find('\n', at), kernel.text.size() - 1) + 1;
      const std::string line = kernel.text.substr(at, end - at);
      at = end;
      if (line.starts_with("#include"))
        includes.insert(line);
      else if (line != "\n" || !bodies.ends_with("\n\n"))
        bodies += line;
    }
  std::string text = "// All kernels of the package, each in a namespace of its own.\n";
  for (const std::string& include : includes) text += include;
  return text + "\n" + bodies.substr(bodies.starts_with('\n') ? 1 : 0);
}

std::string library_name(const Program& program) {
  std::string name;
  for (const char c : program.model) {
    const bool upper = c >= 'A' && c <= 'Z', digit = c >= '0' && c <= '9';
    if (upper)
      name += static_cast<char>(c - 'A' + 'a');
    else if ((c >= 'a' && c <= 'z') || (digit && !name.empty()))
      name += c;
    else if (!name.empty() && name.back() != '_')
      name += '_';
  }
  name = name.substr(0, 40);
  while (name.ends_with('_')) name.pop_back();
  return name.empty() ? "model" : name;
}

std::map<std::string, std::string> standalone_files(const Program& program,
                                                    const std::vector<KernelSource>& kernels,
                                                    const fs::path& headers) {
  std::map<std::string, std::string> files = shim_sources(headers);
  files["kernels.cu"] = all_kernels(kernels);
  files["wrappers.h"] = wrapper_header(program);
  files["wrappers.cc"] = wrapper_source(program);
  files["build.sh"] = kBuildScript;
  files["CMakeLists.txt"] = kCMakeLists;
  files["README.md"] = kReadme;
  if (has_maps(program)) files["README.md"] += kReadmeOfMaps;
  if (has_products(program)) files["README.md"] += kReadmeOfProducts;
  for (const char* name : {"build.sh", "CMakeLists.txt", "README.md"}) {
    replace_all(files[name], "@NAME@", library_name(program));
    replace_all(files[name], "@ARCH@", architecture(program.target));
    replace_all(files[name], "@ARCH_NUMBER@", architecture(program.target).substr(3));
  }
  std::string sources;
  for (const auto& [name, text] : files) sources += text;
  Headers reader(headers);
  for (const Header* header : reader.reached_by(sources)) files.emplace(header->name, header->text);
  return files;
}

}  // namespace ac
