#include "emit/package.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/error.h"
#include "base/files.h"
#include "base/warning.h"
#include "emit/standalone.h"
#include "gguf/gguf_model.h"
#include "runtime/fingerprint.h"
#include "text/text_files.h"

namespace ac {
namespace {

namespace fs = std::filesystem;

constexpr fs::perms kExecutable =
    fs::perms::owner_exec | fs::perms::group_exec | fs::perms::others_exec;

void copy_into(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::create_directories(to.parent_path(), error);
  if (!error) fs::copy_file(from, to, error);
  if (error) job_failed("cannot copy {} to {}: {}", from.string(), to.string(), error.message());
}

// What the model's folder says of text. A folder without a tokenizer says nothing of use.
void copy_text(const Model& model, const fs::path& to) {
  for (const auto& [name, store] : model.stores) {
    std::error_code error;
    if (is_gguf(store)) {
      if (!text::has_tokenizer(store)) return;
      fs::create_directories(to);
      for (const char* file : text::kTextFiles)
        if (const auto text = gguf_document(store, file)) write_file(to / file, *text);
      return;
    }
    const fs::path folder = fs::is_directory(store, error) ? store : store.parent_path();
    if (!fs::exists(folder / "tokenizer.json", error)) continue;
    for (const char* file : text::kTextFiles)
      if (fs::exists(folder / file, error)) copy_into(folder / file, to / file);
    for (const auto& entry : fs::directory_iterator(folder / text::kMoreTemplates, error))
      if (entry.path().extension() == ".jinja")
        copy_into(entry.path(), to / text::kMoreTemplates / entry.path().filename());
    return;
  }
}

// How many files a package has, with plan.json and digests.json.
Json emitted_in(const fs::path& folder) {
  std::size_t files = 2, sources = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    ++files;
    const std::string ending = entry.path().extension().string();
    if (ending == ".cu" || ending == ".cuh" || ending == ".h" || ending == ".cc") ++sources;
  }
  return {{"files", files}, {"sources", sources}};
}

}  // namespace

void check_output(const fs::path& to, bool replace) {
  std::error_code error;
  if (!fs::exists(to, error)) {
    // The folder that the package, or the first of its parents, is made in.
    fs::path above = fs::absolute(to);
    while (above.has_relative_path() && !fs::exists(above, error)) above = above.parent_path();
    if (!fs::is_directory(above) || access(above.c_str(), W_OK | X_OK) != 0)
      job_failed("cannot make {}: {} is no folder that may be written", to.string(),
                 above.string());
    return;
  }
  if (!fs::is_directory(to) || !fs::exists(to / "program.json"))
    wrong_usage("{} exists and is no package: choose another name", to.string());
  if (!replace) wrong_usage("{} exists: give --force to replace it", to.string());
}

PackageDraft::PackageDraft(const fs::path& to, bool replace)
    : replace_(replace), draft_([&] {
        const fs::path target = fs::absolute(to / "").lexically_normal().parent_path();
        check_output(target, replace);
        return target;
      }()) {}

void PackageDraft::write(const Compiled& compiled, const Model& model,
                         const fs::path& kernel_headers) {
  const fs::path& folder = draft_.path();
  Program program = compiled.program;
  const bool host = program.target == "host";
  for (auto& [entry, file] : program.kernels) {
    const Built& built = compiled.kernels.at(entry);
    file = fmt::format("{}/{}{}", program.target, entry, host ? ".so" : ".cubin");
    copy_into(built.artifact, folder / file);
  }
  // What only lives as long as the capture does comes along: its own file, and no checkpoint.
  if (model.files)
    for (auto& [name, path] : program.stores) {
      if (fs::is_directory(path)) continue;
      const std::string kept = fmt::format("weights/{}.safetensors", name);
      copy_into(path, folder / kept);
      path = kept;
    }
  write_file(folder / "constants.bin",
             {reinterpret_cast<const char*>(compiled.constants.data()), compiled.constants.size()});
  write_file(folder / "program.json", to_json(program).dump() + "\n");
  copy_text(model, folder / text::kTextFolder);
  std::vector<KernelSource> sources;
  for (const auto& [entry, built] : compiled.kernels) sources.push_back(built.source);
  for (const auto& [name, text] : standalone_files(program, sources, kernel_headers)) {
    fs::create_directories((folder / name).parent_path());
    write_file(folder / name, text);
  }
  fs::permissions(folder / "build.sh", kExecutable, fs::perm_options::add);
  std::vector<std::string> warnings;
  write_fingerprint(fingerprint_of(program, warnings), folder);
  for (const std::string& warning : warnings) warn_of(warning);
  Json plan = plan_json(compiled);
  plan["emitted"] = emitted_in(folder);
  write_file(folder / "plan.json", plan.dump(1) + "\n");
  write_digests(folder);
  check_output(draft_.target(), replace_);
  if (!draft_.publish(replace_))
    wrong_usage("{} has come into being meanwhile: give --force to replace it",
                draft_.target().string());
}

}  // namespace ac
