// Recorded replies of whoever was asked which candidates of a region to try: JSON lines, each one
// reply: {"region": signature, "order": [plan ids, best first], "model": ..., "date": ...}, with
// "weights" (one for each id), "tokens" and "seconds" if they are known. Several replies for one
// region are independent draws of the same question.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace ac::study {

struct Reply {
  std::vector<std::string> order;
  std::vector<double> weights;  // none, or one for each
  std::string model, date;
  double tokens = 0, seconds = 0;  // 0: not known
};
using Replies = std::map<std::string, std::vector<Reply>>;  // by signature

// Errors (bad_input) name the line and the field.
Replies read_replies(const std::filesystem::path& file);
Replies parse_replies(std::string_view text, const std::string& origin);

}  // namespace ac::study
