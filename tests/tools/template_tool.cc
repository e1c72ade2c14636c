// Renders many templates in one process: reads lines of JSON, {"template": ..., "input": {...}},
// and answers each with {"prompt": ...} or {"error": ...}.
#include <fmt/format.h>

#include <iostream>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "text/chat_template.h"

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    ac::Json answer;
    try {
      const ac::Json request = ac::parse_json(line, "request");
      const ac::ChatTemplate chat_template(request["template"].get<std::string>(), "T");
      answer["prompt"] = chat_template.render(request["input"]);
    } catch (const ac::Error& error) {
      answer["error"] = error.what();
    }
    fmt::print("{}\n", answer.dump());
  }
}
