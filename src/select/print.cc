#include <fmt/format.h>

#include "base/table.h"
#include "select/selection.h"

namespace ac {

std::string print(const std::vector<Selection>& selections) {
  const auto number = [](const std::optional<double>& value) {
    return value ? fmt::format("{:.2f}", *value) : "";
  };
  Table table({"uses", "ops", "implementation", "predicted us", "measured us", "fallback us"});
  for (const Selection& selection : selections) {
    std::string ops;
    for (const std::string& op : selection.ops) ops += (ops.empty() ? "" : "+") + op;
    table.add({fmt::format("{}", selection.uses), ops.empty() ? "argmax" : ops,
               selection.candidate.empty() ? "fallback" : selection.candidate,
               selection.candidate.empty() ? "" : number(selection.predicted),
               number(selection.measured), number(selection.fallback_measured)});
  }
  return table.text();
}

}  // namespace ac
