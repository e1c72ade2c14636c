#include "select/known.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "build/headers.h"

namespace ac {
namespace {

namespace fs = std::filesystem;

constexpr JsonLimits kLimits{.bytes = 16u << 20, .depth = 16, .values = 1'000'000};

Json to_json(const KnownChoices::Phase& phase) {
  Json variants = Json::array(), cuts = Json::array(), contexts = Json::array();
  for (const Pinned::Variant& variant : phase.choice.variants)
    variants.push_back({{"from", variant.from}, {"candidates", variant.candidates}});
  for (const TimedCut& cut : phase.choice.cuts) cuts.push_back(to_json(cut));
  for (const InContext& of : phase.choice.contexts) contexts.push_back(to_json(of));
  return {{"name", phase.name},
          {"tuned_at", phase.tuned_at},
          {"shared", phase.shared},
          {"contexts", phase.contexts},
          {"variants", std::move(variants)},
          {"cuts", std::move(cuts)},
          {"in_context", std::move(contexts)}};
}

KnownChoices::Phase phase_from_json(const Json& json, const std::string& origin) {
  KnownChoices::Phase phase{
      json.at("name"), json.at("tuned_at"), json.at("contexts"), {}, json.at("shared")};
  for (const Json& of : json.at("variants"))
    phase.choice.variants.push_back({.from = of.at("from"), .candidates = of.at("candidates")});
  for (const Json& cut : json.at("cuts")) phase.choice.cuts.push_back(timed_cut_from_json(cut));
  for (const Json& of : json.at("in_context"))
    phase.choice.contexts.push_back(in_context_from_json(of));
  const auto rises = [](const auto& list, auto value) {
    return std::ranges::adjacent_find(list, std::greater_equal(), value) == list.end();
  };
  const std::vector<Pinned::Variant>& variants = phase.choice.variants;
  if (variants.empty() || variants[0].from != 0 || !rises(variants, &Pinned::Variant::from) ||
      !rises(phase.contexts, std::identity()))
    bad_input("{}: the choices of \"{}\" do not rise from the first token on", origin, phase.name);
  return phase;
}

// The choice for a phase with these contexts, which may be the first ones of the choice's.
std::optional<Pinned> fitted(const KnownChoices::Phase& known, const PhaseSpec& spec) {
  if (known.name != spec.name || known.tuned_at != spec.tuned_at || known.shared != spec.shared ||
      spec.contexts.size() > known.contexts.size() ||
      !std::ranges::equal(spec.contexts, std::span(known.contexts).first(spec.contexts.size())))
    return std::nullopt;
  Pinned choice = known.choice;
  const std::int64_t last = spec.contexts.empty() ? 0 : spec.contexts.back();
  std::erase_if(choice.variants, [&](const auto& variant) { return variant.from > last; });
  std::erase_if(choice.contexts, [&](const auto& of) { return of.context > last; });
  return choice;
}

bool names_all_regions(const Pinned& choice, const PhasePlan& phase) {
  return std::ranges::all_of(choice.variants, [&](const Pinned::Variant& variant) {
    return std::ranges::all_of(
        pinned_signatures(phase, variant),
        [&](const std::string& signature) { return variant.candidates.contains(signature); });
  });
}

void add_to(Preferred& order, const KnownChoices::Phase& known) {
  for (const Pinned::Variant& variant : known.choice.variants)
    for (const auto& [signature, candidate] : variant.candidates) {
      std::vector<std::string>& of = order[signature];
      if (!candidate.empty() && std::ranges::find(of, candidate) == of.end())
        of.push_back(candidate);
    }
}

}  // namespace

Json to_json(const KnownChoices& known) {
  Json phases = Json::array();
  for (const KnownChoices::Phase& phase : known.phases) phases.push_back(to_json(phase));
  return {{"format", kKnownFormat},   {"model", known.model},     {"device", known.device},
          {"toolkit", known.toolkit}, {"headers", known.headers}, {"phases", std::move(phases)}};
}

KnownChoices known_choices_from_json(const Json& json, const std::string& origin) {
  try {
    if (json.at("format") != kKnownFormat)
      bad_input("{}: known choices of another format: export them again (agentcompile tuned)",
                origin);
    KnownChoices known{.origin = origin,
                       .model = json.at("model"),
                       .device = json.at("device"),
                       .toolkit = json.at("toolkit"),
                       .headers = json.at("headers"),
                       .phases = {}};
    for (const Json& phase : json.at("phases"))
      known.phases.push_back(phase_from_json(phase, origin));
    return known;
  } catch (const Json::exception& error) {
    bad_input("{}: no known choices ({}): export them again, or leave them out (--no-tuned)",
              origin, error.what());
  }
}

std::map<std::string, std::string> header_digests(const std::vector<KernelSource>& sources,
                                                  const fs::path& folder) {
  Headers headers(folder);
  std::map<std::string, std::string> digests;
  for (const KernelSource& source : sources)
    for (const Header* header : headers.reached_by(source.text))
      if (!header->name.starts_with("kernels/shim/")) digests.emplace(header->name, header->digest);
  return digests;
}

std::vector<KnownChoices> read_known_choices(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  std::ranges::sort(files);
  std::vector<KnownChoices> all;
  for (const fs::path& file : files)
    all.push_back(known_choices_from_json(read_json(file, kLimits), file.string()));
  return all;
}

std::string changed_header(const KnownChoices& known, const fs::path& headers) {
  Headers read(headers);
  for (const auto& [name, digest] : known.headers) {
    const auto reached = read.reached_by("#include \"" + name + "\"\n");
    const auto now = std::ranges::find(reached, name, &Header::name);
    if (now == reached.end() || (*now)->digest != digest) return name;
  }
  return "";
}

std::vector<KnownChoices> known_choices_of(const fs::path& folder, const std::string& device,
                                           const std::string& toolkit, const fs::path& headers) {
  std::vector<KnownChoices> all = read_known_choices(folder);
  std::erase_if(all, [&](const KnownChoices& known) { return known.device != device; });
  for (KnownChoices& known : all)
    if (const std::string changed = changed_header(known, headers); !changed.empty())
      known.stale = changed + " is another one since";
    else if (known.toolkit != toolkit)
      known.stale = fmt::format("timed with {}, not {}", known.toolkit, toolkit);
  std::ranges::stable_partition(all, [](const KnownChoices& known) { return known.stale.empty(); });
  return all;
}

KnownPhase known_of(const PhasePlan& phase, const std::vector<KnownChoices>& known) {
  KnownPhase made;
  for (const KnownChoices& choices : known)
    for (const KnownChoices::Phase& of : choices.phases) {
      if (of.name == phase.spec.name) add_to(made.order, of);
      if (made.whole || !choices.stale.empty()) continue;
      std::optional<Pinned> choice = fitted(of, phase.spec);
      if (!choice || !names_all_regions(*choice, phase)) continue;
      made.whole = std::move(choice);
      made.origin = choices.origin;
    }
  return made;
}

}  // namespace ac
