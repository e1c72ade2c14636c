#include "study/advice_file.h"

#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"

namespace ac::study {
namespace {

constexpr std::size_t kMaxRepliesBytes = std::size_t{256} << 20;
constexpr JsonLimits kReplyLimits{.bytes = 10 << 20, .depth = 8, .values = 200'000};

const Json& field(const Json& line, const char* name, bool (Json::*is)() const noexcept,
                  const std::string& where, const char* what) {
  if (!line.contains(name)) bad_input("{}: has no field \"{}\"", where, name);
  if (!(line.at(name).*is)()) bad_input("{}: \"{}\" is not {}", where, name, what);
  return line.at(name);
}

double number(const Json& line, const char* name, const std::string& where) {
  if (!line.contains(name)) return 0;
  const Json& value = line.at(name);
  if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < 0)
    bad_input("{}: \"{}\" is not a number that is not negative", where, name);
  return value.get<double>();
}

// Calls with each line and the words that name it in errors.
template <class Visit>
void each_line(std::string_view text, const std::string& origin, const Visit& visit) {
  std::size_t number_of_line = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string where = fmt::format("{}: line {}", origin, ++number_of_line);
    const std::string_view content = text.substr(at, end - at);
    at = end + 1;
    if (content.empty()) continue;
    const Json line = parse_json(content, where, kReplyLimits);
    if (!line.is_object()) bad_input("{}: is no object", where);
    visit(line, where);
  }
}

std::pair<std::string, OrderReply> reply_of(const Json& line, const std::string& where) {
  const auto get_text = [&](const char* name) {
    return field(line, name, &Json::is_string, where, "a text").get<std::string>();
  };
  OrderReply reply;
  for (const Json& id : field(line, "order", &Json::is_array, where, "an array")) {
    if (!id.is_string()) bad_input("{}: \"order\" holds what is no text", where);
    reply.order.push_back(id.get<std::string>());
  }
  if (line.contains("weights")) {
    for (const Json& weight : field(line, "weights", &Json::is_array, where, "an array")) {
      if (!weight.is_number() || !(weight.get<double>() >= 0) || weight.get<double>() > 1)
        bad_input("{}: \"weights\" holds what is no number from 0 to 1", where);
      reply.weights.push_back(weight.get<double>());
    }
    if (reply.weights.size() != reply.order.size())
      bad_input("{}: \"weights\" are {}, and \"order\" has {}", where, reply.weights.size(),
                reply.order.size());
  }
  reply.model = get_text("model");
  reply.date = get_text("date");
  reply.tokens = number(line, "tokens", where);
  reply.seconds = number(line, "seconds", where);
  return {get_text("region"), std::move(reply)};
}

// What makes two lines the same reply; lines that do not say it all differ from any other.
using Identity = std::array<std::string, 3>;
std::optional<Identity> identity_of(const Json& line) {
  Identity identity;
  for (std::size_t i = 0; i < identity.size(); ++i) {
    const auto known = line.find(std::array{"advisor", "prompt_hash", "reply"}[i]);
    if (known == line.end() || !known->is_string()) return std::nullopt;
    identity[i] = known->get<std::string>();
  }
  return identity;
}

// What is no UTF-8 becomes U+FFFD.
std::string line_of(const RecordedReply& reply) {
  Json line{{"region", reply.region},
            {"order", reply.advice.order},
            {"model", reply.advice.model},
            {"date", reply.advice.date}};
  if (!reply.advice.weights.empty()) line["weights"] = reply.advice.weights;
  if (reply.advice.tokens > 0) line["tokens"] = reply.advice.tokens;
  if (reply.advice.seconds > 0) line["seconds"] = reply.advice.seconds;
  line["advisor"] = reply.advisor;
  line["prompt_hash"] = reply.prompt_hash;
  line["prompt"] = reply.prompt;
  line["reply"] = reply.text;
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

Replies parse_replies(std::string_view text, const std::string& origin) {
  Replies replies;
  each_line(text, origin, [&](const Json& line, const std::string& where) {
    auto [region, reply] = reply_of(line, where);
    replies[region].push_back(std::move(reply));
  });
  return replies;
}

Replies read_replies(const std::filesystem::path& file) {
  return parse_replies(read_file(file, kMaxRepliesBytes), file.string());
}

std::size_t append_replies(const std::filesystem::path& file,
                           const std::vector<RecordedReply>& replies) {
  const auto check = [&](bool done) {
    if (!done) job_failed("cannot write {}: {}", file.string(), std::strerror(errno));
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> held(std::fopen(file.c_str(), "ae"),
                                                             &std::fclose);
  check(held != nullptr);
  const int fd = fileno(held.get());
  check(flock(fd, LOCK_EX) == 0);  // what others append meanwhile is not written twice
  const std::string text = read_file(file, kMaxRepliesBytes);
  std::set<Identity> known;
  each_line(text, file.string(), [&](const Json& line, const std::string& where) {
    reply_of(line, where);
    if (const auto identity = identity_of(line)) known.insert(*identity);
  });
  std::string added;
  std::size_t count = 0;
  for (const RecordedReply& reply : replies) {
    const std::string line = line_of(reply);
    if (!known.insert(*identity_of(Json::parse(line))).second) continue;
    added += line + "\n";
    ++count;
  }
  if (count == 0) return 0;
  if (!text.empty() && text.back() != '\n') added = "\n" + added;
  const ssize_t written = write(fd, added.data(), added.size());
  if (written != static_cast<ssize_t>(added.size())) {
    const int error = written < 0 ? errno : ENOSPC;
    // Half a line would spoil the file.
    errno = ftruncate(fd, static_cast<off_t>(text.size())) == 0 ? error : errno;
    check(false);
  }
  return count;
}

}  // namespace ac::study
