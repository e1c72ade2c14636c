#include "cli/source.h"

#include <map>

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
}

Model SourceArguments::capture() const { return ac::capture(source, options, read_environment()); }

}  // namespace ac
