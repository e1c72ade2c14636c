#include "emit/package.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/files.h"
#include "emit/package_files.h"
#include "emit/standalone.h"

namespace ac {
namespace {

namespace fs = std::filesystem;

constexpr fs::perms kExecutable =
    fs::perms::owner_exec | fs::perms::group_exec | fs::perms::others_exec;

// A folder beside the target, which becomes it or vanishes.
class Draft {
 public:
  explicit Draft(const fs::path& target)
      : target_(target),
        path_(target.parent_path() /
              fmt::format(".{}.{}.partial", target.filename().string(), getpid())) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~Draft() {
    std::error_code ignored;
    if (!published_) fs::remove_all(path_, ignored);
  }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;

  const fs::path& path() const { return path_; }

  // An old package steps aside first: of two names, one is always whole.
  void publish() {
    const fs::path old = fs::path(path_).replace_extension(".old");
    const bool replaces = fs::exists(target_);
    if (replaces) fs::rename(target_, old);
    std::error_code error;
    fs::rename(path_, target_, error);
    if (error) {
      if (replaces) fs::rename(old, target_);
      job_failed("cannot rename {} to {}: {}", path_.string(), target_.string(), error.message());
    }
    published_ = true;
    if (replaces) fs::remove_all(old);
  }

 private:
  const fs::path target_, path_;
  bool published_ = false;
};

void check_target(const fs::path& to, bool replace) {
  if (!fs::exists(to)) return;
  if (!fs::is_directory(to) || !fs::exists(to / "program.json"))
    wrong_usage("{} exists and is no package: choose another name", to.string());
  if (!replace) wrong_usage("{} exists: give --force to replace it", to.string());
}

void copy_into(const fs::path& from, const fs::path& to) {
  fs::create_directories(to.parent_path());
  std::error_code error;
  fs::copy_file(from, to, error);
  if (error) job_failed("cannot copy {} to {}: {}", from.string(), to.string(), error.message());
}

}  // namespace

void write_package(const Compiled& compiled, const Model& model, const fs::path& kernel_headers,
                   const fs::path& to, bool replace) {
  const fs::path target = fs::absolute(to).lexically_normal();
  check_target(target, replace);
  Draft draft(target);
  const fs::path& folder = draft.path();
  Program program = compiled.program;
  const bool host = program.target == "host";
  for (auto& [entry, file] : program.kernels) {
    const Built& built = compiled.kernels.at(entry);
    file = fmt::format("{}/{}{}", program.target, entry, host ? ".so" : ".cubin");
    copy_into(built.artifact, folder / file);
  }
  // What only lives as long as the capture does comes along.
  if (model.files)
    for (auto& [name, path] : program.stores) {
      const std::string kept = fmt::format("weights/{}.safetensors", name);
      copy_into(path, folder / kept);
      path = kept;
    }
  write_file(folder / "constants.bin",
             {reinterpret_cast<const char*>(compiled.constants.data()), compiled.constants.size()});
  write_file(folder / "program.json", to_json(program).dump() + "\n");
  std::vector<KernelSource> sources;
  for (const auto& [entry, built] : compiled.kernels) sources.push_back(built.source);
  for (const auto& [name, text] : standalone_files(program, sources, kernel_headers)) {
    fs::create_directories((folder / name).parent_path());
    write_file(folder / name, text);
  }
  fs::permissions(folder / "build.sh", kExecutable, fs::perm_options::add);
  Json plan = plan_json(compiled);
  plan["files"] = digests_of(folder);
  write_file(folder / "plan.json", plan.dump(1) + "\n");
  draft.publish();
}

}  // namespace ac
