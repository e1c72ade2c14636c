#include <fmt/format.h>

#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/model_argument.h"
#include "runtime/opening.h"

namespace ac {
namespace {

struct Package {
  ModelArgument model;
  std::string device;
  bool full = false, quiet = false;

  void run() const {
    const ModelArgument::Found found =
        model.package({.device = device, .tokenizer = false, .full = full, .quiet = quiet});
    fmt::print("{}\n", choose_package(found.package, device));
  }
};

}  // namespace

void add_package_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("package", "Compile a model if that is needed, and print its package");
  const auto package = std::make_shared<Package>();
  package->model.add_to(*command);
  command
      ->add_option("--device", package->device,
                   "host, cuda or cuda:NUMBER (default: a GPU if there is one)")
      ->type_name("DEVICE");
  command->add_flag("--full", package->full,
                    "Select kernels by measurement, which takes minutes. Else quick ones will do");
  command->add_flag("--quiet,-q", package->quiet, "No progress on stderr");
  command->footer(
      "Example:\n"
      "  agentcompile package MODEL\n"
      "Prints the folder that generate, chat and serve would take, for the library and for "
      "scripts.");
  command->callback([package] { package->run(); });
}

}  // namespace ac
