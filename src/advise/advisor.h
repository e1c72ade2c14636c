// The advisor as the compiler knows it: questions in, checked advice out. It never fails a
// compilation: what it cannot answer it says, and the compiler goes on without.
#pragma once

#include <optional>

#include "advise/advice.h"
#include "advise/provider.h"
#include "base/environment.h"

namespace ac {

struct AdvisorOptions {
  std::string who = "none";  // anthropic:MODEL, openai:MODEL[@URL], ask:FOLDER, replay:FILE, none
  double share = 0.05;       // of the step's predicted time, from which on a region is asked about
  double seconds = 180;      // for one call
  int calls = 100;
  std::int64_t tokens = 500'000;
  std::optional<double> wait = {};    // seconds for replies in a folder
  std::string model = {}, date = {};  // of replies in a folder; "": nobody knows
  std::filesystem::path record = {};
};

struct Answer {
  Prompt prompt;
  Reply reply;
  Advice advice;  // empty where there is no reply
};

class Advisor {
 public:
  Advisor(std::unique_ptr<Provider> provider, std::string name, double share)
      : provider_(std::move(provider)), name_(std::move(name)), share_(share) {}

  // In the order of the questions. Equal prompts are sent once.
  std::vector<Answer> ask(const std::vector<Question>& questions);

  const std::string& name() const { return name_; }
  double share() const { return share_; }

 private:
  std::unique_ptr<Provider> provider_;
  std::string name_;
  double share_;
};

// The provider that the options name; it is recorded if they ask for that. Null for "none". An
// error (wrong_usage) for one that is not known, and for a missing key.
std::unique_ptr<Provider> open_provider(const AdvisorOptions& options,
                                        const Environment& environment);
// The same, to be asked about regions.
std::unique_ptr<Advisor> open_advisor(const AdvisorOptions& options,
                                      const Environment& environment);

}  // namespace ac
