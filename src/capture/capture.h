// Stage 1: from what the user calls a model to its graph.
#pragma once

#include <string>

#include "base/environment.h"
#include "capture/model.h"
#include "capture/options.h"

namespace ac {

// `source` is a HuggingFace directory or id, a GGUF file, a capture file (.json), or what only
// Python can capture: FILE.py[:FACTORY], a project directory, a .pt2 archive. What the native front
// end does not know goes to Python, with a line on stderr that says so.
Model capture(const std::string& source, const CaptureOptions& options,
              const Environment& environment);

}  // namespace ac
