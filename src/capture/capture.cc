#include "capture/capture.h"

#include <fmt/core.h>

#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "base/print_stderr.h"
#include "capture/config_fields.h"
#include "capture/download.h"
#include "capture/download_progress.h"
#include "capture/exported.h"
#include "capture/gguf_capture.h"
#include "capture/hub.h"
#include "capture/model_kind.h"
#include "capture/native.h"
#include "capture/python.h"
#include "checkpoint/model_files.h"
#include "gguf/gguf_file.h"

namespace ac {
namespace {

namespace fs = std::filesystem;

bool has_extension(const std::string& source, std::string_view extension) {
  return fs::path(source).extension() == extension;
}

// FILE.py, FILE.py:factory, DIR:module:factory, a folder that is no checkpoint, or a .pt2.
bool only_python_reads(const std::string& source) {
  if (has_extension(source, ".pt2") || has_extension(source, ".py")) return true;
  if (fs::is_directory(source)) return !fs::exists(fs::path(source) / "config.json");
  const std::size_t colon = source.find(':');
  return colon != std::string::npos && fs::exists(source.substr(0, colon));
}

// The architecture of a folder's config.json. Of the rest only the kind of model is judged.
std::string architecture_of(const fs::path& directory) {
  const auto file = find_model_file(directory, "config.json");
  if (!file) bad_input("{}: there is no config.json", directory.string());
  const Json config = read_config_json(*file);
  refuse_unsupported_kind(config, (directory / "config.json").string());
  if (config.is_object() && config.contains("architectures"))
    if (const Json& names = config["architectures"];
        names.is_array() && !names.empty() && names[0].is_string())
      return names[0].get<std::string>();
  return "";
}

Model with_python(const std::string& source, const CaptureOptions& options,
                  const Environment& environment) {
  return capture_with_python(source, find_python_capture(environment.python), options);
}

Model capture_directory(const fs::path& directory, const CaptureOptions& options,
                        const Environment& environment) {
  const std::string architecture = architecture_of(directory);
  const bool native = is_native_architecture(architecture) || architecture.empty();
  if (options.front_end == FrontEnd::python ||
      (options.front_end == FrontEnd::automatic && !native)) {
    if (!native && !options.quiet)
      print_stderr("{} is not among the native architectures: capturing it with Python\n",
                   architecture);
    return with_python(directory.string(), options, environment);
  }
  return capture_native(directory);
}

}  // namespace

Model capture(const std::string& source, const CaptureOptions& options,
              const Environment& environment) {
  if (source.empty()) wrong_usage("SOURCE is empty");
  if (has_extension(source, ".json") && fs::is_regular_file(source)) return read_exported(source);
  if (is_gguf(source) || has_extension(source, ".gguf")) {
    if (options.front_end == FrontEnd::python)
      wrong_usage("{}: Python captures no GGUF file; leave out --front-end python", source);
    return capture_gguf(source, options.quiet);
  }
  if (only_python_reads(source)) {
    if (options.front_end == FrontEnd::native)
      wrong_usage("{}: only Python can capture this; leave out --front-end native", source);
    return with_python(source, options, environment);
  }
  if (options.download && !fs::exists(source)) {
    const auto id = parse_model_id(source);
    if (!id) wrong_usage("{}: not a model id (org/name[@revision])", source);
    DownloadOptions download = download_options(environment);
    show_progress_on_stderr(download);
    return capture_directory(download_model(*id, download), options, environment);
  }
  return capture_directory(resolve_model(source, environment), options, environment);
}

}  // namespace ac
