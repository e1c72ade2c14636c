// The SOURCE argument and its options, which most commands share.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "capture/capture.h"

namespace ac {

struct SourceArguments {
  std::string source;
  CaptureOptions options;
  std::optional<DType> dtype;

  // `or_package`: the command takes a package as well.
  void add_to(CLI::App& command, bool or_package = false);
  Model capture(bool quiet = false) const;
  // The normal form, in the wanted float type.
  Graph normal_form(const Graph& captured) const;
};

}  // namespace ac
