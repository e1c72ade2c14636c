// HTTP over libcurl, as narrow as model downloads and advisors allow:
// - HTTPS only; plain HTTP only from and to this machine (a local mirror, a local model, the
// tests);
// - secrets go to the origin (scheme, host, port) they were given for and to no other. A GET
//   therefore follows redirects here and not in libcurl: each step is checked. A POST follows none.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ac {

struct HttpHead {
  long status = 0;
  std::string content_range;
};

// Gets the body in pieces, of successful (2xx) responses only. May throw.
using HttpBody = std::function<void(const HttpHead&, std::string_view)>;

struct HttpResult {
  long status = 0;      // 0: there was no whole response, see `failure`
  std::string failure;  // what the network did, or "HTTP 503"; empty on success
  bool worth_retrying = false;
  std::chrono::seconds retry_after{0};  // as the server asked
  bool made_progress = false;           // for the caller: new bytes arrived before it failed

  bool ok() const { return status >= 200 && status < 300; }
};

struct HttpPost {
  std::string url;                   // of the endpoint's origin
  std::vector<std::string> headers;  // "Name: value"; may hold secrets
  std::string content;
  std::chrono::milliseconds limit{0};  // for all of it, however the bytes drip
  std::size_t max_bytes = 0;           // of the response
};

class HttpClient {
 public:
  // Throws Fault::wrong_usage if the endpoint is no URL that we would talk to; `setting` is where
  // the user gave it. One client is for one thread.
  HttpClient(const std::string& endpoint, std::string token, std::string_view setting);
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;
  ~HttpClient();

  // One attempt. `from` > 0 asks for the rest of the body (Range).
  HttpResult get(const std::string& url, std::uint64_t from, const HttpBody& body);
  // One attempt. `response` gets the body whatever the status is, as errors are explained there.
  HttpResult post(const HttpPost& request, std::string& response);

 private:
  struct Origin {
    std::string scheme, host, port;
    bool operator==(const Origin&) const = default;
  };
  static Origin origin_of(const std::string& url);
  std::string why_forbidden(const Origin& origin) const;
  void prepare(const std::string& url, const Origin& origin, char* details);
  HttpResult perform(const char* details);
  HttpResult get_once(const std::string& url, const Origin& origin, std::uint64_t from,
                      const HttpBody& body, std::string& redirect);

  void* curl_;
  Origin endpoint_;
  std::string token_;
};

// Percent-encodes everything but letters, digits and -._~ (and '/', if `keep_slashes`).
std::string url_encode(std::string_view text, bool keep_slashes);

}  // namespace ac
