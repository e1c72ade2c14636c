// Recordings: what was asked and answered, one call a line. They hold no keys, as prompts and
// replies hold none.
#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <map>

#include "advise/provider.h"
#include "base/error.h"
#include "base/files.h"

namespace ac {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxRecording = 256u << 20;

class Recording : public Provider {
 public:
  Recording(std::unique_ptr<Provider> inner, const fs::path& file, std::string name)
      : inner_(std::move(inner)),
        name_(std::move(name)),
        fd_(open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
    if (fd_ < 0) job_failed("{}: cannot record there: {}", file.string(), std::strerror(errno));
  }
  ~Recording() override { close(fd_); }

  std::vector<Reply> answer(const std::vector<Prompt>& prompts) override {
    std::vector<Reply> replies = inner_->answer(prompts);
    for (std::size_t i = 0; i < prompts.size(); ++i) append(prompts[i], replies[i]);
    return replies;
  }

 private:
  // In one write, so that lines of several programs do not mix.
  void append(const Prompt& prompt, const Reply& reply) const {
    const std::string now = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
    Json line{{"advisor", name_},
              {"model", reply.model},
              {"date", reply.date.empty() ? now : reply.date},
              {"prompt_hash", prompt.hash},
              {"prompt", prompt.text},
              {"reply", reply.text},
              {"calls", reply.calls},
              {"input_tokens", reply.input_tokens},
              {"output_tokens", reply.output_tokens},
              {"seconds", reply.seconds}};
    if (!reply.failure.empty()) line["failure"] = reply.failure;
    const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    if (write(fd_, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
      job_failed("cannot write the recording of the advisor: {}", std::strerror(errno));
  }

  const std::unique_ptr<Provider> inner_;
  const std::string name_;
  const int fd_;
};

class Replay : public Provider {
 public:
  explicit Replay(const fs::path& file) {
    const std::string text = read_file(file, kMaxRecording);
    std::size_t line = 0;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      ++line;
      if (end > at) add(text.substr(at, end - at), fmt::format("{}:{}", file.string(), line));
      at = end + 1;
    }
  }

  std::vector<Reply> answer(const std::vector<Prompt>& prompts) override {
    std::vector<Reply> replies;
    for (const Prompt& prompt : prompts) {
      const auto known = replies_.find(prompt.hash);
      if (known == replies_.end())
        replies.push_back({.failure = "the recording has no reply to this prompt"});
      else
        replies.push_back(known->second.next());
    }
    return replies;
  }

 private:
  // Of one prompt that was asked several times: each in turn, then the last again.
  struct Replies {
    std::vector<Reply> all;
    std::size_t used = 0;
    Reply next() { return all[std::min(used++, all.size() - 1)]; }
  };

  void add(const std::string& text, const std::string& origin) {
    const Json line = parse_json(text, origin);
    try {
      Reply reply;
      reply.text = line.at("reply").get<std::string>();
      reply.failure = line.value("failure", "");
      if (reply.text.empty() && reply.failure.empty())
        reply.failure = "the recorded reply is empty";
      reply.model = line.value("model", "");
      reply.date = line.value("date", "");
      reply.input_tokens = line.value("input_tokens", std::int64_t{0});
      reply.output_tokens = line.value("output_tokens", std::int64_t{0});
      reply.calls = line.value("calls", 0);
      reply.seconds = line.value("seconds", 0.0);
      replies_[line.at("prompt_hash").get<std::string>()].all.push_back(std::move(reply));
    } catch (const Json::exception& error) {
      bad_input("{}: not a line of a recording: {}", origin, error.what());
    }
  }

  std::map<std::string, Replies> replies_;  // by hash of the prompt
};

}  // namespace

std::unique_ptr<Provider> recording_provider(std::unique_ptr<Provider> inner, const fs::path& file,
                                             const std::string& name) {
  return std::make_unique<Recording>(std::move(inner), file, name);
}

std::unique_ptr<Provider> replay_provider(const fs::path& file) {
  return std::make_unique<Replay>(file);
}

}  // namespace ac
