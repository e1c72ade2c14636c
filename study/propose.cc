#include "study/propose.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/files.h"
#include "search/run.h"

namespace ac::study {
namespace {

constexpr std::size_t kMaxFile = 256u << 20;

// Tells the proposer something else than what was measured.
class Misinformed : public search::Proposer {
 public:
  Misinformed(search::Proposer& inner, Feedback feedback, std::uint64_t seed)
      : inner_(inner), feedback_(feedback), random_(seed) {}

  std::vector<int> propose(const search::Situation& situation) override {
    std::vector<search::Visit> visits;
    if (feedback_ == Feedback::permuted) {
      visits = situation.visits;
      std::vector<std::size_t> order(visits.size());
      for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
      random_.shuffle(order);
      for (std::size_t i = 0; i < order.size(); ++i)
        visits[i].outcome = situation.visits[order[i]].outcome;
    }
    return inner_.propose({situation.space, visits, situation.from, situation.wanted});
  }

 private:
  search::Proposer& inner_;
  const Feedback feedback_;
  search::Random random_;
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
  constexpr std::array<std::string_view, 3> names = {"true", "permuted", "no"};
  return names[static_cast<std::size_t>(feedback)];
}

ProposedSession propose(const TimedTable& table, const Answers& answers, const std::string& about,
                        Provider* provider, const std::string& name,
                        const ProposeOptions& options) {
  const std::shared_ptr<const search::PointSpace> opened = answers.space();
  const search::PointSpace& space = *opened;
  std::optional<AdvisedProposer> advised;
  search::RandomProposer by_chance(search::derived_seed(options.seed, 2));
  if (provider) advised.emplace(*provider, about, name, options.attempts);
  search::Proposer& informed = advised ? static_cast<search::Proposer&>(*advised) : by_chance;
  Misinformed misinformed(informed, options.feedback, search::derived_seed(options.seed, 1));
  search::ProposedSearch strategy(
      search::make_strategy(options.strategy, space, options.seed), space,
      options.feedback == Feedback::true_ ? informed : misinformed, options.proposals);

  ProposedSession session{arm_of(options, !provider), table.signature, {}, Json::array()};
  const search::Trace trace = run_search(
      strategy, [&](int point) { return search::AttemptCost{answers.outcome(space, point)}; },
      {.attempts = options.attempts});
  for (const search::PointAttempt& attempt : trace.attempts)
    session.plans.push_back(space.id(attempt.point));
  if (const auto best = trace.best()) session.best = best->outcome.microseconds;
  if (advised)
    for (const ProposalCall& call : advised->calls()) session.calls.push_back(ac::to_json(call));
  return session;
}

Json to_json(const ProposedSession& session) {
  return {{"arm", session.arm},
          {"signature", session.signature},
          {"plans", session.plans},
          {"calls", session.calls}};
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
                            json.at("plans").get<std::vector<std::string>>(), json.at("calls")});
      } catch (const Json::exception& error) {
        bad_input("{}: not a search with proposals: {}", origin, error.what());
      }
    }
    at = end + 1;
  }
  return sessions;
}

}  // namespace ac::study
