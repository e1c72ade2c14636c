// Known choices: what selections on real devices chose, in files that travel with the program
// (tuned/). They say what to try first, and no more: what they name is built, judged and checked as
// anything else is.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "build/compile.h"
#include "select/phase.h"
#include "select/pinned.h"

namespace ac {

struct KnownChoices {
  std::string origin;                          // the file
  std::string model;                           // that they were made for: for people
  std::string device;                          // tuning::fingerprint()
  std::string toolkit;                         // "NVRTC 13.0, cuBLASLt 13.1.0"
  std::map<std::string, std::string> headers;  // digests of the kernels' headers, by name
  struct Phase {
    std::string name;
    std::int64_t tuned_at = 1;
    std::vector<std::int64_t> contexts;
    Pinned choice;
    bool shared = false;  // PhaseSpec::shared
  };
  std::vector<Phase> phases;
  std::string stale = {};  // why the times that they rest on may be others here; empty: they hold
};

constexpr int kKnownFormat = 1;
constexpr const char* kTunedFolder = "tuned";  // beside kernels/

Json to_json(const KnownChoices& known);
// Anything that to_json() does not make is an error (bad_input).
KnownChoices known_choices_from_json(const Json& json, const std::string& origin);

// The digests of all kernel headers in the folder that these sources reach, but those of
// kernels/shim/, which no GPU's kernel has.
std::map<std::string, std::string> header_digests(const std::vector<KernelSource>& sources,
                                                  const std::filesystem::path& folder);

// Of all files in a folder (*.json). One that makes no sense is an error (bad_input). No folder:
// none.
std::vector<KnownChoices> read_known_choices(const std::filesystem::path& folder);
// The first header that is another one than in `headers`, the folder that holds kernels/; or
// nothing.
std::string changed_header(const KnownChoices& known, const std::filesystem::path& headers);
// Those that are of this device, those first that are not stale.
std::vector<KnownChoices> known_choices_of(const std::filesystem::path& folder,
                                           const std::string& device, const std::string& toolkit,
                                           const std::filesystem::path& headers);

// What known choices say of one phase.
struct KnownPhase {
  std::optional<Pinned> whole;  // a choice for every region of the step, whose times hold
  std::string origin;           // of that
  Preferred order;              // what to try first
};
KnownPhase known_of(const PhasePlan& phase, const std::vector<KnownChoices>& known);

}  // namespace ac
