#include "advise/proposals.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "advise/find_object.h"
#include "advise/limits.h"
#include "advise/plain_text.h"
#include "base/text.h"
#include "build/digest.h"

namespace ac {
namespace {

using search::Change;
using search::Situation;
using search::Visit;

constexpr std::size_t kMaxShown = 160, kMaxAbout = 120;
constexpr std::string_view kAbsent = "absent";  // a recorded site that is not there
// Of each list in a prompt, the entries that are shown.
constexpr std::size_t kMostSteps = 12, kMostTried = 24, kMostBest = 8;
constexpr std::size_t kMostAlike = 24;    // plans that failed for one reason
constexpr std::size_t kMostOfChange = 4;  // fields of a change
constexpr std::size_t kMaxWhy = 190, kMaxPlan = 400;

constexpr std::string_view kProposalTask =
    R"(You advise a compiler that looks for the fastest way to run {}.

A schedule says how each site is done: by which family of kernels, with which fields. The compiler
changes one field of one site at a time, builds the kernels, checks them and measures how long the
whole takes. You see what was measured so far, and say which changes to try next. You write no code.
)";

constexpr std::string_view kProposalReply = R"(
## Reply

One JSON object and nothing else:

{{"note": "what limits this schedule, in a sentence",
 "proposals": [{{"site": "a site", "field": "a field, or family", "value": "a value", "why": ""}}]{}}}

At most {} proposals, the best first: each is one change of the schedule above, from the list of legal
changes. What changes with it is set by the compiler. Texts are cut after {} bytes.
{})";
constexpr std::string_view kRequestsForm = R"(,
 "requests": [{"site": "a site", "field": "a field, or family", "value": "a new value", "why": ""}])";
constexpr std::string_view kRequestsMeaning =
    R"(With `requests` you may ask people to add at most {} values or fields that the compiler lacks: they are
kept for people and not run, and the list may be empty.
)";

ReplyForm make_form(bool takes_requests) {
  const Json text{{"type", "string"}};
  const Json change{
      {"type", "object"},
      {"properties", {{"site", text}, {"field", text}, {"value", text}, {"why", text}}},
      {"required", {"site", "field", "value", "why"}},
      {"additionalProperties", false}};
  const Json changes{{"type", "array"}, {"items", change}};
  Json properties{{"note", text}, {"proposals", changes}};
  Json required{"note", "proposals"};
  if (takes_requests) properties["requests"] = changes, required.push_back("requests");
  return {"propose_changes",
          "Proposes changes of a schedule.",
          {"proposals"},
          {{"type", "object"},
           {"properties", std::move(properties)},
           {"required", std::move(required)},
           {"additionalProperties", false}}};
}

const ReplyForm& proposals_form(bool takes_requests) {
  static const ReplyForm plain = make_form(false), with_requests = make_form(true);
  return takes_requests ? with_requests : plain;
}

constexpr std::string_view kMeasuredSites =
    "What is measured of a site is how much longer the whole takes with it than without it.\n";

constexpr std::string_view kFailures = R"(
## Failures, the last first

In quotes is what a tool said. Below it is what failed so.

)";
constexpr std::size_t kUnlisted = 60;  // bytes that say how many failures are not listed

std::string took(const search::PointOutcome& outcome) {
  return outcome.ok() ? fmt::format("{:.2f} us", outcome.microseconds)
                      : std::string(to_string(outcome.verdict));
}

// On one line, whatever the reason is.
std::string failure_text(const search::PointOutcome& outcome) {
  if (outcome.why.empty()) return took(outcome);
  return fmt::format("{}: {}", took(outcome), quote(plain_text(outcome.why, kMaxWhy)));
}

class PromptText {
 public:
  explicit PromptText(const Situation& at) : at_(at), told_(at.told ? *at.told : at) {
    for (const Visit& visit : at.visits) tried_.insert(visit.point);
    for (const Visit& visit : told_.visits) visits_.emplace(visit.point, &visit);
  }

  std::string schedule() const {
    std::string text = "\n## The schedule to change\n\n";
    const std::vector<double> costs = at_.space.predicted_parts(at_.from);
    std::size_t index = 0;
    for (const search::SitePlan& part : at_.space.parts(at_.from)) {
      const double cost = index < costs.size() ? costs[index++] : 0;
      if (part.family == kAbsent) continue;
      text += fmt::format("  {}{}{}", part.site, part.site.empty() ? "" : ": ", part.family);
      for (const search::Field& field : part.fields)
        text += fmt::format(" {}={}", field.name, value_of(field));
      if (cost > 0) text += fmt::format("; predicted {:.2f} us", cost);
      if (const auto found = told_.measured.find(part.site); found != told_.measured.end())
        text += fmt::format("{} measured {:.2f} us", cost > 0 ? "," : ";", found->second);
      text += "\n";
    }
    if (!told_.measured.empty()) text += kMeasuredSites;
    text += fmt::format("predicted {:.2f} us", at_.space.predicted(at_.from));
    if (const Visit* visit = find(told_.from)) text += ", measured " + took(visit->outcome);
    return text + "\n";
  }

  std::string path() const {
    std::vector<const Visit*> steps;
    for (const Visit* visit = find(told_.from); visit && steps.size() < kMostSteps;
         visit = visit->from < 0 ? nullptr : find(visit->from))
      steps.push_back(visit);
    std::string text = "\n## How it came to be\n\n";
    for (std::size_t i = steps.size(); i-- > 0;)
      text += fmt::format("  {}: {}\n",
                          steps[i]->from < 0 ? std::string("the first")
                                             : changes_text(steps[i]->from, steps[i]->point),
                          took(steps[i]->outcome));
    return text;
  }

  std::string tried_here() const {
    std::vector<const Visit*> shown;
    for (const Visit& visit : told_.visits)
      if (visit.from == told_.from && visit.point != told_.from) shown.push_back(&visit);
    return list("Changes of it that were tried", shown, kMostTried);
  }

  std::string best() const {
    std::vector<const Visit*> shown;
    for (const Visit& visit : told_.visits)
      if (visit.outcome.ok() && visit.point != told_.from) shown.push_back(&visit);
    std::ranges::stable_sort(shown, {},
                             [](const Visit* visit) { return visit->outcome.microseconds; });
    shown.resize(std::min(shown.size(), kMostBest));
    return list("The fastest others, by how they differ from it", shown, kMostBest);
  }

  // What was said of them, equal reasons once, and what failed so. At most about so many bytes, of
  // which each reason gets a plan before another gets its second.
  std::string failures(std::size_t most) const {
    std::vector<Failure> kinds;
    std::map<std::string, std::size_t> known;
    std::size_t failed = 0, unlisted = 0;
    for (std::size_t i = told_.visits.size(); i-- > 0;) {
      const Visit& visit = told_.visits[i];
      if (visit.outcome.ok()) continue;
      ++failed;
      const auto [at, is_new] = known.try_emplace(failure_text(visit.outcome), kinds.size());
      if (is_new) kinds.push_back({at->first, {}, {}});
      kinds[at->second].points.push_back(visit.point);
    }
    if (kinds.empty()) return "";
    std::size_t used = kFailures.size() + kUnlisted;
    for (std::size_t listed = 0; listed < kMostAlike; ++listed)
      for (Failure& kind : kinds) {
        if (kind.lines.size() < listed || kind.points.size() <= listed) continue;
        std::string line = fmt::format("    {}\n", plan_text(kind.points[listed]));
        const std::size_t more = line.size() + (listed == 0 ? kind.said.size() + kUnlisted : 0);
        if (used + more > most) continue;
        used += more;
        kind.lines.push_back(std::move(line));
      }
    std::string text(kFailures);
    for (const Failure& kind : kinds) {
      const std::size_t others = kind.points.size() - kind.lines.size();
      if (kind.lines.empty()) {
        unlisted += others;
        continue;
      }
      text += fmt::format("  {}\n", kind.said);
      for (const std::string& line : kind.lines) text += line;
      if (others > 0) text += fmt::format("    and {} others\n", others);
    }
    if (unlisted > 0) text += fmt::format("  not listed: {} of {} failures\n", unlisted, failed);
    return text;
  }

  // By site and field, the values that one change can give it and that were not tried. Sites that
  // are not there follow from others. At most so many bytes.
  std::string legal(std::size_t most) const {
    std::map<std::pair<std::string, std::string>, std::vector<std::string>> values;
    std::set<std::string> there;
    for (const search::SitePlan& part : at_.space.parts(at_.from))
      if (part.family != kAbsent) there.insert(part.site);
    for (const int to : at_.space.neighbours(at_.from)) {
      if (tried_.contains(to)) continue;
      for (const Change& change : changes(at_.space, at_.from, to)) {
        if (!there.contains(change.site) || change.value == kAbsent) continue;
        std::vector<std::string>& of = values[{change.site, change.field}];
        if (std::ranges::find(of, change.value) == of.end()) of.push_back(change.value);
      }
    }
    std::string text = "\n## Legal changes that were not tried\n\n";
    for (const auto& [name, of] : values) {
      std::string line =
          fmt::format("  {}{}{}:", name.first, name.first.empty() ? "" : " ", name.second);
      for (const std::string& value : of) line += " " + value;
      if (text.size() + line.size() > most) return text + "  and more\n";
      text += line + "\n";
    }
    return text;
  }

 private:
  struct Failure {
    std::string said;
    std::vector<int> points;         // the last first
    std::vector<std::string> lines;  // of those that are listed
  };

  const Visit* find(int point) const {
    const auto found = visits_.find(point);
    return found == visits_.end() ? nullptr : found->second;
  }

  // The last ones, if there are too many.
  std::string list(std::string_view title, const std::vector<const Visit*>& visits,
                   std::size_t most) const {
    std::string text = fmt::format("\n## {}\n\n", title);
    if (visits.empty()) text += "  none\n";
    const std::size_t left_out = visits.size() > most ? visits.size() - most : 0;
    for (std::size_t i = left_out; i < visits.size(); ++i)
      text += fmt::format("  {}: {}\n", changes_text(told_.from, visits[i]->point),
                          took(visits[i]->outcome));
    if (left_out > 0) text += fmt::format("  and {} before these\n", left_out);
    return text;
  }

  // All fields, or of several sites how it differs from the schedule to change.
  std::string plan_text(int point) const {
    const std::vector<search::SitePlan> parts = told_.space.parts(point);
    if (parts.size() != 1) return plain_text(changes_text(told_.from, point), kMaxPlan);
    std::string text = parts[0].family;
    for (const search::Field& field : parts[0].fields)
      text += fmt::format(" {}={}", field.name, value_of(field));
    return plain_text(text, kMaxPlan);
  }

  std::string changes_text(int from, int to) const {
    const std::vector<Change> all = changes(told_.space, from, to);
    std::string text;
    for (std::size_t i = 0; i < std::min(kMostOfChange, all.size()); ++i)
      text += (i > 0 ? ", " : "") + to_string(all[i]);
    if (all.size() > kMostOfChange) text += fmt::format(" and {} more", all.size() - kMostOfChange);
    return text;
  }

  const Situation& at_;
  const Situation& told_;  // of attempts
  std::set<int> tried_;
  std::map<int, const Visit*> visits_;  // that are told
};

void audit(ProposalCall& call, std::string item, const Json& said, bool accepted,
           const std::string& reason) {
  call.audit.push_back(
      {std::move(item),
       plain_text(said.is_string() ? said.get<std::string>() : said.dump(), kMaxShown), accepted,
       plain_text(reason, kMaxNoteBytes)});
}

std::string text_of(const Json& item, const char* key) {
  if (!item.contains(key)) return "";
  const Json& value = item[key];
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// What is none is in the audit; the others are in `requests` alone, as nothing comes of them.
void read_requests(const Json& list, const search::PointSpace& space, ProposalCall& call) {
  if (!list.is_array()) return audit(call, "requests", list, false, "not a list");
  std::set<std::tuple<std::string, std::string, std::string>> seen;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto reject = [&](const char* reason) {
      audit(call, fmt::format("requests[{}]", i), list[i], false, reason);
    };
    if (i >= kMaxRequests) return reject("too many");
    if (!list[i].is_object()) {
      reject("not an object");
      continue;
    }
    const auto text = [&](const char* key) {
      return plain_text(text_of(list[i], key), kMaxNoteBytes);
    };
    FieldRequest request{text("site"), text("field"), text("value"), text("why")};
    if (request.field.empty() || request.value.empty()) {
      reject("no field, or no value");
    } else if (!seen.emplace(request.site, request.field, request.value).second) {
      reject("repeated");
    } else {
      request.is_known = has_value(space, {request.site, request.field, request.value});
      call.requests.push_back(std::move(request));
    }
  }
}

}  // namespace

Prompt proposal_prompt(const Situation& situation, const std::string& about,
                       const std::string& name, std::size_t attempts, bool takes_requests) {
  const PromptText text(situation);
  Prompt prompt;
  prompt.text = fmt::format(kProposalTask, quote(plain_text(about, kMaxAbout))) +
                std::string(kQuotesAreData) + text.schedule() + text.path() + text.tried_here() +
                text.best();
  const std::size_t left = attempts - std::min(attempts, situation.visits.size());
  const std::string end =
      fmt::format("\n## Budget\n\n{} of {} attempts are left.\n", left, attempts) +
      fmt::format(kProposalReply, takes_requests ? kRequestsForm : "", situation.wanted,
                  kMaxNoteBytes, takes_requests ? fmt::format(kRequestsMeaning, kMaxRequests) : "");
  const auto room = [&] {
    return kMaxProposalPrompt - std::min(prompt.text.size() + end.size() + 100, kMaxProposalPrompt);
  };
  prompt.text += text.failures(room() / 2);
  prompt.text += text.legal(room()) + end;
  prompt.hash = sha256(prompt.text);
  prompt.name =
      fmt::format("{}-after-{}-{}", name, situation.visits.size(), prompt.hash.substr(0, 12));
  prompt.form = &proposals_form(takes_requests);
  return prompt;
}

std::vector<int> read_proposals(std::string_view reply, const Situation& situation,
                                ProposalCall& call) {
  std::vector<int> points;
  const auto note = [&](std::string item, const Json& said, bool accepted, std::string reason) {
    audit(call, std::move(item), said, accepted, std::move(reason));
  };
  const FoundObject found = find_object(reply, proposals_form(call.takes_requests).keys);
  if (!found.object) {
    note("reply", std::string(reply.substr(0, 2 * kMaxShown)), false, found.why);
    return points;
  }
  call.note = plain_text(text_of(*found.object, "note"), kMaxNoteBytes);
  if (call.takes_requests && found.object->contains("requests"))
    read_requests((*found.object)["requests"], situation.space, call);
  const Json& list = (*found.object)["proposals"];
  if (!list.is_array()) {
    note("proposals", list, false, "not a list");
    return points;
  }
  // What the prompt offers is another point than these, and each item asks for one of its own.
  std::set<int> known;
  for (const Visit& visit : situation.visits) known.insert(visit.point);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto judged = [&](bool accepted, std::string reason) {
      note(fmt::format("proposals[{}]", i), list[i], accepted, std::move(reason));
    };
    if (i >= situation.wanted) {
      judged(false, fmt::format("more than {}", situation.wanted));
      break;
    }
    if (!list[i].is_object()) {
      judged(false, "not an object");
      continue;
    }
    const Change change{text_of(list[i], "site"), text_of(list[i], "field"),
                        text_of(list[i], "value")};
    const std::optional<int> point = changed(situation.space, situation.from, change, known);
    const auto tried = std::ranges::find(situation.visits, point.value_or(-1), &Visit::point);
    if (!point)
      judged(false, "no change of this schedule leads there");
    else if (std::ranges::find(points, *point) != points.end())
      judged(false, "repeated");
    else if (tried != situation.visits.end())
      judged(false, "tried already: " + took(tried->outcome));
    else
      judged(true, situation.space.id(*point)), points.push_back(*point), known.insert(*point);
  }
  return points;
}

std::vector<int> AdvisedProposer::propose(const Situation& situation) {
  ProposalCall& call = calls_.emplace_back();
  call.from = situation.from;
  call.prompt =
      proposal_prompt(situation, about_, fmt::format("{}-round-{:02}", name_, calls_.size()),
                      attempts_, takes_requests_);
  call.takes_requests = takes_requests_;
  call.reply = provider_.answer({call.prompt}).at(0);
  if (!call.reply.failure.empty()) return {};
  return read_proposals(call.reply.text, situation, call);
}

Json to_json(const ProposalCall& call) {
  Json json{{"prompt_hash", call.prompt.hash},
            {"model", call.reply.model},
            {"date", call.reply.date},
            {"prompt_bytes", call.prompt.text.size()},
            {"reply_bytes", call.reply.text.size()},
            {"input_tokens", call.reply.input_tokens},
            {"output_tokens", call.reply.output_tokens},
            {"seconds", call.reply.seconds},
            {"note", call.note},
            {"audit", to_json(call.audit)}};
  if (call.takes_requests) {
    Json& requests = json["requests"] = Json::array();
    for (const FieldRequest& of : call.requests)
      requests.push_back({{"site", of.site},
                          {"field", of.field},
                          {"value", of.value},
                          {"why", of.why},
                          {"known", of.is_known}});
  }
  if (!call.reply.failure.empty()) json["failure"] = call.reply.failure;
  return json;
}

}  // namespace ac
