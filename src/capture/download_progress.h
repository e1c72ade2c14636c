// Shows a download on stderr: a bar that redraws itself on a terminal, a line for each finished
// file otherwise.
#pragma once

#include "capture/download.h"

namespace ac {

// Sets on_progress and on_message.
void show_progress_on_stderr(DownloadOptions& options);

}  // namespace ac
