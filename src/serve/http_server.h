// An HTTP/1.1 server with limits: of headers, bodies, time and connections. It knows nothing of
// what it serves. TLS is a proxy's business.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ac::serve {

struct HttpRequest {
  std::string method, path;  // without a query
  std::string body;
  std::string client;  // its address
  // Headers; empty: not there.
  std::string content_type, content_encoding, authorization, api_key;
};

struct HttpHead {
  int status = 200;
  std::string type = "application/json";
  std::vector<std::pair<std::string, std::string>> fields = {};
};

// Where a request is answered, once: whole, or piece by piece. Any thread may do that. Whoever
// drops it without an answer has the client get a 500.
class HttpResponse {
 public:
  virtual ~HttpResponse() = default;
  virtual void send(HttpHead head, std::string body) = 0;
  virtual void begin(HttpHead head) = 0;
  virtual void write(std::string piece) = 0;
  virtual void end() = 0;
  virtual bool is_gone() const = 0;  // the client has left
};

constexpr const char* kRetryAfter = "2";  // seconds, of a 503

struct HttpLimits {
  std::size_t header_bytes = 32 << 10, body_bytes = 8 << 20;
  // What a client reads too slowly is kept for it up to this.
  std::size_t unsent_bytes = 16 << 20;
  int connections = 256;
  std::chrono::milliseconds to_read{30'000};   // a request, from the end of the one before it
  std::chrono::milliseconds to_write{30'000};  // a piece of a response
  int threads = 4;
};

class HttpServer {
 public:
  using Handler = std::function<void(HttpRequest, std::shared_ptr<HttpResponse>)>;
  // What is wrong before there is a request, as a body: too large, no HTTP, ...
  using Refusal = std::function<std::string(int status, const std::string& message)>;

  // Listens from now on; port 0 is any that is free. An address that cannot be had is an error
  // (job_failed). Handlers run in the server's threads, and must not wait for anything long.
  HttpServer(const std::string& address, int port, HttpLimits limits, Handler handler,
             Refusal refusal);
  ~HttpServer();

  int port() const;
  // Lets responses that have begun end, and closes all connections.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ac::serve
