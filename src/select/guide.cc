#include "select/guide.h"

#include <fmt/format.h>

#include <algorithm>

#include "advise/questions.h"

namespace ac {
namespace {

constexpr std::size_t kAll = static_cast<std::size_t>(-1);

// One of the first, one of the second, ..., each once.
std::vector<std::size_t> in_turn(const std::vector<std::size_t>& first,
                                 const std::vector<std::size_t>& second) {
  std::vector<std::size_t> merged;
  for (std::size_t i = 0; i < std::max(first.size(), second.size()); ++i)
    for (const auto* list : {&first, &second})
      if (i < list->size() && std::find(merged.begin(), merged.end(), (*list)[i]) == merged.end())
        merged.push_back((*list)[i]);
  return merged;
}

// Compilers begin with the file, whose place on this machine is nobody's business.
std::string without_paths(const Outcome& outcome) {
  const std::size_t message = outcome.why.find("error");
  if (outcome.kind != Outcome::Kind::not_compiled || message == std::string::npos)
    return outcome.why;
  return outcome.why.substr(message);
}

std::size_t index_of(const Space& space, std::string_view id) {
  for (std::size_t i = 0; i < space.candidates.size(); ++i)
    if (space.candidates[i].id == id) return i;
  return kAll;
}

}  // namespace

Guide::Guide(const PhasePlan& phase, Advisor& advisor)
    : phase_(phase),
      advisor_(advisor),
      questions_(questions_about(phase.spec.name, phase.regions, phase.plans, advisor.share())) {
  for (std::size_t i = 0; i < questions_.size(); ++i)
    guidance_[questions_[i].space.signature].question = i;
}

void Guide::take(std::vector<Answer> answers) {
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const Question& question = questions_[i];
    record(question, answers[i], false);
    use(answers[i].advice, guidance_.at(question.space.signature));
    if (const int option = answers[i].advice.preferred; option >= 0) {
      const FusionChoice& choice = question.fusions[static_cast<std::size_t>(option)];
      if (!choice.current) preferred_.insert({choice.neighbourhood, choice.option});
    }
  }
}

void Guide::use(const Advice& advice, Guidance& guidance) {
  guidance.order = advice.order;
  guidance.thorough.insert(advice.thorough.begin(), advice.thorough.end());
  guidance.all_thorough |= advice.all_thorough;
}

void Guide::record(const Question& question, const Answer& answer, bool diagnosis) {
  Advised advised;
  advised.signature = question.space.signature;
  advised.ops = ops_text(question.wanted);
  advised.why = question.why;
  advised.share = question.share;
  advised.diagnosis = diagnosis;
  advised.prompt_hash = answer.prompt.hash;
  advised.reply = answer.reply;
  advised.label = answer.advice.label;
  for (const Candidate& candidate : answer.advice.order) advised.order.push_back(candidate.id);
  if (answer.advice.all_thorough) advised.thorough.push_back("*");
  advised.thorough.insert(advised.thorough.end(), answer.advice.thorough.begin(),
                          answer.advice.thorough.end());
  advised.audit = answer.advice.audit;
  advised_.push_back(std::move(advised));
}

void Guide::add_to(Space& space) const {
  const auto known = guidance_.find(space.signature);
  if (known == guidance_.end()) return;
  for (const Candidate& candidate : known->second.order)
    if (index_of(space, candidate.id) == kAll) space.candidates.push_back(candidate);
}

void Guide::interleave(const Space& space, std::vector<std::size_t>& order) const {
  const auto known = guidance_.find(space.signature);
  if (known == guidance_.end()) return;
  std::vector<std::size_t> advised;
  for (const Candidate& candidate : known->second.order)
    advised.push_back(index_of(space, candidate.id));
  order = in_turn(advised, order);
}

bool Guide::is_thorough(const Space& space, const Candidate& candidate) const {
  const auto known = guidance_.find(space.signature);
  if (known == guidance_.end()) return false;
  return known->second.all_thorough || known->second.thorough.count(candidate.id) > 0;
}

std::vector<CoverPart> Guide::preferred_parts() const {
  std::vector<CoverPart> parts;
  for (const auto& [neighbourhood, option] : preferred_)
    for (const Part& part : phase_.plans.neighbourhoods[neighbourhood].options[option].parts)
      parts.push_back({part.wanted, part.space});
  return parts;
}

void Guide::diagnose(const std::vector<Failure>& failures, Progress& progress) {
  std::vector<Question> questions;
  std::vector<const Failure*> asked;
  for (const Failure& failure : failures) {
    const auto known = guidance_.find(failure.space->signature);
    if (known == guidance_.end() || known->second.diagnosed) continue;
    known->second.diagnosed = true;
    questions.push_back(questions_[known->second.question]);
    for (const Attempt& attempt : failure.attempts)
      questions.back().tried.push_back({attempt.candidate, attempt.predicted, attempt.measured,
                                        std::string(to_string(attempt.outcome.kind)),
                                        without_paths(attempt.outcome)});
    asked.push_back(&failure);
  }
  const std::vector<Answer> answers = advisor_.ask(questions);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const Failure& failure = *asked[i];
    record(questions[i], answers[i], true);
    if (!answers[i].reply.failure.empty())
      progress.note(fmt::format("advisor: no diagnosis of {}: {}", ops_text(questions[i].wanted),
                                answers[i].reply.failure));
    use(answers[i].advice, guidance_.at(failure.space->signature));
    add_to(*failure.space);
    put_next(answers[i].advice, failure);
  }
}

// In turn with what is left to try, and instead of the last of it; at least one more is tried.
void Guide::put_next(const Advice& advice, const Failure& failure) {
  std::vector<std::size_t>& order = *failure.order;
  const auto next = order.begin() + static_cast<std::ptrdiff_t>(failure.next);
  std::vector<std::size_t> advised;
  for (const Candidate& candidate : advice.order) {
    const std::size_t index = index_of(*failure.space, candidate.id);
    if (std::find(order.begin(), next, index) == next) advised.push_back(index);
  }
  if (advised.empty()) return;
  std::vector<std::size_t> rest = in_turn(advised, {next, order.end()});
  rest.resize(std::min(rest.size(), std::max<std::size_t>(1, order.size() - failure.next)));
  order.resize(failure.next);
  order.insert(order.end(), rest.begin(), rest.end());
}

void ask(Advisor& advisor, const std::vector<Guide*>& guides, Progress& progress) {
  std::vector<Question> questions;
  for (const Guide* guide : guides)
    questions.insert(questions.end(), guide->questions().begin(), guide->questions().end());
  progress.stage(
      fmt::format("advise: {} about {} regions, mixed or complex ones and those from "
                  "{:.1f} % of a step on",
                  advisor.name(), questions.size(), 100 * advisor.share()));
  std::vector<Answer> answers = advisor.ask(questions);
  std::map<std::string, int> failures;
  std::size_t accepted = 0, rejected = 0;
  for (const Answer& answer : answers) {
    if (!answer.reply.failure.empty()) ++failures[answer.reply.failure];
    for (const AuditItem& item : answer.advice.audit) ++(item.accepted ? accepted : rejected);
  }
  for (const auto& [failure, times] : failures)
    progress.note(
        fmt::format("advisor: no advice for {} of {} regions: {}", times, answers.size(), failure));
  progress.step(answers.size(), answers.size(),
                fmt::format("{} items accepted, {} rejected", accepted, rejected));
  auto from = std::make_move_iterator(answers.begin());
  for (Guide* guide : guides) {
    const auto to = from + static_cast<std::ptrdiff_t>(guide->questions().size());
    guide->take({from, to});
    from = to;
  }
}

}  // namespace ac
