// Downloads one model and prints its directory; the tests drive it against a hub of their own.
#include <fmt/format.h>

#include "base/error.h"
#include "capture/download.h"
#include "capture/download_progress.h"

int main(int count, char** arguments) try {
  if (count != 2) ac::wrong_usage("usage: download_tool ID");
  const auto id = ac::parse_model_id(arguments[1]);
  if (!id) ac::wrong_usage("{}: not a model id", arguments[1]);
  ac::DownloadOptions options = ac::download_options(ac::read_environment());
  options.first_delay = std::chrono::milliseconds(10);
  ac::show_progress_on_stderr(options);
  fmt::print("{}\n", ac::download_model(*id, options).string());
  return 0;
} catch (const ac::Error& error) {
  fmt::print(stderr, "download_tool: {}\n", error.what());
  return error.exit_code();
}
