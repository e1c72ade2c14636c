// Child processes that stay for the next question: for work whose preparation takes longer than
// itself, such as opening a GPU, and that may crash or hang. One that does costs only the question
// it was asked; another worker takes its place when there is more to do.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/conversation.h"

namespace ac {

class Workers {
 public:
  using Start = std::function<std::unique_ptr<Conversation>()>;
  // `at_once`: so many workers at most, which start when they are needed.
  Workers(Start start, unsigned at_once);
  ~Workers() { dismiss(); }

  // The answers, or how a worker has ended over a question, in the order of the questions. `limit`
  // holds for each, a worker's start included. `on_done` hears of each as it is answered.
  std::vector<ChildResult> ask(
      const std::vector<std::string>& questions, std::chrono::seconds limit,
      const std::function<void(std::size_t index, const ChildResult&)>& on_done = {});

  // Ends all of them: others need what they hold.
  void dismiss();

 private:
  std::unique_ptr<Conversation> take();

  Start start_;
  unsigned at_once_;
  std::vector<std::unique_ptr<Conversation>> idle_;
};

}  // namespace ac
