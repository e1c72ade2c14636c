// The trials of a whole step that one kernel family computes, with a plan of the caller's: sources
// and trials are made as a compilation that took this plan would make them.
#pragma once

#include <string>

#include "base/error.h"
#include "families/list.h"
#include "tests/device/admission.h"

namespace ac::test {

template <class Task>
Admission admission_of_whole_step(const std::string& name, const StepGraph& step, bool argmax,
                                  const typename Task::Plan& plan, std::int64_t tokens) {
  std::vector<NodeId> nodes;
  for (std::size_t i = 0; i < step.graph.nodes.size(); ++i)
    if (is_compute(step.graph.nodes[i])) nodes.push_back(static_cast<NodeId>(i));
  const auto region = make_region(step, nodes);
  if (const auto* boundary = std::get_if<Boundary>(&region))
    job_failed("{}: no region: {}", name, boundary->text);
  const Wanted wanted{std::get<Region>(region), argmax};
  for (const FamilyMatch& found : match_families(step, wanted, {.S = -1, .T = tokens, .P = 64})) {
    if (found.family != Task::family) continue;
    if (const auto* why = std::get_if<std::string>(&found.match)) job_failed("{}: {}", name, *why);
    const auto& matched = std::get<Matched<Task>>(std::get<AnyMatched>(found.match));
    const Choice choice = Implementation<Task>{matched.task, plan};
    const Candidate candidate{id_of(choice), kind_of(choice), choice, {}};
    if (auto all = admission_of(step, wanted, candidate, tokens)) return std::move(*all);
  }
  job_failed("{}: it has no trial", name);
}

}  // namespace ac::test
