// Any bytes as a request of one of the APIs, and as the answer to it. It is refused with
// a message of one line, or answered: whole, and in pieces, with the same parts.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "api/asking.h"
#include "api/request_body.h"
#include "base/error.h"
#include "tests/tools/source_folder.h"

namespace {

using namespace ac;
using namespace ac::api;

const ModelText& model_text() {
  static const ModelText text({.folder = source_folder() / "examples/demo_model",
                               .chat_template = {},
                               .variables = Json::object()});
  return text;
}

std::vector<Part> joined(const std::vector<Part>& parts) {
  std::vector<Part> all;
  for (const Part& part : parts)
    if (all.empty() || all.back().kind != part.kind || part.kind == Part::Kind::call)
      all.push_back(part);
    else
      all.back().text += part.text;
  std::erase_if(
      all, [](const Part& part) { return part.kind != Part::Kind::call && part.text.empty(); });
  return all;
}

std::vector<Part> parts_of(const AnswerParts::Options& options, std::string_view answer,
                           std::size_t piece) {
  AnswerParts parser(options);
  std::vector<Part> parts;
  for (std::size_t at = 0; at < answer.size(); at += piece) {
    const std::vector<Part> more = parser.push(answer.substr(at, piece));
    parts.insert(parts.end(), more.begin(), more.end());
  }
  const std::vector<Part> more = parser.finish();
  parts.insert(parts.end(), more.begin(), more.end());
  return joined(parts);
}

void answer(const Asking& asking, std::string_view text) {
  Reply reply{.id = "x_1", .created = 1, .model = "m", .fingerprint = "f", .choices = {}};
  reply.choices.resize(asking.requests.size());
  const std::vector<Part> parts = parts_of(asking.parts, text, 1 << 20);
  AC_ASSERT(parts == parts_of(asking.parts, text, 3));
  std::string events = asking.writer->begin(reply);
  for (std::size_t i = 0; i < reply.choices.size(); ++i) {
    for (const Part& part : parts) {
      reply.choices[i].add(part, "id");
      events += asking.writer->part(reply, i, part);
    }
    reply.choices[i].finish = "stop";
    events += asking.writer->ended(reply, i);
  }
  events += asking.writer->done(reply);
  AC_ASSERT(events.ends_with("\n\n"));
  AC_ASSERT(!dump(asking.writer->whole(reply)).empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  static const auto formats = std::size(kToolFormats);
  ServedModel model{.text = model_text(),
                    .context = 512,
                    .vocabulary = 1 << 16,
                    .check = [](const TextRequest&) {},
                    .name = "m",
                    .fingerprint = "f",
                    .wishes = {},
                    .stop = {},
                    .format = kToolFormats[data[0] / 4 % formats].first,
                    .thinks = data[1] % 2 == 0};
  using Read = Asking (*)(const Json&, const ServedModel&);
  const Read read =
      std::array<Read, 4>{read_chat, read_completion, read_messages, read_response}[data[0] % 4];
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  // The request, and after a line of nothing else the answer.
  const std::size_t end = std::min(text.find("\n\n"), text.size());
  try {
    const Json body = read_body(text.substr(0, end), {.bytes = 1 << 20, .depth = 64});
    answer(read(body, model), text.substr(std::min(end + 2, text.size())));
  } catch (const Refusal& refusal) {
    AC_ASSERT(refusal.status >= 400 && !refusal.message.empty());
    AC_ASSERT(!dump(to_json(refusal, ErrorForm::openai)).empty());
  } catch (const Error&) {
  }
  return 0;
}
