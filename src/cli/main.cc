#include <fcntl.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/print_stderr.h"
#include "base/text.h"
#include "cli/commands.h"

namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  agentcompile compile MODEL -o PKG                    # for the CPU; --device cuda: for the "
    "GPU\n"
    "  agentcompile generate PKG -p 'Once upon a time'      # text in, text out\n"
    "  agentcompile chat PKG                                # a conversation\n"
    "  agentcompile serve PKG                               # for clients of OpenAI's API\n"
    "  agentcompile run PKG --ids 1,2,3 --max-new-tokens 8  # token ids in, token ids out\n"
    "  agentcompile compile --help                          # the options of one command\n"
    "Results go to stdout, messages to stderr.";

// How many letters must be changed, left out or added.
std::size_t distance(std::string_view one, std::string_view other) {
  std::vector<std::size_t> row(other.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < one.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < other.size(); ++j) {
      const std::size_t changed = diagonal + (one[i] == other[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

// The first word must be a command: CLI11 would only say that one is missing.
void check_command(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  const std::string given = argv[1];
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == given) return;
    if (!command->get_group().empty()) names.push_back(command->get_name());
  }
  const std::string& nearest = *std::ranges::min_element(
      names, {}, [&](const std::string& name) { return distance(given, name); });
  ac::wrong_usage("{} is not a command; did you mean {}? The commands are {}", ac::quote(given),
                  nearest, fmt::join(names, ", "));
}

// A stream that was closed is nothing that can be read or written. Else the next file that is
// opened takes its number, and what is meant for the stream goes into that file.
void occupy_closed_streams() {
  for (const auto& [stream, mode] :
       {std::pair(STDIN_FILENO, O_WRONLY), std::pair(STDOUT_FILENO, O_RDONLY),
        std::pair(STDERR_FILENO, O_WRONLY)})
    if (fcntl(stream, F_GETFD) < 0) open("/dev/null", mode);
}

// Also of what was printed earlier and could not be written then.
void check_written() {
  const bool failed = std::ferror(stdout) != 0;
  if (std::fflush(stdout) != 0 || failed || !std::cout.flush())
    ac::job_failed("cannot write the result to stdout");
}

int say(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) {  // --help, --version
    app.exit(error);
    check_written();
    return 0;
  }
  std::string command = "agentcompile";
  for (const CLI::App* used = &app; !used->get_subcommands().empty();) {
    used = used->get_subcommands().front();
    command += " " + used->get_name();
  }
  ac::print_stderr("error: {} ({} --help lists the options)\n", error.what(), command);
  return static_cast<int>(ac::Fault::wrong_usage);
}

int run(CLI::App& app, int argc, char** argv) {
  try {
    check_command(app, argc, argv);
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return say(app, error);
  }
  check_written();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  occupy_closed_streams();
  ac::end_on_signals();
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit of a file's size is an error instead
  CLI::App app("Compiles a PyTorch or HuggingFace decoder to a native engine, and runs it.",
               "agentcompile");
  app.set_version_flag("--version", "agentcompile " AC_VERSION, "Show the program's version");
  ac::describe_commands(app);
  app.require_subcommand(1);
  ac::add_apply_template_command(app);
  ac::add_bench_command(app);
  ac::add_chat_command(app);
  ac::add_compile_command(app);
  ac::add_completions_command(app);
  ac::add_db_command(app);
  ac::add_detokenize_command(app);
  ac::add_devices_command(app);
  ac::add_evaluate_command(app);
  ac::add_generate_command(app);
  ac::add_help_command(app);
  ac::add_inspect_command(app);
  ac::add_package_command(app);
  ac::add_perplexity_command(app);
  ac::add_pull_command(app);
  ac::add_quantize_command(app);
  ac::add_report_command(app);
  ac::add_run_command(app);
  ac::add_serve_command(app);
  ac::add_serve_worker_command(app);
  ac::add_study_command(app);
  ac::add_tokenize_command(app);
  ac::add_tune_command(app);
  ac::add_tuned_command(app);
  ac::add_verify_command(app);
  ac::add_worker_command(app);
  app.footer(kFooter);  // now: commands would take it over
  try {
    return run(app, argc, argv);
  } catch (const ac::Error& error) {
    ac::print_stderr("error: {}\n", error.what());
    return error.exit_code();
  } catch (const std::filesystem::filesystem_error& error) {
    ac::print_stderr("error: {}: {}\n", error.path1().string(), error.code().message());
    return static_cast<int>(ac::Fault::bad_input);
  } catch (const std::bad_alloc&) {
    ac::print_stderr("error: out of memory\n");
    return static_cast<int>(ac::Fault::job_failed);
  } catch (const std::exception& error) {
    ac::print_stderr("error: {}\n", error.what());
    return static_cast<int>(ac::Fault::job_failed);
  }
}
