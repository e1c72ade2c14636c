#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "advise/limits.h"
#include "advise/plain_text.h"
#include "advise/wire.h"
#include "base/error.h"
#include "net/http_client.h"

namespace ac {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMaxOutput = 8192;  // tokens of one reply
constexpr unsigned kAtOnce = 4;
constexpr int kAttempts = 4;
constexpr std::chrono::seconds kLongestPause{60};
constexpr std::size_t kMaxResponse = 4u << 20;

// What may still be spent. A call reserves the most that it can cost, so that calls under way
// together stay within the budget.
class Budget {
 public:
  explicit Budget(const HttpLimits& limits) : calls_(limits.calls), tokens_(limits.tokens) {}

  // Why not, or "".
  std::string reserve(std::int64_t tokens) {
    const std::lock_guard lock(mutex_);
    if (calls_ == 0) return "the budget of calls is spent (--advisor-calls)";
    if (tokens_ < tokens) return "the budget of tokens is spent (--advisor-tokens)";
    --calls_;
    tokens_ -= tokens;
    return {};
  }
  void give_back(std::int64_t tokens) {
    const std::lock_guard lock(mutex_);
    tokens_ += tokens;
  }

 private:
  std::mutex mutex_;
  int calls_;
  std::int64_t tokens_;
};

// More than it ever is, in English and in ids.
std::int64_t tokens_at_most(const std::string& prompt) {
  return static_cast<std::int64_t>(prompt.size()) / 2;
}

class HttpProvider : public Provider {
 public:
  HttpProvider(Wire wire, std::string key, const HttpLimits& limits, std::string_view setting)
      : wire_(std::move(wire)),
        key_(std::move(key)),
        limits_(limits),
        setting_(setting),
        budget_(limits) {
    HttpClient(wire_.url, {}, setting_);  // refuses a URL that cannot be
  }

  // Its threads have ended when it returns: the compiler forks later.
  std::vector<Reply> answer(const std::vector<Prompt>& prompts) override {
    std::vector<Reply> replies(prompts.size());
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
      for (std::size_t i; (i = next++) < prompts.size();) replies[i] = answer_one(prompts[i]);
    };
    std::vector<std::jthread> threads;
    const std::size_t count = std::min<std::size_t>(kAtOnce, prompts.size());
    for (std::size_t i = 0; i < count; ++i) threads.emplace_back(work);
    threads.clear();
    return replies;
  }

 private:
  Reply answer_one(const Prompt& prompt) {
    const auto began = Clock::now();
    Reply reply;
    try {
      HttpClient client(wire_.url, {}, setting_);
      reply = try_often(client, prompt);
    } catch (const std::exception& error) {
      reply.failure = error.what();
    }
    reply.text = without_key(std::move(reply.text));
    reply.failure = plain_text(without_key(std::move(reply.failure)), kMaxNoteBytes);
    reply.model = plain_text(without_key(std::move(reply.model)), 80);
    reply.seconds = std::chrono::duration<double>(Clock::now() - began).count();
    return reply;
  }

  Reply try_often(HttpClient& client, const Prompt& prompt) {
    Reply reply;
    const auto began = Clock::now();
    auto pause = limits_.first_delay;
    for (int attempt = 1; attempt <= kAttempts; ++attempt) {
      const bool structured = structured_;
      if (reply.failure = why_not(prompt); !reply.failure.empty()) return reply;
      ++reply.calls;
      std::string response;
      const HttpResult result = client.post({.url = wire_.url,
                                             .headers = wire_.headers,
                                             .content = body(prompt, structured),
                                             .limit = limits_.call,
                                             .max_bytes = kMaxResponse},
                                            response);
      if (result.ok()) {
        const int calls = reply.calls;
        reply = read(prompt, response);
        reply.calls = calls;
        return reply;
      }
      budget_.give_back(reserved(prompt));
      reply.failure = explained(result, response);
      // A server or model that cannot be held to a schema is asked in words alone.
      if ((result.status == 400 || result.status == 422) && structured) {
        structured_ = false;
        continue;
      }
      if (result.status >= 400 && result.status < 500 && !result.worth_retrying)
        stop(reply.failure);
      if (!result.worth_retrying) return reply;
      if (result.retry_after > kLongestPause) {
        reply.failure += fmt::format(", again in {} s only", result.retry_after.count());
        return reply;
      }
      if (attempt == kAttempts) stop(reply.failure);  // it is down, or has no use for us
      // One that hangs would hang again.
      if (attempt == kAttempts || Clock::now() - began >= limits_.call) break;
      std::this_thread::sleep_for(std::max<std::chrono::milliseconds>(pause, result.retry_after));
      pause *= 2;
    }
    return reply;
  }

  std::int64_t reserved(const Prompt& prompt) const {
    return tokens_at_most(prompt.text) + kMaxOutput;
  }

  std::string why_not(const Prompt& prompt) {
    {
      const std::lock_guard lock(mutex_);
      if (!stopped_.empty()) return stopped_;
    }
    return budget_.reserve(reserved(prompt));
  }

  // What ends one question for good will end all.
  void stop(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (stopped_.empty()) stopped_ = why;
  }

  std::string body(const Prompt& prompt, bool structured) const {
    return wire_.request(prompt, kMaxOutput, structured)
        .dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  Reply read(const Prompt& prompt, const std::string& response) {
    Reply reply;
    std::int64_t spent = reserved(prompt);
    try {
      reply = wire_.read(parse_json(response, "the response", {.bytes = kMaxResponse}));
      const std::int64_t reported = reply.input_tokens + reply.output_tokens;
      if (reported > 0) spent = std::min(spent, reported);
    } catch (const std::exception& error) {  // of JSON, in two ways
      reply.failure = fmt::format("not a response of this API: {}", error.what());
    }
    budget_.give_back(reserved(prompt) - spent);
    return reply;
  }

  // With the service's own words, where it has some.
  std::string explained(const HttpResult& result, const std::string& response) const {
    try {
      const Json json = parse_json(response, "the response", {.bytes = kMaxResponse});
      const Json& error = json.at("error");
      return fmt::format("{}: {}", result.failure,
                         (error.is_string() ? error : error.at("message")).get<std::string>());
    } catch (const std::exception&) {  // no words
      return result.failure;
    }
  }

  // Servers repeat what they were sent.
  std::string without_key(std::string text) const {
    if (key_.empty()) return text;
    for (std::size_t at = text.find(key_); at != text.npos; at = text.find(key_, at))
      text.replace(at, key_.size(), "[key]");
    return text;
  }

  const Wire wire_;
  const std::string key_;
  const HttpLimits limits_;
  const std::string setting_;
  Budget budget_;
  std::atomic<bool> structured_{true};
  std::mutex mutex_;
  std::string stopped_;
};

}  // namespace

std::unique_ptr<Provider> anthropic_provider(const std::string& model, const std::string& url,
                                             const std::string& key, const HttpLimits& limits) {
  return std::make_unique<HttpProvider>(anthropic_wire(model, url, key), key, limits,
                                        "ANTHROPIC_BASE_URL");
}

std::unique_ptr<Provider> openai_provider(const std::string& model, const std::string& url,
                                          const std::string& key, const HttpLimits& limits) {
  return std::make_unique<HttpProvider>(openai_wire(model, url, key), key, limits,
                                        "--advisor openai:MODEL@URL");
}

}  // namespace ac
