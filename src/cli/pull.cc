#include <fmt/format.h>

#include <memory>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "capture/download.h"
#include "capture/download_progress.h"
#include "cli/commands.h"

namespace ac {
namespace {

struct Pull {
  std::string id;
  int retry_milliseconds = 1000;
  bool json = false, quiet = false;

  void run() const {
    const auto model = parse_model_id(id);
    if (!model) wrong_usage("{} is no model id: write ORG/NAME or ORG/NAME@REVISION", id);
    DownloadOptions options = download_options(read_environment());
    options.first_delay = std::chrono::milliseconds(retry_milliseconds);
    if (!quiet) show_progress_on_stderr(options);
    const std::filesystem::path folder = download_model(*model, options);
    if (json)
      fmt::print("{}\n", Json{{"id", model->repository},
                              {"revision", model->revision},
                              {"commit", folder.filename().string()},
                              {"folder", folder.string()}}
                             .dump());
    else
      fmt::print("{}\n", folder.string());
  }
};

}  // namespace

void add_pull_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("pull", "Fetch a model from the HuggingFace hub");
  const auto pull = std::make_shared<Pull>();
  command->add_option("ID", pull->id, "ORG/NAME, or ORG/NAME@REVISION: a branch, tag or commit")
      ->required();
  command->add_flag("--json", pull->json, "Print one object: id, revision, commit and folder");
  command->add_flag("--quiet,-q", pull->quiet, "No progress on stderr");
  command
      ->add_option("--retry-delay", pull->retry_milliseconds,
                   "Milliseconds before a failed request is repeated; each further repeat waits "
                   "twice as long")
      ->capture_default_str()
      ->check(CLI::Range(0, 60'000));
  command->footer(
      "Examples:\n"
      "  agentcompile pull Qwen/Qwen3-0.6B\n"
      "  agentcompile chat Qwen/Qwen3-0.6B\n"
      "Prints the folder, which is in the cache of Python's huggingface_hub. Files that are there\n"
      "already are not fetched again, and what was interrupted goes on. HF_TOKEN opens gated "
      "models.");
  command->callback([pull] { pull->run(); });
}

}  // namespace ac
