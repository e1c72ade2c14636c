#include "cli/source_arguments.h"

#include <filesystem>

#include "base/error.h"
#include "cli/choice.h"
#include "cli/command_page.h"
#include "ir/normalise.h"
#include "runtime/packages.h"

namespace ac {

void SourceArguments::add_to(CLI::App& command, bool or_package) {
  command
      .add_option("SOURCE", source,
                  std::string(or_package ? "A package, or a model: a" : "A") +
                      " HuggingFace directory or id (org/name[@revision]), FILE.gguf, a capture "
                      "file (.json), FILE.py[:FACTORY], a project directory, or a .pt2 archive")
      ->required();
  command.add_flag("--download", options.download, "Fetch an id from the HuggingFace hub first");
  add_choice<FrontEnd>(
      command, "--front-end",
      {{"auto", FrontEnd::automatic}, {"native", FrontEnd::native}, {"python", FrontEnd::python}},
      [this](FrontEnd value) { options.front_end = value; },
      "auto: native where the architecture is known, else Python; or force one")
      ->group(kRare);
  CLI::Option* const thorough = command.add_flag_function(
      "--thorough", [this](std::int64_t) { options.check = CaptureCheck::thorough; },
      "Check what Python captured against the model at more lengths, and larger models (minutes)");
  thorough->group(kRare);
  command
      .add_flag_function(
          "--no-check", [this](std::int64_t) { options.check = CaptureCheck::none; },
          "Take what Python captured without comparing it with the model")
      ->excludes(thorough)
      ->group(kRare);
  Choices<DType> dtypes;
  for (const DType type : {DType::f32, DType::f16, DType::bf16})
    dtypes.emplace_back(torch_name(type), type);
  add_choice<DType>(
      command, "--dtype", dtypes, [this](DType value) { dtype = value; },
      "Compute in this type, whatever the checkpoint stores (default: what the model says)");
  Choices<KvStorage> storages;
  for (std::size_t i = 0; i < kKvStorages.size(); ++i)
    storages.emplace_back(kKvStorages[i], static_cast<KvStorage>(i));
  add_choice<KvStorage>(
      command, "--kv", storages, [this](KvStorage value) { kv = value; }, kKvHelp);
}

Model SourceArguments::capture(bool quiet) const {
  std::error_code error;
  if (std::filesystem::exists(std::filesystem::path(source) / "program.json", error) ||
      !packages_in(source).empty())
    wrong_usage("{} is a package, and a model is wanted: name what it was compiled from", source);
  if (const std::size_t end = source.rfind(".py"); end != std::string::npos) {
    const std::string file = source.substr(0, end + 3), rest = source.substr(end + 3);
    if ((rest.empty() || rest[0] == ':') && !std::filesystem::exists(file, error))
      bad_input("{}: there is no such file", file);
  }
  CaptureOptions chosen = options;
  chosen.quiet = quiet;
  return ac::capture(source, chosen, read_environment());
}

Graph SourceArguments::normal_form(const Graph& captured) const {
  const Graph normal = normalise(captured);
  return dtype ? compute_in(normal, *dtype) : normal;
}

}  // namespace ac
