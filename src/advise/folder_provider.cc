#include <fmt/format.h>

#include <thread>

#include "advise/find_object.h"
#include "advise/limits.h"
#include "advise/provider.h"
#include "base/error.h"
#include "base/files.h"

namespace ac {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPoll{200};

class FolderProvider : public Provider {
 public:
  FolderProvider(fs::path folder, std::optional<std::chrono::milliseconds> wait, std::string model,
                 std::string date)
      : folder_(std::move(folder)), wait_(wait), model_(std::move(model)), date_(std::move(date)) {
    std::error_code error;
    fs::create_directories(folder_, error);
    if (!fs::is_directory(folder_))
      job_failed("{}: cannot make this folder for questions to an advisor: {}", folder_.string(),
                 error ? error.message() : "it is something else");
  }

  std::vector<Reply> answer(const std::vector<Prompt>& prompts) override {
    const auto began = Clock::now();
    for (const Prompt& prompt : prompts) {
      const fs::path file = folder_ / (prompt.name + ".prompt.txt");
      if (!fs::exists(file)) write_file_atomically(file, prompt.text);
    }
    std::vector<Reply> replies(prompts.size());
    std::size_t missing = 0;
    bool must_be_whole = wait_.has_value();  // a file may be seen before all of it is written
    for (;;) {
      const bool is_last = !wait_ || Clock::now() - began >= *wait_;
      if (is_last) must_be_whole = false;
      missing = 0;
      for (std::size_t i = 0; i < prompts.size(); ++i)
        if (replies[i].text.empty() && !read(prompts[i], must_be_whole, replies[i])) ++missing;
      if (missing == 0 || is_last) break;
      std::this_thread::sleep_for(kPoll);
    }
    for (Reply& reply : replies) {
      if (reply.failure.empty()) reply.model = model_, reply.date = date_;
      reply.seconds = std::chrono::duration<double>(Clock::now() - began).count();
    }
    if (missing > 0 && !wait_ && !prompts[0].diagnosis)
      throw Error(
          Fault::advice_awaited,
          fmt::format("{} of {} replies are missing in {}: answer each NAME.prompt.txt in a "
                      "file NAME.reply.txt and run the same command again (or give "
                      "--advisor-wait 0 to go on without)",
                      missing, prompts.size(), folder_.string()));
    return replies;
  }

 private:
  bool read(const Prompt& prompt, bool must_be_whole, Reply& reply) const {
    const fs::path file = folder_ / (prompt.name + ".reply.txt");
    reply = {};
    if (!fs::exists(file)) {
      reply.failure = "no reply in the folder";
      return false;
    }
    try {
      reply.text = read_file(file, kMaxReplyBytes);
    } catch (const Error& error) {
      reply.failure = error.what();
      return true;
    }
    if (reply.text.empty()) reply.failure = file.filename().string() + " is empty";
    if (must_be_whole && !find_object(reply.text, prompt.form->keys).object) reply.text.clear();
    return !reply.text.empty();
  }

  const fs::path folder_;
  const std::optional<std::chrono::milliseconds> wait_;
  const std::string model_, date_;
};

}  // namespace

std::unique_ptr<Provider> folder_provider(const fs::path& folder,
                                          std::optional<std::chrono::milliseconds> wait,
                                          std::string model, std::string date) {
  return std::make_unique<FolderProvider>(folder, wait, std::move(model), std::move(date));
}

}  // namespace ac
