#include "compile/worker.h"

#include <fmt/format.h>
#include <unistd.h>

#include <memory>

#include "base/conversation.h"
#include "cli/commands.h"

namespace ac {

void add_worker_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("worker", "One job of a compilation");
  command->group("");  // not for people
  const auto file = std::make_shared<std::string>();
  command->add_option("FILE", *file)->required();
  // The answer is marked, so that a message is not taken for it.
  command->callback([file] {
    const Json job = read_json(*file);
    if (is_conversation(job))
      answer_questions([&] { return prepare_job(job); }, STDIN_FILENO, STDOUT_FILENO);
    else
      fmt::print("+{}", run_job(job));
  });
}

}  // namespace ac
