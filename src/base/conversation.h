// A child process that is asked one thing after the other: for work that takes long to prepare,
// and that may crash or hang. The child prepares once and then answers line by line.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/child.h"

namespace ac {

class Conversation {
 public:
  // What the child does: what it makes at the beginning answers every question. Neither questions
  // nor answers hold a line break.
  using Answer = std::function<std::string(const std::string& question)>;
  using Prepare = std::function<Answer()>;
  // With a function of this process, as it is when the child is forked: call it while no other
  // thread runs.
  explicit Conversation(const Prepare& prepare);
  // With a program that calls answer_questions() with its stdin and stdout.
  explicit Conversation(const std::vector<std::string>& command);
  ~Conversation();  // ends the child, and waits for that
  // The same without waiting: it is asked no more. So that many end side by side.
  void stop();
  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;

  // The answer, or how the child has ended. It is asked no more then.
  ChildResult ask(const std::string& question, std::chrono::seconds limit);

  // The same for who waits for several of them: after begin(), poll what awaited() says, for no
  // longer than patience(), and give what was seen to advance(), until it has the answer.
  void begin(const std::string& question, std::chrono::seconds limit);
  pollfd awaited() const;
  std::chrono::milliseconds patience() const;
  std::optional<ChildResult> advance(short seen);

 private:
  void start(const std::function<void(int socket)>& child);
  ChildResult finish(const std::string& why);
  double seconds() const;  // since it was last asked

  pid_t pid_ = -1;
  int socket_ = -1;
  std::string asked_, received_;
  std::size_t sent_ = 0;  // of what was asked
  std::chrono::seconds limit_{0};
  std::chrono::steady_clock::time_point began_;
};

// For who is asked and waits for something that is not its own work: the limit of the answer begins
// anew. Outside of answer_questions() it does nothing.
void ask_for_patience();

// Until nobody asks any more. What is thrown is the last answer.
void answer_questions(const Conversation::Prepare& prepare, int in, int out);

}  // namespace ac
