#include "cli/line_editor.h"

#include <histedit.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "base/error.h"
#include "base/interrupt.h"

namespace ac {
namespace {

constexpr int kRemembered = 500;  // lines

// The terminal as it is now, until the end, whether a signal is the end or not.
class TerminalMode {
 public:
  TerminalMode() {
    if (tcgetattr(STDIN_FILENO, &mode_) != 0) return;
    set([this] { restore(); });
  }
  ~TerminalMode() {
    set(nullptr);
    restore();
  }
  TerminalMode(const TerminalMode&) = delete;
  TerminalMode& operator=(const TerminalMode&) = delete;

 private:
  static void set(std::function<void()> restore) {
    Leftovers& ours = Leftovers::ours();
    const std::lock_guard lock(ours.mutex);
    ours.restore_terminal = std::move(restore);
  }
  void restore() const { tcsetattr(STDIN_FILENO, TCSADRAIN, &mode_); }

  termios mode_{};
};

}  // namespace

struct LineEditor::Terminal {
  EditLine* editor = nullptr;
  History* history = nullptr;
  std::string prompt;
  bool interrupted = false;

  static Terminal& of(EditLine* editor) {
    void* data = nullptr;
    el_get(editor, EL_CLIENTDATA, &data);
    return *static_cast<Terminal*>(data);
  }
  static char* show_prompt(EditLine* editor) { return of(editor).prompt.data(); }
  static unsigned char interrupt(EditLine* editor, int) {
    of(editor).interrupted = true;
    return CC_NEWLINE;
  }

  Terminal() {
    // Else characters of several bytes could not be edited.
    if (std::setlocale(LC_CTYPE, "") == nullptr || MB_CUR_MAX == 1)
      std::setlocale(LC_CTYPE, "C.UTF-8");
    editor = el_init("agentcompile", stdin, stdout, stderr);
    if (editor == nullptr) job_failed("the terminal cannot be used: is TERM set?");
    history = history_init();
    HistEvent event;
    ::history(history, &event, H_SETSIZE, kRemembered);
    ::history(history, &event, H_SETUNIQUE, 1);
    el_set(editor, EL_CLIENTDATA, this);
    el_set(editor, EL_PROMPT, &show_prompt);
    el_set(editor, EL_EDITOR, "emacs");
    el_set(editor, EL_HIST, ::history, history);
    el_source(editor, nullptr);  // the user's ~/.editrc
    // Ctrl-C is a key while a line is edited, and a signal otherwise.
    el_set(editor, EL_SETTY, "-d", "-isig", nullptr);
    el_set(editor, EL_ADDFN, "interrupt-line", "Leave this line", &interrupt);
    el_set(editor, EL_BIND, "^C", "interrupt-line", nullptr);
    el_set(editor, EL_BIND, "^I", "ed-insert", nullptr);  // a tab of what is pasted
  }
  ~Terminal() {
    history_end(history);
    el_end(editor);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
};

LineEditor::LineEditor() {
  if (isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1)
    terminal_ = std::make_unique<Terminal>();
}
LineEditor::~LineEditor() = default;

std::optional<LineEditor::Line> LineEditor::read(const std::string& prompt) {
  Line line;
  if (!terminal_) {
    if (!std::getline(std::cin, line.text)) {
      if (std::cin.bad()) job_failed("stdin cannot be read");
      return std::nullopt;
    }
  } else {
    const TerminalMode mode;
    terminal_->prompt = prompt, terminal_->interrupted = false;
    // Before the prompt is seen: else a key that is pressed at once is the terminal's.
    el_set(terminal_->editor, EL_PREP_TERM, 1);
    int count = 0;
    const char* const text = el_gets(terminal_->editor, &count);
    line.interrupted = terminal_->interrupted;
    if (text != nullptr && count > 0) line.text.assign(text, static_cast<std::size_t>(count));
    if (line.interrupted)
      std::fputs("\n", stdout);
    else if (line.text.empty())
      return std::nullopt;
    if (line.text.ends_with('\n')) line.text.pop_back();
  }
  if (line.text.ends_with('\r')) line.text.pop_back();
  return line;
}

void LineEditor::remember(const std::string& text) {
  if (!terminal_ || text.empty()) return;
  HistEvent event;
  ::history(terminal_->history, &event, H_ENTER, text.c_str());
}

}  // namespace ac
