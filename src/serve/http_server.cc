#include "serve/http_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "base/error.h"

namespace ac::serve {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using net::ip::tcp;
using Clock = std::chrono::steady_clock;
using ErrorCode = boost::system::error_code;

constexpr auto kTick = std::chrono::milliseconds(100);
// Of a request that was refused, which is read so that its sender comes to read the response.
constexpr std::size_t kMostIgnored = 64 << 20;
constexpr auto kMostIgnoring = std::chrono::seconds(5);
// So many bytes of a body are read by one call, at most.
constexpr std::size_t kMostRead = 64 << 10;
// Sent before the request is answered: pipelined requests.
constexpr std::size_t kMostAhead = 64 << 10;

class Session;

struct Shared {
  HttpLimits limits;
  HttpServer::Handler handler;
  HttpServer::Refusal refusal;
  net::io_context io;
  std::atomic<bool> stopping = false;
  std::atomic<int> connections = 0;
  std::mutex mutex;
  std::set<std::weak_ptr<Session>, std::owner_less<>> sessions;
};

class Response;

// One connection. All of it happens on a strand of its own.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(Shared& shared, tcp::socket socket)
      : shared_(shared), socket_(std::move(socket)), timer_(socket_.get_executor()) {
    ++shared_.connections;
    ErrorCode error;
    const auto remote = socket_.remote_endpoint(error);
    if (!error) client_ = remote.address().to_string();
    socket_.set_option(tcp::no_delay(true), error);
  }
  ~Session() { --shared_.connections; }

  template <class Work>
  void post(Work work) {
    net::post(socket_.get_executor(),
              [self = shared_from_this(), work = std::move(work)]() mutable { work(*self); });
  }

  void start() {
    tick();
    if (shared_.connections > shared_.limits.connections)
      return refuse(503, "there are too many connections");
    read_header();
  }
  void stop() {
    if (!responding_) close();
  }

  bool is_gone() const { return gone_; }

  // Of the response that is the `which`th.
  void begin(std::uint64_t which, HttpHead head, std::optional<std::string> body) {
    if (which != which_ || begun_) return;
    begun_ = true;
    http::response<http::string_body> response;
    response.result(static_cast<unsigned>(head.status));
    response.version(version_);
    response.set(http::field::server, "agentcompile");
    response.set(http::field::content_type, head.type);
    for (const auto& [name, value] : head.fields) response.set(name, value);
    keeps_ = keeps_ && !shared_.stopping;
    chunked_ = !body && version_ >= 11;
    if (!body && !chunked_) keeps_ = false;  // the end of the connection is the end of the response
    response.keep_alive(keeps_);
    if (chunked_) response.chunked(true);
    if (body) response.content_length(body->size());
    std::ostringstream text;
    text << response.base();
    std::string bytes = text.str();
    if (body && !is_head_) bytes += *body;
    put(std::move(bytes));
  }
  void write(std::uint64_t which, const std::string& piece) {
    if (which != which_ || !begun_ || piece.empty() || is_head_) return;
    put(chunked_ ? fmt::format("{:x}\r\n{}\r\n", piece.size(), piece) : piece);
  }
  void end(std::uint64_t which) {
    if (which != which_) return;
    if (!begun_) begin(which, {.status = 500}, shared_.refusal(500, "there was no answer"));
    if (chunked_ && !is_head_) put("0\r\n\r\n");
    ended_ = true;
    if (!writing_) finish();
  }

 private:
  // Closes the connection when a deadline is over.
  void tick() {
    timer_.expires_after(kTick);
    timer_.async_wait([self = shared_from_this()](ErrorCode error) {
      if (error || !self->socket_.is_open()) return;
      const auto now = Clock::now();
      if (now > self->read_until_ || now > self->write_until_) return self->close();
      self->tick();
    });
  }
  void close() {
    gone_ = true;
    ErrorCode error;
    socket_.shutdown(tcp::socket::shutdown_both, error);
    socket_.close(error);
    timer_.cancel(error);
  }

  void read_header() {
    if (shared_.stopping) return close();
    ++which_;
    begun_ = ended_ = chunked_ = is_head_ = false;
    keeps_ = true;
    version_ = 11;
    read_until_ = Clock::now() + shared_.limits.to_read;
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(shared_.limits.header_bytes));
    parser_->body_limit(shared_.limits.body_bytes);
    http::async_read_header(socket_, buffer_, *parser_,
                            [self = shared_from_this()](ErrorCode error, std::size_t) {
                              if (error) return self->not_read(error);
                              self->read_body();
                            });
  }
  void read_body() {
    if (const auto length = parser_->content_length();
        length && *length > shared_.limits.body_bytes)
      return not_read(http::error::body_limit);
    const auto& head = parser_->get();
    version_ = head.version();
    if (beast::iequals(head[http::field::expect], "100-continue")) {
      static const std::string go_on = "HTTP/1.1 100 Continue\r\n\r\n";
      net::async_write(socket_, net::buffer(go_on),
                       [self = shared_from_this()](ErrorCode error, std::size_t) {
                         if (error) return self->close();
                         self->read_rest();
                       });
      return;
    }
    read_rest();
  }
  void read_rest() {
    // As much is read at once as the buffer has room for.
    buffer_.reserve(
        std::min<std::size_t>(parser_->content_length().value_or(kMostRead), kMostRead));
    http::async_read(socket_, buffer_, *parser_,
                     [self = shared_from_this()](ErrorCode error, std::size_t) {
                       if (error) return self->not_read(error);
                       self->handle();
                     });
  }
  void not_read(ErrorCode error) {
    const HttpLimits& limits = shared_.limits;
    if (error == http::error::body_limit)
      return refuse(413, fmt::format("the body has more than {} bytes", limits.body_bytes));
    if (error == http::error::header_limit)
      return refuse(431, fmt::format("the header has more than {} bytes", limits.header_bytes));
    if (error.category() == http::make_error_code(http::error::bad_value).category() &&
        error != http::error::end_of_stream && error != http::error::partial_message)
      return refuse(400, fmt::format("this is no HTTP request: {}", error.message()));
    close();
  }
  // Answers, closes, and reads what still comes: a client that is sending reads no answer else.
  void refuse(int status, const std::string& message) {
    responding_ = ignores_ = true;
    keeps_ = false;
    HttpHead head{.status = status};
    if (status == 503) head.fields.emplace_back("Retry-After", kRetryAfter);
    begin(which_, std::move(head), shared_.refusal(status, message));
    end(which_);
  }

  void handle();
  // While there is an answer to wait for: sees that the client is gone, and keeps what it sends.
  void watch() {
    watching_ = true;
    socket_.async_read_some(buffer_.prepare(4096),
                            [self = shared_from_this()](ErrorCode error, std::size_t bytes) {
                              self->watching_ = false;
                              if (error == net::error::operation_aborted && !self->responding_)
                                return self->read_header();  // by finish()
                              if (error) return self->close();
                              self->buffer_.commit(bytes);
                              if (!self->responding_) return self->read_header();
                              if (self->buffer_.size() < kMostAhead) self->watch();
                            });
  }

  void put(std::string bytes) {
    if (gone_) return;
    unsent_ += bytes.size();
    if (unsent_ > shared_.limits.unsent_bytes) return close();
    out_.push_back(std::move(bytes));
    if (!writing_) flush();
  }
  void flush() {
    writing_ = true;
    sending_.clear();
    for (std::string& piece : out_) sending_ += piece;
    out_.clear();
    write_until_ = Clock::now() + shared_.limits.to_write;
    net::async_write(socket_, net::buffer(sending_),
                     [self = shared_from_this()](ErrorCode error, std::size_t) {
                       self->writing_ = false;
                       self->write_until_ = Clock::time_point::max();
                       if (error) return self->close();
                       self->unsent_ -= self->sending_.size();
                       if (!self->out_.empty()) return self->flush();
                       if (self->ended_) self->finish();
                     });
  }
  void finish() {
    if (gone_) return;
    if (ignores_) {
      ErrorCode error;
      socket_.shutdown(tcp::socket::shutdown_send, error);
      read_until_ = Clock::now() + kMostIgnoring;
      return ignore();
    }
    if (!keeps_ || shared_.stopping) return close();
    responding_ = false;
    read_until_ = Clock::now() + shared_.limits.to_read;
    if (!watching_) return read_header();
    // The next request may be here already.
    ErrorCode error;
    socket_.cancel(error);
  }
  void ignore() {
    socket_.async_read_some(buffer_.prepare(1 << 16),
                            [self = shared_from_this()](ErrorCode error, std::size_t bytes) {
                              self->ignored_ += bytes;
                              if (error || self->ignored_ > kMostIgnored) return self->close();
                              self->ignore();
                            });
  }

  Shared& shared_;
  tcp::socket socket_;
  net::steady_timer timer_;
  std::string client_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  Clock::time_point read_until_ = Clock::time_point::max(), write_until_ = Clock::time_point::max();
  std::deque<std::string> out_;
  std::string sending_;
  std::size_t unsent_ = 0, ignored_ = 0;
  std::uint64_t which_ = 0;  // of the requests
  unsigned version_ = 11;
  bool responding_ = false, watching_ = false, writing_ = false, ignores_ = false;
  bool begun_ = false, ended_ = false, chunked_ = false, keeps_ = true, is_head_ = false;
  std::atomic<bool> gone_ = false;
};

class Response : public HttpResponse {
 public:
  Response(std::shared_ptr<Session> session, std::uint64_t which)
      : session_(std::move(session)), which_(which) {}
  ~Response() override {
    if (!ended_) end();
  }
  void send(HttpHead head, std::string body) override {
    ended_ = true;
    session_->post(
        [which = which_, head = std::move(head), body = std::move(body)](Session& session) mutable {
          session.begin(which, head, body);
          session.end(which);
        });
  }
  void begin(HttpHead head) override {
    session_->post([which = which_, head = std::move(head)](Session& session) {
      session.begin(which, head, std::nullopt);
    });
  }
  void write(std::string piece) override {
    session_->post([which = which_, piece = std::move(piece)](Session& session) {
      session.write(which, piece);
    });
  }
  void end() override {
    ended_ = true;
    session_->post([which = which_](Session& session) { session.end(which); });
  }
  bool is_gone() const override { return session_->is_gone(); }

 private:
  const std::shared_ptr<Session> session_;
  const std::uint64_t which_;
  bool ended_ = false;
};

void Session::handle() {
  http::request<http::string_body> message = parser_->release();
  read_until_ = Clock::time_point::max();
  responding_ = true;
  keeps_ = message.keep_alive();
  is_head_ = message.method() == http::verb::head;
  HttpRequest request;
  const auto text = [](beast::string_view view) { return std::string(view.data(), view.size()); };
  request.method = text(message.method_string());
  request.path = text(message.target().substr(0, message.target().find('?')));
  request.content_type = text(message[http::field::content_type]);
  request.content_encoding = text(message[http::field::content_encoding]);
  request.authorization = text(message[http::field::authorization]);
  request.api_key = text(message["x-api-key"]);
  request.client = client_;
  request.body = std::move(message.body());
  parser_.reset();
  if (buffer_.size() < kMostAhead) watch();
  shared_.handler(std::move(request), std::make_shared<Response>(shared_from_this(), which_));
}

}  // namespace

struct HttpServer::Impl : Shared {
  std::optional<tcp::acceptor> acceptor;
  std::vector<std::thread> threads;

  void accept() {
    acceptor->async_accept(net::make_strand(io), [this](ErrorCode error, tcp::socket socket) {
      if (stopping) return;
      if (error) {  // no file descriptors are left, for one
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        return accept();
      }
      const auto session = std::make_shared<Session>(*this, std::move(socket));
      {
        const std::lock_guard lock(mutex);
        std::erase_if(sessions, [](const auto& each) { return each.expired(); });
        sessions.insert(session);
      }
      session->post([](Session& self) { self.start(); });
      accept();
    });
  }
};

HttpServer::HttpServer(const std::string& address, int port, HttpLimits limits, Handler handler,
                       Refusal refusal)
    : impl_(std::make_unique<Impl>()) {
  impl_->limits = limits;
  impl_->handler = std::move(handler);
  impl_->refusal = std::move(refusal);
  try {
    tcp::resolver resolver(impl_->io);
    const tcp::endpoint endpoint =
        resolver.resolve(address, std::to_string(port), tcp::resolver::passive)->endpoint();
    impl_->acceptor.emplace(impl_->io, endpoint, true);
  } catch (const boost::system::system_error& error) {
    job_failed("cannot listen at {} port {}: {}", address, port, error.code().message());
  }
  impl_->accept();
  for (int i = 0; i < limits.threads; ++i)
    impl_->threads.emplace_back([impl = impl_.get()] { impl->io.run(); });
}

HttpServer::~HttpServer() { stop(); }

int HttpServer::port() const { return impl_->acceptor->local_endpoint().port(); }

void HttpServer::stop() {
  if (impl_->stopping.exchange(true)) return;
  net::post(impl_->io, [impl = impl_.get()] {
    ErrorCode error;
    impl->acceptor->close(error);
  });
  {
    const std::lock_guard lock(impl_->mutex);
    for (const auto& each : impl_->sessions)
      if (const auto session = each.lock()) session->post([](Session& self) { self.stop(); });
  }
  for (std::thread& thread : impl_->threads) thread.join();
}

}  // namespace ac::serve
