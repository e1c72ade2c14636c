// The SOURCE argument and its options, which most commands share.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "capture/capture.h"
#include "state/state.h"

namespace ac {

// Of --kv.
inline constexpr const char* kKvHelp =
    "How attention's keys and values are stored. auto: in the type that is computed in; fp8: a "
    "byte "
    "each, and a scale for each head and token";

struct SourceArguments {
  std::string source;
  CaptureOptions options;
  std::optional<DType> dtype;
  std::optional<KvStorage> kv;
  KvStorage kv_storage() const { return kv.value_or(KvStorage::elements); }

  // `or_package`: the command takes a package as well.
  void add_to(CLI::App& command, bool or_package = false);
  Model capture(bool quiet = false) const;
  // The normal form, in the wanted float type.
  Graph normal_form(const Graph& captured) const;
};

}  // namespace ac
