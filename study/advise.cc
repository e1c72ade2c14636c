#include "study/advise.h"

#include <fmt/format.h>

#include <algorithm>

#include "advise/questions.h"
#include "base/error.h"
#include "ir/incrementalise.h"
#include "ir/positions.h"

namespace ac::study {
namespace {

bool is_wanted(const Question& question, const std::vector<std::string>& regions) {
  const std::string ops = ops_text(question.wanted);
  return regions.empty() || std::ranges::any_of(regions, [&](const std::string& text) {
           return question.space.signature.find(text) != std::string::npos ||
                  ops.find(text) != std::string::npos;
         });
}

// "order" of "order[2]". What else a reply has for keys is anybody's guess.
std::string key_of(const AuditItem& item) {
  const std::string key = item.item.substr(0, item.item.find('['));
  for (const char* known : {"reply", "label", "order", "hints", "risks", "fusions"})
    if (key == known) return key;
  return "other keys";
}

// What is quoted becomes "...", what an id or a place in the reply follows is cut off.
std::string without_details(const std::string& reason) {
  const std::string words = reason.substr(0, reason.find(": "));
  std::string text;
  for (std::size_t at = 0; at < words.size();) {
    const std::size_t quote = words.find('"', at);
    text += words.substr(at, quote - at);
    if (quote == std::string::npos) break;
    text += "...";
    const std::size_t end = words.find('"', quote + 1);
    at = end == std::string::npos ? words.size() : end + 1;
  }
  return text;
}

}  // namespace

std::vector<AskedRegion> advise(const Graph& normal, const AdviseOptions& options,
                                Advisor& advisor) {
  const StepGraph step = incrementalise(normal);
  const Regions regions = analyse(decode_instance(step));
  const Plans plans =
      plan(regions, options.device, {.at = priced_at(1, max_context(step, options.max_context))});
  std::vector<Question> questions =
      questions_about("decode", regions, plans, advisor.share(), !options.cover_only);
  std::erase_if(questions,
                [&](const Question& question) { return !is_wanted(question, options.regions); });
  if (questions.empty())
    wrong_usage("there is nothing to ask about {}: --regions and --advise-share leave no region",
                step.graph.name);
  std::vector<Answer> answers = advisor.ask(questions);
  std::vector<AskedRegion> asked;
  for (std::size_t i = 0; i < questions.size(); ++i)
    asked.push_back(
        {questions[i].space.signature, ops_text(questions[i].wanted), std::move(answers[i])});
  return asked;
}

std::vector<RecordedReply> recorded(const std::vector<AskedRegion>& regions,
                                    const std::string& advisor, const Author& author) {
  std::vector<RecordedReply> list;
  for (const AskedRegion& region : regions) {
    if (!region.answered()) continue;
    const Reply& reply = region.answer.reply;
    RecordedReply made{region.signature,          {},        advisor, region.answer.prompt.hash,
                       region.answer.prompt.text, reply.text};
    for (const Candidate& candidate : region.answer.advice.order)
      made.advice.order.push_back(candidate.id);
    made.advice.model = reply.model.empty() ? author.model : reply.model;
    made.advice.date = reply.date.empty() ? author.date : reply.date;
    if (made.advice.model.empty() || made.advice.date.empty())
      wrong_usage("{} does not say {} it answered: give {}", advisor,
                  made.advice.model.empty() ? "which model" : "when",
                  made.advice.model.empty() ? "--model" : "--date");
    made.advice.tokens = static_cast<double>(reply.input_tokens + reply.output_tokens);
    // Where nobody was called, they say how long files were waited for.
    if (reply.calls > 0) made.advice.seconds = reply.seconds;
    list.push_back(std::move(made));
  }
  return list;
}

std::map<std::string, AuditCount> count_audits(const std::vector<AskedRegion>& regions) {
  std::map<std::string, AuditCount> counts;
  for (const AskedRegion& region : regions)
    for (const AuditItem& item : region.answer.advice.audit) {
      AuditCount& count = counts[key_of(item)];
      if (item.accepted)
        ++count.accepted;
      else
        ++count.rejected[without_details(item.reason)];
    }
  return counts;
}

}  // namespace ac::study
