#include "report/step.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/text.h"

namespace ac {
namespace {

// What a region reads that no other kind of region need read: the shapes of its weights, and its
// caches.
using Reads = std::multiset<std::string>;

Reads reads_of(const std::string& signature) {
  Reads reads;
  for (std::size_t at = 0; at < signature.size();) {
    const std::size_t end = std::min(signature.find("; ", at), signature.size());
    const std::string input = signature.substr(at, end - at);
    const std::size_t colon = input.find(": "), open = input.find('['), close = input.find(']');
    if (input.starts_with("cache") && colon != input.npos)
      reads.insert(input.substr(colon + 2));
    else if (input.find(": weight ") != input.npos && open < close && close != input.npos)
      reads.insert(input.substr(open + 1, close - open - 1));
    at = end + 2;
  }
  return reads;
}

Reads reads_of(const Program& program, const Phase& phase, std::size_t from, std::size_t count) {
  std::set<std::int32_t> touched;
  for (std::size_t i = from; i < from + count; ++i) {
    for (const Launch::Pointer& pointer : phase.launches[i].pointers)
      touched.insert(pointer.buffer);
    for (const Launch::Map& map : phase.launches[i].maps) touched.insert(map.buffer);
  }
  Reads reads;
  std::set<std::int64_t> states;
  for (const std::int32_t index : touched) {
    const Buffer& buffer = program.buffers[static_cast<std::size_t>(index)];
    if (buffer.role == Buffer::Role::weight)
      reads.insert(fmt::format("{}", fmt::join(buffer.shape, ", ")));
    if (buffer.role == Buffer::Role::state) states.insert(buffer.state);
  }
  for (const std::int64_t state : states)
    reads.insert(to_string(program.states[static_cast<std::size_t>(state)]));
  return reads;
}

// The implementation in "gemv/R256x1x8/768 at model.layers.0".
std::string implementation_in(const std::string& note) { return note.substr(0, note.find(" at ")); }

bool is_by(const Json& selection, const std::string& implementation) {
  const auto is = [&](const Json& candidate) {
    const auto id = candidate.get<std::string>();
    return (id.empty() ? "fallback" : id) == implementation;
  };
  if (is(selection.at("candidate"))) return true;
  return std::ranges::any_of(selection.value("by_context", Json::array()),
                             [&](const Json& of) { return is(of.at("candidate")); });
}

// How many launches from one on may be one region's: their notes are equal, and the selection has
// all their kernels. A region that reads nothing of its own ends before a kernel comes again.
std::size_t most_launches(const Phase& phase, std::size_t from, const Json& selection,
                          bool reads_nothing) {
  const Json& kernels = selection.at("kernels");
  std::set<std::string> seen;
  std::size_t count = 0;
  for (std::size_t i = from; i < phase.launches.size(); ++i, ++count) {
    const Launch& launch = phase.launches[i];
    if (phase.notes[i] != phase.notes[from]) break;
    if (!launch.product &&
        std::find(kernels.begin(), kernels.end(), launch.kernel) == kernels.end())
      break;
    if (!seen.insert(launch.kernel).second && reads_nothing) break;
  }
  return count;
}

// The longest row of launches from one on that reads what a region of one selection does.
StepPart part_at(const Program& program, const Phase& phase, std::size_t from,
                 const Json& selections) {
  const std::string implementation = implementation_in(phase.notes[from]);
  StepPart found{from, 1, kUnknownSelection};
  if (implementation == "advance") found.selection = kEndOfStep;
  for (std::size_t s = 0; s < selections.size(); ++s) {
    const Json& selection = selections.at(s);
    if (!is_by(selection, implementation)) continue;
    const Reads wanted = reads_of(selection.at("signature").get<std::string>());
    for (std::size_t count = most_launches(phase, from, selection, wanted.empty()); count > 0;
         --count) {
      if (reads_of(program, phase, from, count) != wanted) continue;
      const bool is_longer = found.selection < 0 || count > found.count;
      if (is_longer || count == found.count)
        found = {from, count, is_longer ? static_cast<int>(s) : kUnknownSelection};
      break;
    }
  }
  return found;
}

}  // namespace

std::vector<StepPart> parts_of(const Program& program, const Phase& phase, const Json& planned) {
  std::vector<StepPart> parts;
  for (std::size_t i = 0; i < phase.launches.size(); i += parts.back().count)
    parts.push_back(part_at(program, phase, i, planned.at("selections")));
  return parts;
}

Json step_of(const Program& program, const Phase& phase, const Json& planned,
             const std::vector<Json>& lines, const std::string& origin) {
  const auto context = lines.at(0).at("context").get<std::int64_t>();
  if (lines.size() != phase.launches.size())
    bad_input("{}: its timeline has {} launches, and a step of the package {}: measure it again",
              origin, lines.size(), phase.launches.size());
  const std::vector<StepPart> all = parts_of(program, phase, planned);
  Json launches = Json::array();
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Json& line = lines[i];
    const auto kernel = line.at("kernel").get<std::string>();
    if (kernel != phase.launches[i].kernel || line.at("context") != context ||
        line.at("launch") != i)
      bad_input("{}: launch {} of its timeline is {}, and of the package {}: measure it again",
                origin, i, quote(kernel), quote(phase.launches[i].kernel));
    launches.push_back({{"kernel", kernel},
                        {"note", phase.notes[i]},
                        {"start_us", line.at("start_us").get<double>()},
                        {"us", line.at("us").get<double>()},
                        {"bytes", line.at("bytes").get<std::int64_t>()}});
    if (line.contains("parts")) launches.back()["parts"] = line.at("parts");
  }
  std::map<int, std::int64_t> uses;
  for (const StepPart& part : all) ++uses[part.selection];
  Json parts = Json::array();
  for (const StepPart& part : all) {
    double us = 0;
    std::int64_t bytes = 0;
    for (std::size_t i = part.from; i < part.from + part.count; ++i) {
      launches[i]["selection"] = part.selection;
      us += launches[i]["us"].get<double>(), bytes += launches[i]["bytes"].get<std::int64_t>();
    }
    Json json{{"selection", part.selection},
              {"from", part.from},
              {"launches", part.count},
              {"us", us},
              {"bytes", bytes}};
    if (part.selection >= 0) {
      const Json& selection = planned.at("selections").at(static_cast<std::size_t>(part.selection));
      if (context == planned.at("context") && selection.at("uses") == uses[part.selection])
        json["flops"] = selection.at("flops");
    }
    parts.push_back(std::move(json));
  }
  return {{"phase", phase.name},
          {"context", context},
          {"launches", std::move(launches)},
          {"parts", std::move(parts)}};
}

}  // namespace ac
