#include "compile/worker.h"

#include <fmt/format.h>

#include <memory>

#include "cli/commands.h"

namespace ac {

void add_worker_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("worker", "One job of a compilation");
  command->group("");  // not for people
  const auto file = std::make_shared<std::string>();
  command->add_option("FILE", *file)->required();
  // The answer is marked, so that a message is not taken for it.
  command->callback([file] { fmt::print("+{}", run_job(read_json(*file))); });
}

}  // namespace ac
