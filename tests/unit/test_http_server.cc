// The server's limits of time, connections and memory, with clients that are sockets.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "serve/http_server.h"
#include "tests/unit/expect_error.h"

namespace ac::serve::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

class Client {
 public:
  explicit Client(int port, int receive_buffer = 0) {
    if (receive_buffer > 0)
      setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(connect(socket_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
  }
  ~Client() { close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void send(const std::string& text) const {
    ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
  }
  // Until the server closes, or what has come ends so.
  std::string read(std::string_view end = {}) const {
    std::string all;
    char buffer[4096];
    while (end.empty() || !all.ends_with(end)) {
      const ssize_t got = recv(socket_, buffer, sizeof buffer, 0);
      if (got <= 0) break;
      all.append(buffer, static_cast<std::size_t>(got));
    }
    return all;
  }

 private:
  const int socket_ = socket(AF_INET, SOCK_STREAM, 0);
};

std::string said(int, const std::string& message) { return message; }

// /echo answers with the body, /drop with nothing, /slow when the client is gone, /flood without
// end.
struct Running {
  explicit Running(HttpLimits limits)
      : server(
            "127.0.0.1", 0, limits,
            [this](HttpRequest request, std::shared_ptr<HttpResponse> response) {
              handle(std::move(request), std::move(response));
            },
            said) {}
  ~Running() {
    server.stop();
    if (waiting.joinable()) waiting.join();
  }
  void handle(HttpRequest request, std::shared_ptr<HttpResponse> response) {
    if (request.path == "/echo") return response->send({.type = "text/plain"}, request.body);
    if (request.path == "/drop") return;
    const bool floods = request.path == "/flood";
    waiting = std::thread([this, floods, response = std::move(response)] {
      if (floods) response->begin({});
      while (!response->is_gone() && !ends)
        if (floods)
          response->write(std::string(1 << 16, 'x'));
        else
          std::this_thread::sleep_for(1ms);
      left = response->is_gone();
      response->end();
    });
  }

  std::atomic<bool> ends = false, left = false;
  std::thread waiting;
  HttpServer server;
};

void wait_for(const std::atomic<bool>& what) {
  const auto until = Clock::now() + 20s;
  while (!what && Clock::now() < until) std::this_thread::sleep_for(1ms);
  CHECK(what);
}

}  // namespace

TEST_CASE("http server: requests one after another, with queries and without bodies") {
  Running running({});
  const Client client(running.server.port());
  client.send("POST /echo?a=b HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello");
  CHECK(client.read("hello").ends_with("\r\n\r\nhello"));
  client.send("GET /drop HTTP/1.1\r\n\r\nGET /echo HTTP/1.1\r\nConnection: close\r\n\r\n");
  const std::string rest = client.read();
  CHECK(rest.starts_with("HTTP/1.1 500"));
  CHECK(rest.find("there was no answer") != std::string::npos);
  CHECK(rest.find("HTTP/1.1 200") != std::string::npos);
}

TEST_CASE("http server: who sends too slowly is not waited for") {
  Running running({.to_read = 300ms});
  for (const char* const part :
       {"", "GET /echo HT", "POST /echo HTTP/1.1\r\nContent-Length: 9\r\n\r\nhel"}) {
    const auto begin = Clock::now();
    const Client client(running.server.port());
    client.send(part);
    CHECK(client.read() == "");
    CHECK(Clock::now() - begin > 250ms);
    CHECK(Clock::now() - begin < 10s);
  }
  // One that sends a byte now and then is no better off.
  const auto begin = Clock::now();
  const Client client(running.server.port());
  std::thread sending([&] {
    for (int i = 0; i < 20; ++i) {
      client.send("x");
      std::this_thread::sleep_for(100ms);
    }
  });
  client.read();
  CHECK(Clock::now() - begin < 1500ms);
  sending.join();
}

TEST_CASE("http server: who waits for an answer may wait for long, and is seen to leave") {
  Running running({.to_read = 200ms});
  {
    const Client client(running.server.port());
    client.send("GET /slow HTTP/1.1\r\n\r\n");
    std::this_thread::sleep_for(600ms);
    CHECK(!running.left);
  }
  wait_for(running.left);
}

TEST_CASE("http server: who reads too slowly is dropped") {
  SUBCASE("after a while") {
    Running running({.unsent_bytes = std::size_t{1} << 40, .to_write = 300ms});
    const Client client(running.server.port(), 4096);
    client.send("GET /flood HTTP/1.1\r\n\r\n");
    std::this_thread::sleep_for(50ms);
    wait_for(running.left);
  }
  SUBCASE("when too much waits for it") {
    Running running({.unsent_bytes = 1 << 20});
    const Client client(running.server.port(), 4096);
    client.send("GET /flood HTTP/1.1\r\n\r\n");
    wait_for(running.left);
  }
}

TEST_CASE("http server: connections are counted") {
  Running running({.connections = 2});
  const int port = running.server.port();
  {
    const Client one(port), two(port);
    two.send("GET /echo HTTP/1.1\r\n\r\n");
    CHECK(two.read("\r\n\r\n").starts_with("HTTP/1.1 200"));
    const Client three(port);
    CHECK(three.read("connections").starts_with("HTTP/1.1 503"));
  }
  for (int attempt = 0; attempt < 200; ++attempt) {
    const Client again(port);
    again.send("GET /echo HTTP/1.1\r\nConnection: close\r\n\r\n");
    if (again.read().starts_with("HTTP/1.1 200")) return;
    std::this_thread::sleep_for(10ms);
  }
  FAIL("connections that were closed are still counted");
}

TEST_CASE("http server: it ends with answers under way, and their clients get them") {
  auto running = std::make_unique<Running>(HttpLimits{});
  const Client client(running->server.port()), idle(running->server.port());
  client.send("GET /slow HTTP/1.1\r\n\r\n");
  std::this_thread::sleep_for(100ms);
  std::thread ending([&] { running->server.stop(); });
  CHECK(idle.read() == "");
  running->ends = true;
  CHECK(client.read().starts_with("HTTP/1.1 500"));
  ending.join();
}

TEST_CASE("http server: an address that cannot be had") {
  Running running({});
  const std::string error = ac::test::error_of(
      Fault::job_failed, [&] { HttpServer("127.0.0.1", running.server.port(), {}, {}, said); });
  CHECK(error == fmt::format("cannot listen at 127.0.0.1 port {}: Address already in use",
                             running.server.port()));
}

}  // namespace ac::serve::test
