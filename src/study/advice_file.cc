#include "study/advice_file.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"

namespace ac::study {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{256} << 20;
constexpr JsonLimits kLine{.bytes = 10 << 20, .depth = 8, .values = 200'000};

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

}  // namespace

Replies parse_replies(std::string_view text, const std::string& origin) {
  Replies replies;
  std::size_t number_of_line = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string where = fmt::format("{}: line {}", origin, ++number_of_line);
    const std::string_view content = text.substr(at, end - at);
    at = end + 1;
    if (content.empty()) continue;
    const Json line = parse_json(content, where, kLine);
    if (!line.is_object()) bad_input("{}: is no object", where);
    const auto get_text = [&](const char* name) {
      return field(line, name, &Json::is_string, where, "a text").get<std::string>();
    };
    Reply reply;
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
    replies[get_text("region")].push_back(std::move(reply));
  }
  return replies;
}

Replies read_replies(const std::filesystem::path& file) {
  return parse_replies(read_file(file, kMaxBytes), file.string());
}

}  // namespace ac::study
