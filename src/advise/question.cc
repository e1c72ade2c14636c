#include "advise/question.h"

namespace ac {

const Candidate* Question::find(std::string_view id) const {
  for (const Candidate& candidate : legal)
    if (candidate.id == id) return &candidate;
  return nullptr;
}

std::string ops_text(const Wanted& wanted) {
  std::string text;
  for (const std::string& op : op_names(wanted.region)) text += (text.empty() ? "" : "+") + op;
  return text + (wanted.argmax ? "+argmax" : "");
}

}  // namespace ac
