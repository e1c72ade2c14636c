// Who answers prompts: a service, a folder that people or programs put replies into, a recording.
// A provider that cannot answer says why in the reply; it does not throw, but for what the user
// must decide (Fault::advice_awaited).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "advise/prompt.h"

namespace ac {

struct Reply {
  std::string text = {};
  std::string failure = {};  // why there is no text
  std::string model = {};    // that answered, as it calls itself
  std::string date = {};     // of its answer, if that is from a recording
  std::int64_t input_tokens = 0, output_tokens = 0;
  int calls = 0;  // that were made for it, retries included
  double seconds = 0;
};

class Provider {
 public:
  virtual ~Provider() = default;
  // One reply for each prompt.
  virtual std::vector<Reply> answer(const std::vector<Prompt>& prompts) = 0;
};

struct HttpLimits {
  std::chrono::milliseconds call{180'000};
  int calls = 100;                              // in all, retries included
  std::int64_t tokens = 500'000;                // in all, prompts and replies
  std::chrono::milliseconds first_delay{1000};  // before the first retry; doubles
};

std::unique_ptr<Provider> anthropic_provider(const std::string& model, const std::string& url,
                                             const std::string& key, const HttpLimits& limits);
// `key` may be empty for servers that need none.
std::unique_ptr<Provider> openai_provider(const std::string& model, const std::string& url,
                                          const std::string& key, const HttpLimits& limits);

// NAME.prompt.txt is written for each prompt, NAME.reply.txt read. Without `wait`, missing replies
// end the program after all prompts are written; with it, they are waited for, and then done
// without. `model` and `date` say of all replies who answered when, as files do not; "": nobody
// knows.
std::unique_ptr<Provider> folder_provider(const std::filesystem::path& folder,
                                          std::optional<std::chrono::milliseconds> wait,
                                          std::string model = "", std::string date = "");

// Replies of a recording to the same prompts. An error (bad_input) names what is wrong with the
// file.
std::unique_ptr<Provider> replay_provider(const std::filesystem::path& file);

// Appends every prompt and reply to a file: JSON lines, which replay_provider reads.
std::unique_ptr<Provider> recording_provider(std::unique_ptr<Provider> inner,
                                             const std::filesystem::path& file,
                                             const std::string& name);

}  // namespace ac
