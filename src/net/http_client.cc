#include "net/http_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <exception>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace ac {
namespace {

constexpr int kMaxRedirects = 8;
constexpr long kConnectSeconds = 20;
constexpr long kStalledSeconds = 60;

void start_curl_once() {
  static const bool started = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  if (!started) job_failed("libcurl does not start");
}

template <class Value>
void set(void* curl, CURLoption option, Value value) {
  const CURLcode code = curl_easy_setopt(static_cast<CURL*>(curl), option, value);
  if (code != CURLE_OK) job_failed("libcurl refuses option {}", static_cast<int>(option));
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "[::1]" || host == "::1" ||
         (host.starts_with("127.") &&
          std::ranges::all_of(host, [](unsigned char c) { return std::isdigit(c) || c == '.'; }));
}

// What the C callbacks need. Exceptions must not cross libcurl: they wait in `thrown`.
struct Transfer {
  HttpHead head;
  const HttpBody& body;
  std::exception_ptr thrown;
};

std::size_t on_header(char* data, std::size_t, std::size_t size, void* user) {
  HttpHead& head = static_cast<Transfer*>(user)->head;
  std::string line(data, size);
  if (line.starts_with("HTTP/")) head.content_range.clear();  // another response (100 Continue)
  const auto colon = line.find(':');
  if (colon == line.npos) return size;
  std::ranges::transform(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(colon),
                         line.begin(), [](unsigned char c) { return std::tolower(c); });
  if (!line.starts_with("content-range:")) return size;
  const auto first = line.find_first_not_of(" \t", colon + 1);
  const auto last = line.find_last_not_of(" \t\r\n");
  if (first != line.npos && first <= last)
    head.content_range = line.substr(first, last - first + 1);
  return size;
}

struct BodyTarget {
  Transfer& transfer;
  void* curl;
};

std::size_t on_body(char* data, std::size_t, std::size_t size, void* user) {
  const auto& [transfer, curl] = *static_cast<BodyTarget*>(user);
  curl_easy_getinfo(static_cast<CURL*>(curl), CURLINFO_RESPONSE_CODE, &transfer.head.status);
  if (transfer.head.status < 200 || transfer.head.status > 299) return size;
  try {
    transfer.body(transfer.head, {data, size});
    return size;
  } catch (...) {
    transfer.thrown = std::current_exception();
    return 0;
  }
}

struct CappedText {
  std::string& text;
  const std::size_t most;
  bool full = false;
};

std::size_t on_text(char* data, std::size_t, std::size_t size, void* user) {
  auto& [text, most, full] = *static_cast<CappedText*>(user);
  full = size > most - text.size();
  if (full) return 0;
  text.append(data, size);
  return size;
}

class HeaderList {
 public:
  HeaderList() = default;
  HeaderList(const HeaderList&) = delete;
  HeaderList& operator=(const HeaderList&) = delete;
  ~HeaderList() { curl_slist_free_all(list_); }
  void add(const std::string& line) {
    curl_slist* longer = curl_slist_append(list_, line.c_str());
    if (!longer) job_failed("out of memory for a request");
    list_ = longer;
  }
  curl_slist* list() const { return list_; }

 private:
  curl_slist* list_ = nullptr;
};

// Failures that a second attempt cannot mend.
bool is_permanent(CURLcode code) {
  constexpr std::array kPermanent{
      CURLE_UNSUPPORTED_PROTOCOL,
      CURLE_URL_MALFORMAT,
      CURLE_SSL_CERTPROBLEM,
      CURLE_SSL_CIPHER,
      CURLE_PEER_FAILED_VERIFICATION,
      CURLE_SSL_CACERT_BADFILE,
      CURLE_OUT_OF_MEMORY,
  };
  return std::ranges::find(kPermanent, code) != kPermanent.end();
}

bool is_temporary(long status) { return status == 408 || status == 429 || status >= 500; }

bool is_redirect(long status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

}  // namespace

HttpClient::HttpClient(const std::string& endpoint, std::string token, std::string_view setting)
    : token_(std::move(token)) {
  start_curl_once();
  endpoint_ = origin_of(endpoint);
  if (const std::string why = why_forbidden(endpoint_); !why.empty())
    wrong_usage("{}={}: {}", setting, quote(endpoint), why);
  curl_ = curl_easy_init();
  if (!curl_) job_failed("libcurl does not start");
}

HttpClient::~HttpClient() { curl_easy_cleanup(static_cast<CURL*>(curl_)); }

// All fields are empty for what is not a URL.
HttpClient::Origin HttpClient::origin_of(const std::string& url) {
  const std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> parsed(curl_url(), curl_url_cleanup);
  if (!parsed || curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK) return {};
  const auto part = [&](CURLUPart which, unsigned flags) {
    char* text = nullptr;
    if (curl_url_get(parsed.get(), which, &text, flags) != CURLUE_OK) return std::string();
    std::string copy = text;
    curl_free(text);
    std::ranges::transform(copy, copy.begin(), [](unsigned char c) { return std::tolower(c); });
    return copy;
  };
  return {part(CURLUPART_SCHEME, 0), part(CURLUPART_HOST, 0),
          part(CURLUPART_PORT, CURLU_DEFAULT_PORT)};
}

std::string HttpClient::why_forbidden(const Origin& origin) const {
  if (origin.host.empty()) return "not a URL";
  if (origin.scheme == "https") return {};
  if (origin.scheme != "http") return "only HTTPS is used";
  if (is_loopback(origin.host) && endpoint_.scheme == "http") return {};
  return "only HTTPS is used, except on this machine itself";
}

HttpResult HttpClient::get(const std::string& url, std::uint64_t from, const HttpBody& body) {
  std::string next = url;
  for (int step = 0; step <= kMaxRedirects; ++step) {
    const Origin origin = origin_of(next);
    if (const std::string why = why_forbidden(origin); !why.empty())
      return {.failure = fmt::format("refused to follow a redirect to {}: {}", quote(next), why)};
    std::string redirect;
    HttpResult result = get_once(next, origin, from, body, redirect);
    if (redirect.empty()) return result;
    next = redirect;
  }
  return {.failure = fmt::format("more than {} redirects", kMaxRedirects)};
}

// What every request has. Keeps the connections of those before.
void HttpClient::prepare(const std::string& url, const Origin& origin, char* details) {
  curl_easy_reset(static_cast<CURL*>(curl_));
  set(curl_, CURLOPT_URL, url.c_str());
#if LIBCURL_VERSION_NUM >= 0x075500
  set(curl_, CURLOPT_PROTOCOLS_STR, origin.scheme.c_str());
#else
  set(curl_, CURLOPT_PROTOCOLS, origin.scheme == "https" ? CURLPROTO_HTTPS : CURLPROTO_HTTP);
#endif
  set(curl_, CURLOPT_FOLLOWLOCATION, 0L);
  set(curl_, CURLOPT_NOSIGNAL, 1L);
  set(curl_, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  set(curl_, CURLOPT_USERAGENT, "agentcompile");
  set(curl_, CURLOPT_ERRORBUFFER, details);
  if (origin.scheme == "http") set(curl_, CURLOPT_PROXY, "");  // this machine needs no proxy
}

HttpResult HttpClient::perform(const char* details) {
  auto* curl = static_cast<CURL*>(curl_);
  const CURLcode code = curl_easy_perform(curl);
  if (code != CURLE_OK)
    return {.failure = details[0] ? details : curl_easy_strerror(code),
            .worth_retrying = !is_permanent(code)};
  HttpResult result;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &result.status);
  if (result.ok()) return result;
  curl_off_t seconds = 0;
  curl_easy_getinfo(curl, CURLINFO_RETRY_AFTER, &seconds);
  result.failure = fmt::format("HTTP {}", result.status);
  result.worth_retrying = is_temporary(result.status);
  result.retry_after = std::chrono::seconds(seconds);
  return result;
}

HttpResult HttpClient::get_once(const std::string& url, const Origin& origin, std::uint64_t from,
                                const HttpBody& body, std::string& redirect) {
  Transfer transfer{.head = {}, .body = body, .thrown = nullptr};
  BodyTarget target{transfer, curl_};
  std::array<char, CURL_ERROR_SIZE> details{};
  HeaderList headers;
  if (!token_.empty() && origin == endpoint_) headers.add("Authorization: Bearer " + token_);
  prepare(url, origin, details.data());
  set(curl_, CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(curl_, CURLOPT_LOW_SPEED_TIME, kStalledSeconds);
  set(curl_, CURLOPT_HTTPHEADER, headers.list());
  set(curl_, CURLOPT_HEADERFUNCTION, on_header);
  set(curl_, CURLOPT_HEADERDATA, static_cast<void*>(&transfer));
  set(curl_, CURLOPT_WRITEFUNCTION, on_body);
  set(curl_, CURLOPT_WRITEDATA, static_cast<void*>(&target));
  if (from > 0) set(curl_, CURLOPT_RANGE, fmt::format("{}-", from).c_str());

  HttpResult result = perform(details.data());
  if (transfer.thrown) std::rethrow_exception(transfer.thrown);
  if (is_redirect(result.status)) {
    char* location = nullptr;
    curl_easy_getinfo(static_cast<CURL*>(curl_), CURLINFO_REDIRECT_URL, &location);
    if (location) redirect = location;
  }
  return result;
}

HttpResult HttpClient::post(const HttpPost& request, std::string& response) {
  const Origin origin = origin_of(request.url);
  if (origin != endpoint_)
    return {.failure = fmt::format("refused to send to {}: not where the endpoint is",
                                   quote(request.url))};
  CappedText text{response, request.max_bytes};
  response.clear();
  std::array<char, CURL_ERROR_SIZE> details{};
  HeaderList headers;
  headers.add("Content-Type: application/json");
  headers.add("Expect:");  // no round trip to ask whether the content may come
  for (const std::string& header : request.headers) headers.add(header);
  prepare(request.url, origin, details.data());
  set(curl_, CURLOPT_TIMEOUT_MS, static_cast<long>(request.limit.count()));
  set(curl_, CURLOPT_HTTPHEADER, headers.list());
  set(curl_, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.content.size()));
  set(curl_, CURLOPT_POSTFIELDS, request.content.c_str());
  set(curl_, CURLOPT_WRITEFUNCTION, on_text);
  set(curl_, CURLOPT_WRITEDATA, static_cast<void*>(&text));
  HttpResult result = perform(details.data());
  if (text.full)
    return {.failure = fmt::format("a response of more than {} bytes", request.max_bytes)};
  return result;
}

std::string url_encode(std::string_view text, bool keep_slashes) {
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (byte < 0x80 && std::isalnum(byte)) || c == '-' || c == '.' || c == '_' ||
                       c == '~' || (c == '/' && keep_slashes);
    encoded += plain ? std::string(1, c) : fmt::format("%{:02X}", byte);
  }
  return encoded;
}

}  // namespace ac
