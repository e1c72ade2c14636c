#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <filesystem>

#include "base/environment.h"
#include "base/error.h"
#include "cli/commands.h"

namespace {

std::string footer() {
  std::string text = "Environment:\n";
  for (const ac::EnvironmentVariable& variable : ac::environment_variables())
    text += fmt::format("  {:<20} {} (default: {})\n", variable.name, variable.meaning,
                        variable.fallback);
  return text +
         "Exit codes: 0 ok, 1 the job failed, 2 wrong usage, 3 bad input, 4 the GPU failed under "
         "way, 5 an advisor's replies are awaited.\n"
         "Results go to stdout, messages to stderr.";
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Compiles a PyTorch or HuggingFace decoder to a native engine, and runs it.",
               "agentcompile");
  app.set_version_flag("--version", "agentcompile " AC_VERSION);
  app.require_subcommand(1);
  app.footer(footer());
  ac::add_bench_command(app);
  ac::add_compile_command(app);
  ac::add_db_command(app);
  ac::add_detokenize_command(app);
  ac::add_devices_command(app);
  ac::add_evaluate_command(app);
  ac::add_inspect_command(app);
  ac::add_run_command(app);
  ac::add_study_command(app);
  ac::add_tokenize_command(app);
  ac::add_tune_command(app);
  ac::add_verify_command(app);
  ac::add_worker_command(app);
  try {
    app.parse(argc, argv);
    if (std::fflush(stdout) != 0) ac::job_failed("cannot write the result to stdout");
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ac::Fault::wrong_usage);
  } catch (const ac::Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return error.exit_code();
  } catch (const std::filesystem::filesystem_error& error) {
    fmt::print(stderr, "error: {}: {}\n", error.path1().string(), error.code().message());
    return static_cast<int>(ac::Fault::bad_input);
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "error: out of memory\n");
    return static_cast<int>(ac::Fault::job_failed);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return static_cast<int>(ac::Fault::job_failed);
  }
  return 0;
}
