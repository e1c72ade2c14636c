#include "emit/package_stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "base/table.h"
#include "emit/advice_stage.h"
#include "emit/plan_file.h"
#include "lab/package_check.h"

namespace ac {
namespace {

constexpr std::size_t kShown = 8;  // candidates of a space; the JSON has them all

std::string text_of(const Json& value) { return value.get<std::string>(); }

// Counts and amounts, such as 1,234,567.
std::string number(const Json& value) {
  const auto whole = value.get<std::int64_t>();
  std::string digits = fmt::format("{}", whole < 0 ? -whole : whole), text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return whole < 0 ? "-" + text : text;
}

std::string microseconds(const Json& object, const char* key) {
  return object.contains(key) ? fmt::format("{:.2f}", object.at(key).get<double>()) : "";
}

std::string join(const Json& list) {
  std::string text;
  for (const Json& item : list) text += (text.empty() ? "" : "+") + text_of(item);
  return text.empty() ? "argmax" : text;
}

std::string implementation(const Json& selection) {
  const std::string candidate = text_of(selection.at("candidate"));
  return candidate.empty() ? "fallback" : candidate;
}

std::string heading(const std::string& name, const Json& phase) {
  return fmt::format("{}, a step of {} tokens after {}:\n", name,
                     phase.at("tokens").get<std::int64_t>(),
                     phase.at("context").get<std::int64_t>());
}

std::string regions_text(const Json& phase) {
  std::string text =
      fmt::format("{} nodes, {} regions of {} signatures\n", number(phase.at("nodes")),
                  number(phase.at("regions")), number(phase.at("signatures")));
  Table table({"count", "category", "ops", "dtype", "access", "flops", "bytes", "first at"});
  for (const Json& region : phase.at("region_table"))
    table.add({number(region.at("regions")), text_of(region.at("category")), join(region.at("ops")),
               text_of(region.at("dtype")), text_of(region.at("access")),
               number(region.at("flops")), number(region.at("bytes")),
               text_of(region.at("module"))});
  return text + table.text();
}

// What became of each candidate of a space that was tried, by id.
std::map<std::string, std::string> outcomes_of(const Json& phase, const Json& space) {
  std::map<std::string, std::string> outcomes;
  for (const Json* tried : all_tried(phase)) {
    if (tried->at("signature") != space.at("signature")) continue;
    for (const Json& attempt : tried->at("attempts"))
      outcomes[text_of(attempt.at("candidate"))] = text_of(attempt.at("outcome").at("kind"));
    if (!tried->contains("candidate")) continue;
    const std::string selected = text_of(tried->at("candidate"));
    if (!selected.empty()) outcomes[selected] = "selected";
  }
  return outcomes;
}

std::string space_text(const Json& phase, const Json& space, std::size_t index) {
  const Json& candidates = space.at("candidates");
  Table head({fmt::format("space {}: {} regions; {} enumerated, {} legal, {} kept", index,
                          number(space.at("regions")), number(space.at("enumerated")),
                          number(space.at("legal")), candidates.size())});
  head.add({"  " + text_of(space.at("signature"))});
  const std::map<std::string, std::string> outcomes = outcomes_of(phase, space);
  Table table({"    us", "candidate", "outcome"});
  std::size_t rank = 0;
  for (const auto& [id, predicted] : candidates.items()) {
    const auto outcome = outcomes.find(id);
    if (rank++ >= kShown && outcome == outcomes.end()) continue;
    table.add({fmt::format("{:.2f}", predicted.get<double>()), id,
               outcome == outcomes.end() ? "" : outcome->second});
  }
  return head.text() + (table.rows() == 0 ? "    none: left to the fallback\n" : table.text());
}

std::string candidates_text(const Json& phase) {
  std::string text;
  const Json& spaces = phase.at("space_table");
  for (std::size_t i = 0; i < spaces.size(); ++i) text += space_text(phase, spaces.at(i), i);
  Table table({"count", "neighbourhood", "fusion", "us", "kernels"});
  for (const Json& around : phase.at("fusion_table"))
    for (const Json& option : around.at("options"))
      table.add(
          {number(around.at("count")), text_of(around.at("kind")), text_of(option.at("fusion")),
           microseconds(option, "predicted_us"),
           text_of(option.at("kernels")) +
               (option.contains("refused") ? ", refused: " + text_of(option.at("refused")) : "")});
  return text + table.text();
}

std::string worst_error(const Json& outcome) {
  return outcome.contains("worst_error")
             ? fmt::format("{:.3f}", outcome.at("worst_error").get<double>())
             : "";
}

std::string use_of(const Json& tried, const Json& attempt) {
  if (!tried.contains("candidate")) return "another cut";
  return tried.at("candidate") == attempt.at("candidate") ? "selected" : "";
}

// The final admission of what was selected.
std::string confirmed_text(const Json& phase) {
  Table table({"ops", "implementation", "trial", "verdict", "error/bound", "note"});
  for (const Json& selection : phase.at("selections"))
    for (const Json& of : selection.at("confirmed")) {
      const Json& outcome = of.at("outcome");
      table.add({join(selection.at("ops")), text_of(of.at("what")), text_of(of.at("trial")),
                 text_of(outcome.at("kind")), worst_error(outcome), outcome.value("note", "")});
    }
  return "final admission:\n" + table.text();
}

std::string verdicts_text(const Json& phase) {
  Table table(
      {"ops", "candidate", "predicted us", "measured us", "verdict", "error/bound", "used", "why"});
  for (const Json* tried : all_tried(phase))
    for (const Json& attempt : tried->at("attempts")) {
      const Json& outcome = attempt.at("outcome");
      table.add({join(tried->at("ops")), text_of(attempt.at("candidate")),
                 microseconds(attempt, "predicted_us"), microseconds(attempt, "measured_us"),
                 text_of(outcome.at("kind")), worst_error(outcome), use_of(*tried, attempt),
                 outcome.value("why", "") + outcome.value("note", "")});
    }
  return table.text() + confirmed_text(phase);
}

// What timing whole steps said, context by context.
const Json& in_context_of(const Json& phase) {
  const Json& contexts = phase.at("in_context");
  for (const Json& of : contexts)
    if (!of.contains("untimed"))
      for (const char* key : {"context", "first_us", "us", "timed", "changed", "from"}) of.at(key);
  return contexts;
}

// What timing several ways to cut the step said.
const Json& cuts_of(const Json& phase) {
  const Json& cuts = phase.at("cuts");
  for (const Json& of : cuts)
    for (const char* key : {"other", "us", "taken"}) of.at(key);
  return cuts;
}

std::string cuts_text(const Json& phase) {
  Table table({"a whole step with", "us", ""});
  for (const Json& of : cuts_of(phase)) {
    const std::string other = text_of(of.at("other"));
    table.add({other.empty() ? "what costs least by its parts" : other, microseconds(of, "us"),
               of.at("taken").get<bool>() ? "taken" : ""});
  }
  return table.rows() == 0 ? "" : "cuts:\n" + table.text();
}

std::string in_context_text(const Json& phase) {
  Table table({"after tokens", "us", "us before", "steps timed", "choice"});
  for (const Json& of : in_context_of(phase)) {
    const std::string context = number(of.at("context"));
    if (of.contains("untimed"))
      table.add({context, "", "", "", "not timed: " + text_of(of.at("untimed"))});
    else
      table.add({context, microseconds(of, "us"), microseconds(of, "first_us"),
                 number(of.at("timed")),
                 of.at("changed").get<bool>()
                     ? fmt::format("another, from {} tokens on", number(of.at("from")))
                     : "the same"});
  }
  return table.rows() == 0 ? "" : "whole steps:\n" + table.text();
}

std::string selection_text(const Json& phase) {
  Table table({"uses", "category", "ops", "implementation", "predicted us", "measured us",
               "fallback us", "flops", "bytes"});
  for (const Json& selection : phase.at("selections"))
    table.add({number(selection.at("uses")), text_of(selection.at("category")),
               join(selection.at("ops")), implementation(selection),
               microseconds(selection, "predicted_us"), microseconds(selection, "measured_us"),
               microseconds(selection, "fallback_us"), number(selection.at("flops")),
               number(selection.at("bytes"))});
  return table.text() + cuts_text(phase) + in_context_text(phase);
}

std::vector<std::string> names_of(const std::vector<std::pair<std::string, const Json*>>& phases) {
  std::vector<std::string> names;
  for (const auto& [name, phase] : phases) names.push_back(name);
  return names;
}

// A column for each phase, and one for what is counted.
std::vector<std::string> row(const std::vector<std::string>& phases,
                             const std::function<std::string(const std::string& phase)>& cell,
                             const std::string& what) {
  std::vector<std::string> cells;
  for (const std::string& phase : phases) cells.push_back(cell(phase));
  cells.push_back(what);
  return cells;
}

std::string counts_text(const Json& stats, const std::vector<std::string>& phases,
                        const char* title, const char* key) {
  Table table(row(phases, std::identity(), title));
  std::vector<std::string> reasons;
  for (const std::string& phase : phases)
    for (const auto& [reason, times] : stats.at(phase).at(key).items())
      if (std::find(reasons.begin(), reasons.end(), reason) == reasons.end())
        reasons.push_back(reason);
  for (const std::string& reason : reasons) {
    const auto times = [&](const std::string& phase) {
      const Json& counts = stats.at(phase).at(key);
      return counts.contains(reason) ? number(counts.at(reason)) : "0";
    };
    table.add(row(phases, times, reason));
  }
  return reasons.empty() ? "" : "\n" + table.text();
}

std::string stats_text(const Json& stats, const std::vector<std::string>& phases) {
  Table table(row(phases, std::identity(), ""));
  for (const auto& [key, what] : std::initializer_list<std::pair<const char*, const char*>>{
           {"nodes", "IR nodes"},
           {"regions", "regions"},
           {"distinct", "distinct regions"},
           {"spaces", "candidate spaces, with those of other fusions"},
           {"enumerated", "plans enumerated"},
           {"legal", "plans legal"},
           {"plans", "plans kept and ranked"},
           {"tried", "candidates built and judged"},
           {"validated", "candidates validated"},
           {"selections", "distinct regions after fusion"},
           {"selected", "of these with a selected kernel"},
           {"launches", "kernel launches of a step"}})
    table.add(row(
        phases, [&](const std::string& phase) { return number(stats.at(phase).at(key)); }, what));
  std::string text = table.text();
  text +=
      fmt::format("{} files emitted, {} of them sources; {} kernels for {}, {} launch signatures\n",
                  number(stats.at("emitted_files")), number(stats.at("emitted_sources")),
                  number(stats.at("kernels")), text_of(stats.at("target")),
                  number(stats.at("launch_signatures")));
  text += summary_of(stats.at("check")) + "\n";
  text += counts_text(stats, phases, "plans that are illegal, by reason", "illegal");
  text += counts_text(stats, phases, "spaces that a family cannot compute, by family", "refused");
  text += counts_text(stats, phases, "candidates that were not admitted, by reason", "rejected");

  Table shares({"phase", "implementations", "calls", "%", "bytes", "%", "flops", "%"});
  for (const std::string& phase : phases)
    for (const auto& [name, part] : stats.at(phase).at("components").items()) {
      std::vector<std::string> row = {phase, name};
      for (const std::string measure : {"calls", "bytes", "flops"}) {
        row.push_back(number(part.at(measure)));
        row.push_back(fmt::format("{:.1f}", 100 * part.at(measure + "_share").get<double>()));
      }
      shares.add(std::move(row));
    }
  text += "\n" + shares.text();

  Table times({"seconds", "stage"});
  for (const Json& time : stats.at("stages"))
    times.add({fmt::format("{:.3f}", time.at("seconds").get<double>()), text_of(time.at("stage"))});
  return text + "\n" + times.text();
}

Json verdicts_of(const Json& phase) {
  Json list = Json::array();
  for (const Json* tried : all_tried(phase))
    for (const Json& attempt : tried->at("attempts")) {
      Json verdict{{"signature", tried->at("signature")},
                   {"abandoned", !tried->contains("candidate")}};
      verdict.update(attempt);
      list.push_back(std::move(verdict));
    }
  return list;
}

Json selection_of(const Json& phase) {
  Json list = phase.at("selections");
  for (Json& selection : list)
    for (const char* key : {"attempts", "trials", "illegal", "refusals"}) selection.erase(key);
  return list;
}

Json part_of(const Json& phase, PackageStage stage) {
  Json part{{"tokens", phase.at("tokens")}, {"context", phase.at("context")}};
  if (stage == PackageStage::regions) {
    for (const char* key : {"nodes", "regions", "signatures"}) part[key] = phase.at(key);
    part["table"] = phase.at("region_table");
  } else if (stage == PackageStage::candidates) {
    part["spaces"] = phase.at("space_table");
    for (Json& space : part["spaces"]) space["outcomes"] = outcomes_of(phase, space);
    part["fusions"] = phase.at("fusion_table");
  } else if (stage == PackageStage::verdicts) {
    part["verdicts"] = verdicts_of(phase);
  } else {
    part["selection"] = selection_of(phase);
    part["cuts"] = cuts_of(phase);
    part["in_context"] = in_context_of(phase);
  }
  return part;
}

}  // namespace

std::vector<const Json*> all_tried(const Json& phase) {
  std::vector<const Json*> all;
  for (const char* key : {"selections", "abandoned"})
    for (const Json& tried : phase.at(key)) all.push_back(&tried);
  all.push_back(&phase.at("ending"));
  return all;
}

Json stage_json(const Json& plan, PackageStage stage, const std::string& origin) {
  return reading_plan(origin, [&] {
    if (stage == PackageStage::stats) return stats_of(plan);
    if (stage == PackageStage::advice) return advice_of(plan);
    Json json{{"target", plan.at("target")}};
    for (const auto& [name, phase] : phases_of(plan)) json[name] = part_of(*phase, stage);
    if (stage == PackageStage::verdicts) json["check"] = plan.at("check");
    return json;
  });
}

std::string stage_text(const Json& plan, PackageStage stage, const std::string& origin) {
  return reading_plan(origin, [&] {
    if (stage == PackageStage::stats) return stats_text(stats_of(plan), names_of(phases_of(plan)));
    if (stage == PackageStage::advice) return advice_text(plan);
    std::string text;
    for (const auto& [name, of] : phases_of(plan)) {
      const Json& phase = *of;
      text += (text.empty() ? "" : "\n") + heading(name, phase);
      switch (stage) {
        case PackageStage::regions:
          text += regions_text(phase);
          break;
        case PackageStage::candidates:
          text += candidates_text(phase);
          break;
        case PackageStage::verdicts:
          text += verdicts_text(phase);
          break;
        default:
          text += selection_text(phase);
      }
    }
    if (stage == PackageStage::verdicts) text += "\n" + summary_of(plan.at("check")) + "\n";
    return text;
  });
}

}  // namespace ac
