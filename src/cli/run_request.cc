#include "cli/run_request.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/text.h"

namespace ac {
namespace {

constexpr std::size_t kLargestFile = std::size_t{256} << 20;
constexpr std::int64_t kMostNewTokens = std::int64_t{1} << 30;

std::string name_of(const std::string& file) { return file == "-" ? "stdin" : file; }

// One line of a file of requests.
class Line {
 public:
  Line(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json_.is_object()) bad_input("{}: not a JSON object", where_);
  }

  void read(TokenRequest& request) {
    take("ids", request.ids);
    take("max_new_tokens", request.max_new_tokens);
    take("stop_ids", request.stop_ids);
    take("temperature", request.sampling.temperature);
    take("top_k", request.sampling.top_k);
    take("top_p", request.sampling.top_p);
    take("min_p", request.sampling.min_p);
    take("seed", request.sampling.seed);
    take("repeat_penalty", request.penalties.repeat);
    take("presence_penalty", request.penalties.presence);
    if (known_ != json_.size())
      for (const auto& [key, value] : json_.items())
        if (std::ranges::find(keys_, key) == keys_.end())
          bad_input("{}: {} is no part of a request", where_, quote(key));
    if (request.ids.empty()) bad_input("{}: \"ids\" is missing or empty", where_);
    if (request.max_new_tokens < 0 || request.max_new_tokens > kMostNewTokens)
      bad_input("{}: \"max_new_tokens\" is out of range", where_);
    try {
      check(request.sampling);
      check(request.penalties);
    } catch (const Error& error) {
      bad_input("{}: {}", where_, error.what());
    }
  }

 private:
  template <class T>
  void take(const char* key, T& to) {
    keys_.emplace_back(key);
    const auto found = json_.find(key);
    if (found == json_.end()) return;
    ++known_;
    if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) {
      if (!found->is_array()) wrong(key, "a list of token ids");
      to.clear();
      for (const Json& value : *found) to.push_back(integer<std::int64_t>(value, key));
    } else if constexpr (std::is_integral_v<T>) {
      to = integer<T>(*found, key);
    } else {
      if (!found->is_number()) wrong(key, "a number");
      to = found->template get<T>();
    }
  }
  template <class T>
  T integer(const Json& value, const char* key) const {
    const bool fits = value.is_number_unsigned() ? std::in_range<T>(value.get<std::uint64_t>())
                                                 : value.is_number_integer() &&
                                                       std::in_range<T>(value.get<std::int64_t>());
    if (!fits) wrong(key, "an integer in range");
    return value.get<T>();
  }
  [[noreturn]] void wrong(const char* key, const char* what) const {
    bad_input("{}: \"{}\" is not {}", where_, key, what);
  }

  const Json& json_;
  std::string where_;
  std::vector<std::string> keys_;
  std::size_t known_ = 0;
};

}  // namespace

std::string read_whole(const std::string& file) {
  const auto fail = [&](const char* what) {
    bad_input("{}: cannot {}: {}", name_of(file), what, std::strerror(errno));
  };
  const int fd = file == "-" ? dup(STDIN_FILENO) : open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail("open");
  const std::unique_ptr<const int, void (*)(const int*)> closing(&fd,
                                                                 [](const int* f) { close(*f); });
  std::string text, piece(1 << 16, '\0');
  for (;;) {
    const ssize_t got = read(fd, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read");
    if (got == 0) return text;
    text.append(piece, 0, static_cast<std::size_t>(got));
    if (text.size() > kLargestFile)
      bad_input("{}: more than {} bytes", name_of(file), kLargestFile);
  }
}

std::vector<std::int64_t> parse_ids(const std::string& text, const char* option) {
  std::vector<std::int64_t> ids;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    std::int64_t id = 0;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, id);
    if (error != std::errc() || stop != text.data() + end || id < 0)
      wrong_usage("{0}: \"{1}\" is not a token id; write {0} 1,2,3", option,
                  text.substr(at, end - at));
    ids.push_back(id);
    at = end + 1;
  }
  return ids;
}

std::vector<std::int64_t> read_ids(const std::string& file) {
  const std::string text = read_whole(file);
  const auto separates = [](char c) {
    return c == ',' || std::isspace(static_cast<unsigned char>(c)) != 0;
  };
  std::vector<std::int64_t> ids;
  for (std::size_t at = 0; at < text.size();) {
    if (separates(text[at])) {
      ++at;
      continue;
    }
    std::size_t end = at;
    while (end < text.size() && !separates(text[end])) ++end;
    std::int64_t id = 0;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, id);
    if (error != std::errc() || stop != text.data() + end || id < 0)
      bad_input("{}: {} is not a token id", name_of(file),
                quote(text.substr(at, std::min<std::size_t>(end - at, 40))));
    ids.push_back(id);
    at = end;
  }
  if (ids.empty()) bad_input("{}: there are no token ids", name_of(file));
  return ids;
}

std::vector<TokenRequest> read_requests(const std::string& file, const TokenRequest& defaults) {
  const std::string text = read_whole(file);
  std::vector<TokenRequest> requests;
  std::size_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1, ++number;
    if (std::ranges::all_of(line, [](unsigned char c) { return std::isspace(c) != 0; })) continue;
    const std::string where = fmt::format("{}: line {}", name_of(file), number);
    const Json json = parse_json(line, where);
    TokenRequest request = defaults;
    Line(json, where).read(request);
    request.where = where + ": ";
    requests.push_back(std::move(request));
  }
  if (requests.empty()) bad_input("{}: there are no requests", name_of(file));
  return requests;
}

void add_sampling(CLI::App& command, Sampling& sampling) {
  CLI::Option* const temperature = command.add_option(
      "--temperature,--temp", sampling.temperature,
      "Draw tokens, with their logits divided by this (default: 0, the likeliest token)");
  const auto filter = [&](CLI::Option* option) { option->needs(temperature); };
  filter(command.add_option("--top-k", sampling.top_k, "Draw from the K likeliest tokens"));
  filter(command.add_option("--top-p", sampling.top_p,
                            "Draw from the likeliest tokens that have this probability together"));
  filter(command.add_option(
      "--min-p", sampling.min_p,
      "Draw from tokens whose probability is at least this share of the likeliest one's"));
  command
      .add_option("--seed", sampling.seed,
                  "Seed of the drawing: the same seed gives the same tokens")
      ->capture_default_str()
      ->check([](const std::string& text) {
        return text.starts_with('-') ? "a seed is not below 0" : std::string();
      });
}

void add_penalties(CLI::App& command, Penalties& penalties) {
  command
      .add_option("--repeat-penalty", penalties.repeat,
                  "Make tokens less likely that the prompt or the answer has already: logits above "
                  "0 are divided by this, others multiplied; 1 is none")
      ->capture_default_str();
  command
      .add_option("--presence-penalty", penalties.presence,
                  "Take this from the logit of each token that was generated already; 0 is none")
      ->capture_default_str();
}

}  // namespace ac
