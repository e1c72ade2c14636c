#include "advise/advisor.h"

#include <fmt/format.h>

#include <map>

#include "advise/wire.h"
#include "base/error.h"
#include "base/text.h"

namespace ac {
namespace {

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

std::unique_ptr<Provider> provider_of(const AdvisorOptions& options,
                                      const Environment& environment) {
  const std::size_t colon = options.who.find(':');
  const std::string kind = options.who.substr(0, colon);
  const std::string rest = colon == std::string::npos ? "" : options.who.substr(colon + 1);
  const auto need = [&](const char* what) {
    if (rest.empty()) wrong_usage("--advisor {}: give {}:{}", kind, kind, what);
  };
  const HttpLimits limits{
      .call = milliseconds(options.seconds), .calls = options.calls, .tokens = options.tokens};
  if (kind == "anthropic") {
    need("MODEL");
    if (environment.anthropic_key.empty())
      wrong_usage("--advisor anthropic: set ANTHROPIC_API_KEY");
    return anthropic_provider(rest, environment.anthropic_url, environment.anthropic_key, limits);
  }
  if (kind == "openai") {
    need("MODEL[@URL]");
    const std::size_t at = rest.find('@');
    const std::string model = rest.substr(0, at);
    std::string url(at == std::string::npos ? kOpenAiUrl : std::string_view(rest).substr(at + 1));
    while (url.ends_with('/')) url.pop_back();
    if (model.empty()) wrong_usage("--advisor openai: give openai:MODEL[@URL]");
    // A server of one's own may need none.
    if (environment.openai_key.empty() && at == std::string::npos)
      wrong_usage("--advisor openai: set OPENAI_API_KEY");
    return openai_provider(model, url, environment.openai_key, limits);
  }
  if (kind == "ask") {
    need("FOLDER");
    std::optional<std::chrono::milliseconds> wait;
    if (options.wait) wait = milliseconds(*options.wait);
    return folder_provider(rest, wait, options.model, options.date);
  }
  if (kind == "replay") {
    need("FILE");
    return replay_provider(rest);
  }
  wrong_usage(
      "--advisor {}: give anthropic:MODEL, openai:MODEL[@URL], ask:FOLDER, replay:FILE or "
      "none",
      quote(options.who));
}

}  // namespace

std::vector<Answer> Advisor::ask(const std::vector<Question>& questions) {
  std::vector<Prompt> prompts;
  std::map<std::string, std::size_t> sent;  // by hash
  std::vector<Answer> answers;
  for (const Question& question : questions) {
    answers.push_back({prompt_for(question), {}, {}});
    const Prompt& prompt = answers.back().prompt;
    if (sent.emplace(prompt.hash, prompts.size()).second) prompts.push_back(prompt);
  }
  if (prompts.empty()) return answers;
  const std::vector<Reply> replies = provider_->answer(prompts);
  for (std::size_t i = 0; i < questions.size(); ++i) {
    answers[i].reply = replies[sent.at(answers[i].prompt.hash)];
    if (answers[i].reply.failure.empty())
      answers[i].advice = parse_advice(answers[i].reply.text, questions[i]);
  }
  return answers;
}

std::unique_ptr<Provider> open_provider(const AdvisorOptions& options,
                                        const Environment& environment) {
  if (options.who == "none") return nullptr;
  std::unique_ptr<Provider> provider = provider_of(options, environment);
  if (options.record.empty()) return provider;
  return recording_provider(std::move(provider), options.record, options.who);
}

std::unique_ptr<Advisor> open_advisor(const AdvisorOptions& options,
                                      const Environment& environment) {
  std::unique_ptr<Provider> provider = open_provider(options, environment);
  if (!provider) return nullptr;
  return std::make_unique<Advisor>(std::move(provider), options.who, options.share);
}

}  // namespace ac
