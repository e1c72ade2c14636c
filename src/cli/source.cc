#include "cli/source.h"

#include <filesystem>
#include <map>

#include "base/error.h"
#include "ir/normalise.h"
#include "runtime/packages.h"

namespace ac {

void SourceArguments::add_to(CLI::App& command) {
  command
      .add_option("SOURCE", source,
                  "A HuggingFace directory or id (org/name[@revision]), a capture file (.json), "
                  "FILE.py[:FACTORY], a project directory, or a .pt2 archive")
      ->required();
  command.add_flag("--download", options.download, "Fetch an id from the HuggingFace hub first");
  const std::map<std::string, FrontEnd> names{
      {"auto", FrontEnd::automatic}, {"native", FrontEnd::native}, {"python", FrontEnd::python}};
  command
      .add_option("--front-end", options.front_end,
                  "auto: native where the architecture is known, else Python; or force one")
      ->transform(CLI::CheckedTransformer(names).description("{auto,native,python}"));
  CLI::Option* const thorough = command.add_flag_function(
      "--thorough", [this](std::int64_t) { options.check = CaptureCheck::thorough; },
      "Check what Python captured against the model at more lengths, and larger models (minutes)");
  command
      .add_flag_function(
          "--no-check", [this](std::int64_t) { options.check = CaptureCheck::none; },
          "Take what Python captured without comparing it with the model")
      ->excludes(thorough);
  std::map<std::string, DType> dtypes;
  for (const DType type : {DType::f32, DType::f16, DType::bf16})
    dtypes[std::string(torch_name(type))] = type;
  command
      .add_option("--dtype", dtype,
                  "Compute in float32, float16 or bfloat16, whatever the checkpoint stores "
                  "(default: what the model says)")
      ->transform(CLI::CheckedTransformer(dtypes).description("{float32,float16,bfloat16}"));
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
