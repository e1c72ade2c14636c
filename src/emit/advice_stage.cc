#include "emit/advice_stage.h"

#include <fmt/format.h>

#include "base/table.h"

namespace ac {
namespace {

Json advised_json(const std::string& phase, const Advised& advised) {
  Json json{{"phase", phase},
            {"ops", advised.ops},
            {"signature", advised.signature},
            {"why", advised.why},
            {"share", advised.share},
            {"diagnosis", advised.diagnosis},
            {"prompt_hash", advised.prompt_hash},
            {"model", advised.reply.model},
            {"calls", advised.reply.calls},
            {"input_tokens", advised.reply.input_tokens},
            {"output_tokens", advised.reply.output_tokens},
            {"seconds", advised.reply.seconds}};
  if (!advised.reply.failure.empty()) json["failure"] = advised.reply.failure;
  json["label"] = advised.label;
  json["order"] = advised.order;
  json["thorough"] = advised.thorough;
  json["audit"] = to_json(advised.audit);
  return json;
}

std::string string_of(const Json& value) { return value.get<std::string>(); }

// "3 accepted, 1 rejected"; or why there was nothing to judge.
std::string outcome(const Json& region) {
  if (region.contains("failure")) return "no advice: " + string_of(region.at("failure"));
  int accepted = 0, rejected = 0;
  for (const Json& item : region.at("audit"))
    ++(item.at("accepted").get<bool>() ? accepted : rejected);
  return fmt::format("{} accepted, {} rejected", accepted, rejected);
}

}  // namespace

Json advice_json(const Compiled& compiled) {
  Json regions = Json::array();
  for (const CompiledPhase& phase : compiled.phases)
    for (const Advised& advised : phase.advice)
      regions.push_back(advised_json(phase.spec.name, advised));
  return {{"advisor", compiled.advisor},
          {"share", compiled.advise_share},
          {"regions", std::move(regions)}};
}

Json advice_of(const Json& plan) {
  return plan.contains("advice")
             ? plan.at("advice")
             : Json{{"advisor", "none"}, {"share", 0}, {"regions", Json::array()}};
}

std::string advice_text(const Json& plan) {
  const Json advice = advice_of(plan);
  const Json& regions = advice.at("regions");
  Table summary({"phase", "ops", "asked for", "model", "tokens", "outcome"});
  std::string details;
  for (const Json& region : regions) {
    const bool diagnosis = region.at("diagnosis").get<bool>();
    const auto tokens = region.at("input_tokens").get<std::int64_t>() +
                        region.at("output_tokens").get<std::int64_t>();
    summary.add({string_of(region.at("phase")), string_of(region.at("ops")),
                 diagnosis ? "a diagnosis" : string_of(region.at("why")),
                 string_of(region.at("model")), tokens > 0 ? fmt::format("{}", tokens) : "",
                 outcome(region)});
    if (region.at("audit").empty()) continue;
    Table audit({"  item", "verdict", "said", "reason"});
    for (const Json& item : region.at("audit"))
      audit.add({"  " + string_of(item.at("item")),
                 item.at("accepted").get<bool>() ? "accepted" : "rejected",
                 string_of(item.at("said")), item.value("reason", "")});
    details += fmt::format("\n{} {}{}\n", string_of(region.at("phase")),
                           string_of(region.at("ops")), diagnosis ? ", diagnosis" : "");
    details += audit.text();
  }
  if (regions.empty())
    return fmt::format("advisor {}: asked about no region\n", string_of(advice.at("advisor")));
  return fmt::format(
             "advisor {}: {} questions, about mixed or complex regions and those from {:.3g} % "
             "of a step on\n",
             string_of(advice.at("advisor")), regions.size(),
             100 * advice.at("share").get<double>()) +
         summary.text() + details;
}

}  // namespace ac
