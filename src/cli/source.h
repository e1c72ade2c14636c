// The SOURCE argument and its options, which most commands share.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "capture/capture.h"

namespace ac {

struct SourceArguments {
  std::string source;
  CaptureOptions options;

  void add_to(CLI::App& command);
  Model capture() const;
};

}  // namespace ac
