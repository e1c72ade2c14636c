#include "checkpoint/model_files.h"

#include <algorithm>
#include <cctype>
#include <system_error>

#include "base/error.h"
#include "base/text.h"

namespace ac {
namespace fs = std::filesystem;
namespace {

bool lies_in(const fs::path& path, const fs::path& folder) {
  const auto [folder_at, path_at] =
      std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return folder_at == folder.end() && path_at != path.end();
}

// models--org--repo/snapshots/REVISION -> models--org--repo/blobs
std::optional<fs::path> blobs_of_snapshot(const fs::path& directory) {
  const fs::path snapshots = directory.parent_path();
  const fs::path repository = snapshots.parent_path();
  if (snapshots.filename() != "snapshots" ||
      !repository.filename().string().starts_with("models--"))
    return std::nullopt;
  return repository / "blobs";
}

}  // namespace

std::string why_unsafe_name(std::string_view name) {
  if (name.empty()) return "is empty";
  if (name.size() > 1000) return "is too long";
  const bool printable =
      std::ranges::none_of(name, [](unsigned char c) { return std::iscntrl(c) || c == '\\'; });
  if (!printable) return "holds control characters or backslashes";
  const fs::path path(name);
  if (path.is_absolute()) return "is absolute";
  // Iterating a path skips the empty component between two slashes.
  bool odd = name.find("//") != name.npos;
  for (const fs::path& part : path) odd |= part.empty() || part == "." || part == "..";
  if (odd) return "holds an empty, \".\" or \"..\" component";
  return {};
}

std::optional<fs::path> find_model_file(const fs::path& directory, std::string_view name) {
  if (const std::string why = why_unsafe_name(name); !why.empty())
    bad_input("{}: the file name {} {}", directory.string(), quote(name), why);
  std::error_code error;
  const fs::path root = fs::canonical(directory.empty() ? "." : directory, error);
  if (error) bad_input("{}: cannot open the directory: {}", directory.string(), error.message());

  const fs::path shown = directory / name;
  const fs::path real = fs::canonical(root / name, error);
  if (error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory) {
    if (fs::is_symlink(fs::symlink_status(root / name)))
      bad_input("{}: a symlink to {}, which does not exist", shown.string(),
                fs::read_symlink(root / name).string());
    return std::nullopt;
  }
  if (error == std::errc::too_many_symbolic_link_levels)
    bad_input("{}: a symlink that leads back to itself", shown.string());
  if (error) bad_input("{}: cannot open: {}", shown.string(), error.message());

  const auto blobs = blobs_of_snapshot(root);
  if (!lies_in(real, root) && !(blobs && lies_in(real, *blobs)))
    bad_input("{}: a symlink to {}, outside the model's own files; copy the file here instead",
              shown.string(), real.string());
  return real;
}

}  // namespace ac
