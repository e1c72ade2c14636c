#include "lab/worker.h"

#include <malloc.h>
#include <unistd.h>

#include <limits>
#include <memory>

#include "base/conversation.h"
#include "base/files.h"
#include "cli/commands.h"

namespace ac {
namespace {

constexpr std::size_t kMostJobBytes = std::size_t{1} << 28;

}  // namespace

void add_worker_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("worker", "Jobs of a compilation");
  command->group("");  // not for people
  const auto file = std::make_shared<std::string>();
  command->add_option("FILE", *file)->required();
  command->callback([file] {
    // A judgement takes and frees much memory, again and again: fresh pages would cost it a third
    // of its time.
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
    const Assignment assignment = assignment_of(read_file(*file, kMostJobBytes));
    answer_questions([&] { return prepare(assignment); }, STDIN_FILENO, STDOUT_FILENO);
  });
}

}  // namespace ac
