#include "study/propose.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <tuple>

#include "advise/limits.h"
#include "advise/plain_text.h"
#include "base/error.h"
#include "base/files.h"
#include "search/run.h"
#include "study/cost.h"

namespace ac::study {
namespace {

constexpr std::size_t kMaxFile = 256u << 20;

search::Trace search_over(const Answers& answers, const search::PointSpace& space,
                          search::Strategy& strategy, std::size_t attempts) {
  return run_search(strategy,
                    [&](int point) { return search::AttemptCost{answers.outcome(space, point)}; },
                    {.attempts = attempts});
}

// What a search by a strategy alone comes by: after each number of attempts, what an advisor would
// have been told of it.
class History : public search::Proposer {
 public:
  History(const Answers& answers, const ProposeOptions& options) : space_(answers.space()) {
    search::ProposedSearch strategy(search::make_strategy(options.strategy, *space_, options.seed),
                                    *space_, *this, {.wanted = 1, .calls = options.attempts});
    search_over(answers, *space_, strategy, options.attempts);
  }

  // Asked before each attempt but the first, as it proposes nothing.
  std::vector<int> propose(const search::Situation& situation) override {
    visits_ = situation.visits;
    from_.push_back(situation.from);
    return {};
  }

  const search::PointSpace& space() const { return *space_; }
  std::vector<search::Visit> visits(std::size_t attempts) const {
    return {visits_.begin(), visits_.begin() + static_cast<std::ptrdiff_t>(known(attempts))};
  }
  int from(std::size_t attempts) const { return from_.at(known(attempts) - 1); }

 private:
  std::size_t known(std::size_t attempts) const { return std::min(attempts, from_.size()); }

  const std::shared_ptr<const search::PointSpace> space_;
  std::vector<search::Visit> visits_;
  std::vector<int> from_;
};

// Tells the proposer something else than what was measured.
class Misinformed : public search::Proposer {
 public:
  // `history`: for Feedback::other; else null.
  Misinformed(search::Proposer& inner, Feedback feedback, std::uint64_t seed,
              const History* history)
      : inner_(inner), feedback_(feedback), random_(seed), history_(history) {}

  std::vector<int> propose(const search::Situation& situation) override {
    std::vector<search::Visit> visits;
    if (feedback_ == Feedback::permuted) visits = permuted(situation.visits);
    if (history_) visits = history_->visits(situation.visits.size());
    const search::Situation told{history_ ? history_->space() : situation.space, visits,
                                 history_ ? history_->from(visits.size()) : situation.from,
                                 situation.wanted};
    search::Situation misled = situation;
    misled.told = &told;
    return inner_.propose(misled);
  }

 private:
  std::vector<search::Visit> permuted(const std::vector<search::Visit>& visits) {
    std::vector<search::Visit> made = visits;
    std::vector<std::size_t> order(visits.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    random_.shuffle(order);
    for (std::size_t i = 0; i < order.size(); ++i) made[i].outcome = visits[order[i]].outcome;
    return made;
  }

  search::Proposer& inner_;
  const Feedback feedback_;
  search::Random random_;
  const History* const history_;
};

std::string arm_of(const ProposeOptions& options, bool by_chance) {
  const std::string name = "proposals+" + options.strategy;
  if (by_chance) return name + " (by chance)";
  return options.feedback == Feedback::true_
             ? name
             : fmt::format("{} ({} feedback)", name, to_string(options.feedback));
}

}  // namespace

std::string_view to_string(Feedback feedback) {
  constexpr std::array<std::string_view, 4> names = {"true", "permuted", "no", "another program's"};
  return names[static_cast<std::size_t>(feedback)];
}

ProposedSession propose(const TimedTable& table, const Answers& answers, const std::string& about,
                        Provider* provider, const std::string& name, const ProposeOptions& options,
                        const Answers* other) {
  const std::shared_ptr<const search::PointSpace> opened = answers.space();
  const search::PointSpace& space = *opened;
  std::optional<AdvisedProposer> advised;
  search::RandomProposer by_chance(search::derived_seed(options.seed, 2));
  if (provider) advised.emplace(*provider, about, name, options.attempts, options.takes_requests);
  search::Proposer& informed = advised ? static_cast<search::Proposer&>(*advised) : by_chance;
  AC_ASSERT((options.feedback == Feedback::other) == (other != nullptr));
  std::optional<History> history;
  if (other) history.emplace(*other, options);
  Misinformed misinformed(informed, options.feedback, search::derived_seed(options.seed, 1),
                          history ? &*history : nullptr);
  search::ProposedSearch strategy(
      search::make_strategy(options.strategy, space, options.seed), space,
      options.feedback == Feedback::true_ ? informed : misinformed, options.proposals);

  ProposedSession session{
      arm_of(options, !provider), table.signature, {}, Json::array(), options.attempts};
  const search::Trace trace = search_over(answers, space, strategy, options.attempts);
  for (const search::PointAttempt& attempt : trace.attempts)
    session.plans.push_back(space.id(attempt.point));
  if (const auto best = trace.best()) session.best = best->outcome.microseconds;
  if (!advised) return session;
  session.takes_requests = options.takes_requests;
  for (const ProposalCall& call : advised->calls()) {
    Json& json = session.calls.emplace_back(ac::to_json(call));
    if (call.reply.model.empty()) json["model"] = options.model;
    if (call.reply.date.empty()) json["date"] = options.date;
  }
  return session;
}

namespace {

std::set<std::string> names_of(const TimedTable& table) {
  std::set<std::string> names;
  const auto add = [&](const std::vector<search::SitePlan>& parts, const std::string& site) {
    for (const search::SitePlan& part : parts)
      for (const search::Field& field : part.fields)
        names.insert((site.empty() ? part.site : site) + " " + field.name);
  };
  for (const tune::TimedPoint& point : table.points) add(point.point.parts, "");
  if (table.sites)
    for (const search::Site& site : table.sites->sites)
      for (const search::Point& choice : site.choices) add(choice.parts, site.name);
  return names;
}

}  // namespace

const TimedTable& most_alike(const TimedTable& table, const std::vector<Recording>& others) {
  const std::set<std::string> names = names_of(table);
  const TimedTable* best = nullptr;
  std::ptrdiff_t most = 0;
  for (const Recording& recording : others)
    for (const TimedTable& other : recording.tables) {
      if (other.signature == table.signature || other.points.size() < 2 || !other.optimum())
        continue;
      const auto common = std::ranges::count_if(
          names_of(other), [&](const std::string& name) { return names.contains(name); });
      if (common > most) best = &other, most = common;
    }
  if (!best)
    bad_input("{}: the other tables have no other space with a site or field of its sites",
              table.description);
  return *best;
}

void add_requests(const Json& calls, std::vector<RequestedValue>& requests) {
  for (const Json& call : calls) {
    if (!call.contains("requests")) continue;
    for (const Json& json : call.at("requests")) {
      const auto text = [&](const char* key) {
        return plain_text(json.at(key).get<std::string>(), kMaxNoteBytes);
      };
      const FieldRequest request{text("site"), text("field"), text("value"), text("why"),
                                 json.at("known").get<bool>()};
      const auto same = std::ranges::find_if(requests, [&](const RequestedValue& other) {
        return std::tie(other.request.site, other.request.field, other.request.value) ==
               std::tie(request.site, request.field, request.value);
      });
      if (same == requests.end())
        requests.push_back({request});
      else
        ++same->times;
    }
  }
}

Json to_json(const ProposedSession& session) {
  Json json{{"arm", session.arm},
            {"signature", session.signature},
            {"attempts", session.attempts},
            {"plans", session.plans},
            {"calls", session.calls}};
  if (session.takes_requests) json["requests"] = true;
  return json;
}

std::vector<ProposedSession> read_sessions(const std::filesystem::path& file) {
  const std::string text = read_file(file, kMaxFile);
  std::vector<ProposedSession> sessions;
  std::size_t line = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string origin = fmt::format("{}:{}", file.string(), ++line);
    if (end > at) {
      const Json json = parse_json(text.substr(at, end - at), origin);
      try {
        sessions.push_back({json.at("arm").get<std::string>(),
                            json.at("signature").get<std::string>(),
                            json.at("plans").get<std::vector<std::string>>(), json.at("calls"),
                            json.value("attempts", std::size_t{0})});
        sessions.back().takes_requests = json.value("requests", false);
        costs_of(sessions.back().calls);
        std::vector<RequestedValue> requests;
        add_requests(sessions.back().calls, requests);
      } catch (const Json::exception& error) {
        bad_input("{}: not a search with proposals: {}", origin, error.what());
      }
    }
    at = end + 1;
  }
  return sessions;
}

}  // namespace ac::study
