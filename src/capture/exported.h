// The front end for everything that PyTorch can export: reads what `python -m agentcompile.capture`
// wrote (docs/capture-format.md) and puts it in terms of our op table. It trusts nothing in the
// file: the type of every node is inferred anew and must be the declared one.
//
// The graph keeps the batch axis of 1 that the capture has, between a reshape of the ids and one of
// the logits; a later pass removes it.
#pragma once

#include <filesystem>
#include <string_view>

#include "capture/model.h"

namespace ac {

Model read_exported(const std::filesystem::path& file);

// The same from memory. `file` names the text in errors, and is what relative roots are relative
// to.
Model parse_exported(std::string_view text, const std::filesystem::path& file);

}  // namespace ac
