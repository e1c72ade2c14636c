// What a long job tells whoever watches: a line on a terminal that is rewritten, or one line for
// each stage elsewhere. What a user must know is no progress: see base/warning.h.
#pragma once

#include <chrono>
#include <string>

namespace ac {

// Of the terminal at stderr; 80 if it does not say.
std::size_t terminal_columns();
// As much of a line as a terminal of so many columns shows in one row.
std::string fitted(const std::string& line, std::size_t columns);

class Progress {
 public:
  // Writes to stderr; `quiet` says nothing.
  explicit Progress(bool quiet = false);
  ~Progress();

  void stage(const std::string& name);
  // Of the stage: "kernels built 3/12", and what is best or new. What is counted has a name, as a
  // stage may count several things.
  void step(const std::string& counted, std::size_t done, std::size_t total,
            const std::string& what = {});
  void step(std::size_t done, std::size_t total, const std::string& what) {
    step("", done, total, what);
  }
  // What the stage's line says at its end, in place of the last step.
  void summary(const std::string& text) { last_ = text; }
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
