// What a long compilation tells whoever watches: a line on a terminal that is rewritten, or one
// line for each stage elsewhere.
#pragma once

#include <chrono>
#include <string>

namespace ac {

class Progress {
 public:
  // Writes to stderr; `quiet` says nothing.
  explicit Progress(bool quiet = false);
  ~Progress();

  void stage(const std::string& name);
  // Of the stage: so many of so many, and what is best or new.
  void step(std::size_t done, std::size_t total, const std::string& what);
  // A line that stays.
  void note(const std::string& text);
  void done();

 private:
  double seconds() const;

  const bool quiet_, terminal_;
  std::chrono::steady_clock::time_point began_, shown_;
  std::string stage_, last_;
};

}  // namespace ac
