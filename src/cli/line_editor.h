// Lines that a person types on a terminal, with editing and history; or those of a pipe or file, as
// they are.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace ac {

class LineEditor {
 public:
  LineEditor();
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  bool is_terminal() const { return terminal_ != nullptr; }
  struct Line {
    std::string text;          // without its end
    bool interrupted = false;  // Ctrl-C was pressed; the text is what had been typed
  };
  // Nothing at the end of the input. A prompt is shown on a terminal only.
  std::optional<Line> read(const std::string& prompt);
  // What the up arrow brings back; on a terminal.
  void remember(const std::string& text);

 private:
  struct Terminal;
  std::unique_ptr<Terminal> terminal_;
};

}  // namespace ac
