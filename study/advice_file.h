// Recorded replies of whoever was asked which candidates of a region to try: JSON lines, each one
// reply: {"region": signature, "order": [plan ids, best first], "model": ..., "date": ...}, with
// "weights" (one for each id), "tokens" and "seconds" if they are known. Several replies for one
// region are independent draws of the same question. What `study advise` writes also says
// "advisor" (as it was named on the command line), "prompt_hash", "prompt" and "reply", the last
// two word for word, so that such a file is a recording that `--advisor replay:FILE` reads, too.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace ac::study {

struct OrderReply {
  std::vector<std::string> order;
  std::vector<double> weights;  // none, or one for each
  std::string model, date;
  double tokens = 0, seconds = 0;  // 0: not known
};
using Replies = std::map<std::string, std::vector<OrderReply>>;  // by signature

// Errors (bad_input) name the line and the field.
Replies read_replies(const std::filesystem::path& file);
Replies parse_replies(std::string_view text, const std::string& origin);

// One of them as it is written, with what was asked and answered.
struct RecordedReply {
  std::string region;
  OrderReply advice;
  std::string advisor, prompt_hash, prompt, text;
};

// At the end of the file, all in one write: those that it does not have yet, which means the same
// text from the same advisor to the same prompt. Gives how many that were. A file that read_replies
// refuses is not touched.
std::size_t append_replies(const std::filesystem::path& file,
                           const std::vector<RecordedReply>& replies);

}  // namespace ac::study
