#include "cli/model_argument.h"

#include <fmt/format.h>

#include <optional>

#include "base/environment.h"
#include "base/error.h"
#include "base/json.h"
#include "base/print_stderr.h"
#include "base/process.h"
#include "build/digest.h"
#include "capture/download.h"
#include "capture/download_progress.h"
#include "capture/hub.h"
#include "cli/source_state.h"
#include "runtime/engine.h"
#include "runtime/packages.h"
#include "text/text_files.h"

namespace ac {
namespace {

namespace fs = std::filesystem;

}  // namespace

bool is_package_or_packages(const fs::path& path) {
  std::error_code error;
  return fs::exists(path / "program.json", error) || fs::exists(path / "digests.json", error) ||
         !packages_in(path).empty();
}

void no_tokenizer(const fs::path& folder) {
  bad_input(
      "no tokenizer in {}: name a folder with a tokenizer.json by --tokenizer, or give token ids "
      "to "
      "agentcompile run --ids",
      folder.string());
}

CLI::Option* ModelArgument::add_to(CLI::App& command) {
  CLI::Option* const model =
      command
          .add_option("MODEL", model_,
                      "A package, or what compile takes: a HuggingFace folder or id, FILE.gguf, "
                      "FILE.py[:FACTORY], ... That is compiled when it is first used, and kept in "
                      "the cache folder")
          ->required();
  command.add_flag("--download", download_, "Fetch an id from the HuggingFace hub first");
  command.add_flag("--recompile", again_, "Compile the model again, in place of the kept package");
  const auto pass = [&](const char* name, const char* what) {
    passed_.push_back(std::make_shared<Passed>(Passed{name, {}}));
    CLI::Option* const option = command.add_option(name, passed_.back()->value, what);
    passed_.back()->option = option;
    return option;
  };
  pass("--max-context", "Tokens that the package can hold, if MODEL is compiled");
  pass("--dtype", "The type to compute in, if MODEL is compiled");
  pass("--front-end", "The front end, if MODEL is compiled");
  pass("--kv", kKvHelp)
      ->check(CLI::IsMember(std::vector<std::string>(kKvStorages.begin(), kKvStorages.end())));
  pass("--tries", "Candidates of a region that are tried, if MODEL is compiled");
  weights_.add_to(command, ". MODEL's own, in 16 or 32 bits, are quantized once, into the cache");
  return model;
}

std::string ModelArgument::described() const {
  std::string text = model_;
  if (weights_.is_given()) text += ", " + weights_.text();
  for (const auto& passed : passed_)
    if (passed->name == "--kv" && passed->option->count() > 0) text += ", kv " + passed->value;
  return text;
}

ModelArgument ModelArgument::other(std::string name) const {
  ModelArgument other = *this;
  other.model_ = std::move(name);
  other.weights_ = {};
  std::erase_if(other.passed_, [](const auto& passed) { return passed->name == "--kv"; });
  return other;
}

ModelArgument::Found ModelArgument::package(const Wanted& wanted) const {
  if (!is_package_or_packages(model_)) return compiled(wanted);
  const auto refuse = [&](const std::string& option) {
    wrong_usage("{}: {} is a package, which is compiled already", option, model_);
  };
  for (const auto& passed : passed_)
    if (passed->option->count() > 0) refuse(passed->name);
  if (weights_.is_given()) refuse("--weights");
  if (download_) refuse("--download");
  if (again_) refuse("--recompile");
  return {model_};
}

ModelArgument::Found ModelArgument::compiled(const Wanted& wanted) const {
  const auto& [device, tokenizer, full, quiet, slots] = wanted;
  if (weights_.is_given()) weights_.check();
  const Environment environment = read_environment();
  std::error_code error;
  fs::path source = file_of(model_);
  const bool factory = source != model_;
  if (download_) {
    const auto id = parse_model_id(model_);
    if (!id || fs::exists(source, error))
      wrong_usage("--download: {} is no model id (org/name[@revision])", model_);
    DownloadOptions download = download_options(environment);
    if (!quiet) show_progress_on_stderr(download);
    source = download_model(*id, download);
  } else if (!fs::exists(source, error)) {
    if (factory || source.extension() == ".py" || source.extension() == ".pt2")
      bad_input("{}: there is no such file", source.string());
    source = resolve_model(model_, environment);
  }
  source = fs::canonical(source);
  if (tokenizer && source.extension() != ".json" && !text::has_tokenizer(source))
    no_tokenizer(source);
  if (weights_.is_given()) {
    SourceArguments original;
    original.source = source.string();
    Progress progress(quiet);
    source = weights_.kept(original, quiet, progress).stores.begin()->second;
  }
  const std::string what =
      factory ? source.string() + model_.substr(file_of(model_).size()) : source.string();

  if (environment.cache.empty())
    wrong_usage(
        "{}: there is no cache folder for its package: set XDG_CACHE_HOME or HOME, or "
        "compile it first",
        model_);
  std::unique_ptr<Device> gpu;
  if (device != "host") try {
      gpu = open_cuda_device();
    } catch (const Error&) {
      if (device.starts_with("cuda")) throw;  // it says why there is none
    }
  std::vector<std::string> options = {"--device", gpu ? "cuda" : "host"};
  for (const auto& passed : passed_)
    if (passed->option->count() > 0) options.insert(options.end(), {passed->name, passed->value});
  if (slots > 1) options.insert(options.end(), {"--slots", std::to_string(slots)});
  const Json key = {{"version", AC_VERSION},
                    {"source", what},
                    {"files", state_of_source(source)},
                    {"device", gpu ? gpu->info().target + " " + gpu->name() : "host"},
                    {"options", options}};
  const fs::path package =
      environment.cache / "agentcompile/packages" /
      fmt::format("{}-{}", plain_name(model_), sha256(key.dump()).substr(0, 16));
  std::vector<std::string> to_full = {"/proc/self/exe", "compile", what, "-o",
                                      package.string(), "--once"};
  to_full.insert(to_full.end(), options.begin(), options.end());
  const bool is_there = fs::exists(package / "program.json", error);
  // One that another version of this program wrote is compiled again.
  const bool is_old = is_there && !has_this_format(read_json(package / "program.json"));
  const auto is_quick = [&] { return read_program(PackageFiles(package)).quick; };
  const auto found = [&] {
    const bool is_first = device.empty() || device == "cuda" || device == "cuda:0";
    return Found{package, is_quick() ? to_full : std::vector<std::string>(),
                 is_first ? std::move(gpu) : nullptr};
  };
  if (!again_ && is_there && !is_old && !(full && is_quick())) {
    if (!quiet) print_stderr("{} is compiled: {}\n", model_, package.string());
    return found();
  }
  if (!quiet)
    print_stderr("compiling {} for {}, which is done once: {}\n", model_,
                 gpu ? gpu->name() : "the CPU", package.string());
  std::vector<std::string> command = to_full;
  if (!full) command.emplace_back("--quick");
  if (again_ || is_old) command.emplace_back("--force");
  if (quiet) command.emplace_back("--quiet");
  const ProcessResult result = run_process(command, ChildOutput::errors_only);
  if (result.ok()) return found();
  if (result.signal != 0)
    job_failed("the compilation of {} was ended by signal {}", model_, result.signal);
  throw Error(static_cast<Fault>(result.exit_code), fmt::format("{} was not compiled", model_));
}

}  // namespace ac
