#include "cli/source.h"

#include "cli/choice.h"
#include "ir/normalise.h"

namespace ac {

void SourceArguments::add_to(CLI::App& command) {
  command
      .add_option("SOURCE", source,
                  "A HuggingFace directory or id (org/name[@revision]), a capture file (.json), "
                  "FILE.py[:FACTORY], a project directory, or a .pt2 archive")
      ->required();
  command.add_flag("--download", options.download, "Fetch an id from the HuggingFace hub first");
  add_choice<FrontEnd>(
      command, "--front-end",
      {{"auto", FrontEnd::automatic}, {"native", FrontEnd::native}, {"python", FrontEnd::python}},
      [this](FrontEnd value) { options.front_end = value; },
      "auto: native where the architecture is known, else Python; or force one");
  Choices<DType> dtypes;
  for (const DType type : {DType::f32, DType::f16, DType::bf16})
    dtypes.emplace_back(torch_name(type), type);
  add_choice<DType>(
      command, "--dtype", dtypes, [this](DType value) { dtype = value; },
      "Compute in this type, whatever the checkpoint stores (default: what the model says)");
}

Model SourceArguments::capture() const { return ac::capture(source, options, read_environment()); }

Graph SourceArguments::normal_form(const Graph& captured) const {
  const Graph normal = normalise(captured);
  return dtype ? compute_in(normal, *dtype) : normal;
}

}  // namespace ac
