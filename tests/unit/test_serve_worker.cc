// What server and worker say to each other, and workers that do not do as they should.
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <limits>
#include <map>
#include <thread>

#include "serve/queue.h"
#include "serve/worker.h"
#include "tests/unit/contains.h"
#include "tests/unit/expect_error.h"

namespace ac::serve {
namespace {

using test::contains;
using test::error_of;
using namespace std::chrono_literals;

// A worker that is a script of /bin/sh, whose stdin is the socket.
std::unique_ptr<Worker> scripted(const std::string& script) {
  return std::make_unique<Worker>(std::vector<std::string>{"/bin/sh", "-c", script});
}

// A message as such a script prints it.
std::string say(const FromWorker& message) {
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  Channel(ends[0]).send(json_of(message));
  std::string command = "printf '";
  for (unsigned char byte = 0; read(ends[1], &byte, 1) == 1;)
    command += fmt::format("\\{:03o}", byte);
  close(ends[1]);
  return command + "' >&0; ";
}
const std::string kHeard = "head -c 1 >/dev/null; ";

TextRequest some_request() {
  TextRequest request;
  request.ids = {1};
  return request;
}

std::string answered(std::uint64_t number, const std::string& finish,
                     const std::string& stopped_by = {}) {
  Answered message;
  message.answer.finish = finish;
  message.answer.stopped_by = stopped_by;
  message.cached_tokens = 4;
  message.number = number;
  return say(message);
}
std::string piece(std::uint64_t number, std::int64_t token) {
  return say(Piece{{.text = "a", .token = token, .logprobs = {}}, number});
}
// Waits until so many requests have come, of which kHeard has the first byte.
std::string heard_all(std::size_t requests) {
  std::string bytes;
  Json::to_cbor(json_of(ToWorker(Ask{some_request(), 1})), bytes);
  return fmt::format("head -c {} >/dev/null; ",
                     requests * (sizeof(std::uint32_t) + bytes.size()) - 1);
}
std::string begun(std::uint64_t number) { return say(Begun{number}); }

// Why the worker was lost, and whether it had begun the request before.
std::pair<std::string, bool> lost(Worker& worker) {
  bool has_begun = false;
  try {
    worker.ask(some_request(), 1);
    for (;;)
      if (const auto message = worker.hear()) has_begun |= std::holds_alternative<Begun>(*message);
  } catch (const WorkerLost& error) {
    return {error.what(), has_begun};
  }
}

// Hears answers to its requests, in a queue's thread.
class Hearing : public Listener {
 public:
  bool waits() const override { return !left; }
  bool wants(std::size_t answer) const override { return tokens(answer).size() < most; }
  void piece(std::size_t answer, const TextPiece& piece) override {
    heard[answer].push_back(piece.token);
  }
  void answered(std::size_t answer, const TextAnswer& whole) override { answers[answer] = whole; }
  void done() override { ++dones; }
  void failed(const Error& error) override { errors.emplace_back(error.what()); }
  std::vector<std::int64_t> tokens(std::size_t answer) const {
    const auto known = heard.find(answer);
    return known == heard.end() ? std::vector<std::int64_t>{} : known->second;
  }

  std::size_t most = 100;
  bool left = false;
  std::map<std::size_t, std::vector<std::int64_t>> heard;
  std::map<std::size_t, TextAnswer> answers;
  int dones = 0;
  std::vector<std::string> errors;
};

// A queue over workers that are these scripts, one after the other.
struct Queued {
  Queued(std::vector<std::string> of, std::size_t slots)
      : scripts(std::move(of)),
        queue(
            [this](std::size_t, std::int64_t piece) {
              pieces.push_back(piece);
              return scripted(say(Loaded{8, "fp_1", 16}) + kHeard + scripts.at(started++));
            },
            metrics, 10, slots) {}

  std::shared_ptr<Hearing> add(std::size_t requests) {
    const auto hearing = std::make_shared<Hearing>();
    CHECK(queue.add(0, std::vector<TextRequest>(requests, some_request()), hearing) ==
          Queue::Added::yes);
    return hearing;
  }
  // Until all have their answers.
  void work() {
    queue.close();
    queue.load(0);
    queue.work();
  }

  std::vector<std::string> scripts;
  std::size_t started = 0;
  std::vector<std::int64_t> pieces = {};
  Metrics metrics;
  Queue queue;
};

}  // namespace

TEST_CASE("serve worker: messages arrive as they were sent, one by one") {
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  Channel one(ends[0]);
  Channel other(ends[1]);
  CHECK(!other.receive(1ms));
  CHECK(!other.is_readable());
  const std::vector<std::string> texts{"", "a", std::string(300'000, 'x')};
  for (const std::string& text : texts) {
    if (text.size() > 100'000) {  // more than the socket holds
      const pid_t child = fork();
      if (child == 0) {
        one.send(Json(text));
        _exit(0);
      }
    } else {
      one.send(Json(text));
    }
  }
  CHECK(other.is_readable());
  for (const std::string& text : texts) CHECK(*other.receive() == Json(text));
  CHECK(!other.has_ended());
  one.close_sending();
  CHECK(!other.receive());
  CHECK(other.has_ended());
}

TEST_CASE("serve worker: a request is the same on the other side") {
  TextRequest request{.ids = {5, 70'000},
                      .continues = true,
                      .max_new_tokens = 9,
                      .sampling = {.temperature = 0.1,
                                   .top_k = 3,
                                   .top_p = 0.7,
                                   .min_p = 0.01,
                                   .seed = std::numeric_limits<std::uint64_t>::max()},
                      .penalties = {.repeat = 1.1, .presence = -0.3, .frequency = 2},
                      .bias = {{7, -100}, {8, 0.1}},
                      .stop = {"é", ""},
                      .shown = {3, 4},
                      .logprobs = 0,
                      .reuse = Reuse::exact};
  request.rules.source = std::make_shared<const grammar::Source>(
      grammar::Source{.whole = {grammar::Form::Kind::lark, "start: @p0", "tools"},
                      .parts = {{grammar::Form::Kind::regex, "a+", "there"}}});
  request.rules.trigger = 11;
  request.rules.reasoning = grammar::Rules::Reasoning::opened;
  request.rules.opens = 12, request.rules.closes = 13;
  const Json sent = json_of(ToWorker(Ask{request, 21}));
  const auto got = std::get<Ask>(to_worker(sent)).request;
  CHECK(std::get<Ask>(to_worker(sent)).number == 21);
  CHECK(json_of(ToWorker(Ask{got, 21})) == sent);
  CHECK(got.ids == request.ids);
  CHECK(got.continues);
  CHECK(got.max_new_tokens == 9);
  CHECK(got.sampling == request.sampling);
  CHECK(got.penalties == request.penalties);
  CHECK(got.bias == request.bias);
  CHECK(got.stop == request.stop);
  CHECK(got.shown == request.shown);
  CHECK(got.logprobs == 0);
  CHECK(got.reuse == Reuse::exact);
  CHECK(got.rules.source->whole.text == "start: @p0");
  CHECK(got.rules.source->parts.at(0).kind == grammar::Form::Kind::regex);
  CHECK(got.rules.trigger == 11);
  CHECK(got.rules.reasoning == grammar::Rules::Reasoning::opened);
  CHECK(got.rules.opens == 12);
  CHECK(got.rules.closes == 13);
  const auto least = std::get<Ask>(to_worker(json_of(ToWorker(Ask{})))).request;
  CHECK(!least.max_new_tokens);
  CHECK(!least.logprobs);
  CHECK(!least.rules.source);
  CHECK(std::get<Stop>(to_worker(json_of(ToWorker(Stop{7})))).number == 7);
}

TEST_CASE("serve worker: numbers of an answer keep their bits") {
  const double infinite = -std::numeric_limits<double>::infinity();
  const TextPiece piece{.text = "é\n",
                        .token = 3,
                        .logprobs = TokenLogprobs{.own = -0.1, .likeliest = {{9, infinite}}}};
  std::string bytes;
  Json::to_cbor(json_of(FromWorker(Piece{piece, 9})), bytes);
  const auto whole = std::get<Piece>(from_worker(Json::from_cbor(bytes)));
  const TextPiece& got = whole.piece;
  CHECK(whole.number == 9);
  CHECK(got.text == "é\n");
  CHECK(got.token == 3);
  CHECK(got.logprobs->own == -0.1);
  CHECK(got.logprobs->likeliest == piece.logprobs->likeliest);
  PrefixCounts counts;
  counts.places[2] = {.tokens = 1, .evictions = 2, .bytes = 3, .room = std::size_t{4} << 40};
  counts.damaged_files = 5;
  const auto kept = std::get<Kept>(from_worker(json_of(FromWorker(Kept{counts}))));
  CHECK(kept.counts->places[2].room == std::size_t{4} << 40);
  CHECK(kept.counts->damaged_files == 5);
  CHECK(!std::get<Kept>(from_worker(json_of(FromWorker(Kept{})))).counts);
}

TEST_CASE("serve worker: what is no message is an error") {
  for (const Json& json : {Json(3), Json::array(), Json::array({9, 9}), Json::array({2, "x"}),
                           Json::array({5, Json::array({"a", "b"})})})
    CHECK(!error_of(Fault::job_failed, [&] { from_worker(json); }).empty());
  CHECK(!error_of(Fault::job_failed, [] { to_worker(Json::array({0, Json::array()})); }).empty());
}

TEST_CASE("serve worker: one that says why it cannot load is heard") {
  const auto worker = scripted(say(Failed{Fault::bad_input, "no such weights"}));
  CHECK(error_of(Fault::bad_input, [&] { worker->wait_until_loaded(); }) == "no such weights");
}

TEST_CASE("serve worker: one that ends, loses its device or says nonsense is lost") {
  const std::string loaded = say(Loaded{8, "fp_1"});
  CHECK(contains(error_of(Fault::job_failed, [] { scripted("exit 3")->wait_until_loaded(); }),
                 "ended with exit code 3"));
  const auto after = [&](const std::string& then) {
    const auto worker = scripted(loaded + kHeard + then);
    worker->wait_until_loaded();
    CHECK(worker->max_context() == 8);
    CHECK(worker->fingerprint() == "fp_1");
    return lost(*worker);
  };
  CHECK(after("kill -SEGV $$") ==
        std::pair(std::string("the process that runs the model crashed (SIGSEGV)"), false));
  // It goes on: it is ended.
  CHECK(after(begun(1) + say(Failed{Fault::device_lost, "GPU 0 is lost", 1}) + "sleep 100") ==
        std::pair(std::string("the device failed: GPU 0 is lost"), true));
  CHECK(contains(after("printf '\\377\\377\\377\\377....' >&0; sleep 100").first, "no message"));
  CHECK(contains(after("printf '\\001\\000\\000\\000\\377' >&0; sleep 100").first, "no message"));
}

TEST_CASE("queue: an answer that fails leaves the worker for the next") {
  Queued queued({begun(1) + say(Failed{Fault::bad_input, "too ambiguous", 1}) + heard_all(2) +
                 begun(2) + piece(2, 7) + answered(2, "stop", "x") + "sleep 1"},
                1);
  const auto first = queued.add(1), second = queued.add(1);
  queued.work();
  CHECK(first->errors == std::vector<std::string>{"too ambiguous"});
  CHECK(first->dones == 0);
  CHECK(second->errors.empty());
  CHECK(second->dones == 1);
  CHECK(second->tokens(0) == std::vector<std::int64_t>{7});
  CHECK(second->answers[0].finish == "stop");
  CHECK(second->answers[0].stopped_by == "x");
  CHECK(queued.started == 1);
}

TEST_CASE("queue: what comes after somebody has enough is not given on") {
  Queued queued(
      {begun(1) + piece(1, 1) + piece(1, 2) + piece(1, 3) + answered(1, "stop", "x") + "sleep 1"},
      1);
  const auto one = queued.add(1);
  one->most = 2;
  queued.work();
  CHECK(one->tokens(0) == std::vector<std::int64_t>{1, 2});
  CHECK(one->answers[0].finish == "interrupted");
  CHECK(one->answers[0].stopped_by.empty());
  CHECK(one->dones == 1);
}

TEST_CASE("queue: answers that come at once go to those who have asked, two of one client too") {
  // The third request is asked when there is a slot for it.
  Queued queued({begun(1) + begun(2) + piece(2, 20) + piece(1, 10) + piece(2, 21) +
                 answered(2, "length") + heard_all(3) + begun(3) + piece(1, 11) + piece(3, 30) +
                 answered(3, "stop") + answered(1, "stop") + "sleep 1"},
                2);
  const auto one = queued.add(1), two = queued.add(2);
  queued.work();
  CHECK(one->tokens(0) == std::vector<std::int64_t>{10, 11});
  CHECK(two->tokens(0) == std::vector<std::int64_t>{20, 21});
  CHECK(two->tokens(1) == std::vector<std::int64_t>{30});
  CHECK(two->answers[0].finish == "length");
  CHECK(two->answers[1].finish == "stop");
  CHECK(one->dones == 1);
  CHECK(two->dones == 1);
  CHECK(queued.metrics.text().find("agentcompile_slots_in_use 0\n") != std::string::npos);
  CHECK(queued.metrics.text().find("agentcompile_kv_in_use_ratio 0\n") != std::string::npos);
}

TEST_CASE("queue: with a worker all is lost that it has begun, and the next one answers the rest") {
  Queued queued({begun(1) + piece(1, 10) + begun(3) + heard_all(4) + "kill -KILL $$",
                 begun(5) + piece(5, 20) + answered(5, "stop") + begun(6) + piece(6, 40) +
                     answered(6, "stop") + "sleep 1"},
                4);
  const auto one = queued.add(1), two = queued.add(1), three = queued.add(1), four = queued.add(1);
  queued.work();
  for (const auto& lost : {one, three}) {
    CHECK(lost->dones == 0);
    CHECK(lost->errors.size() == 1);
    CHECK(contains(lost->errors.at(0), "this request is lost, and others are answered"));
  }
  CHECK(one->tokens(0) == std::vector<std::int64_t>{10});
  CHECK(two->tokens(0) == std::vector<std::int64_t>{20});
  CHECK(four->tokens(0) == std::vector<std::int64_t>{40});
  CHECK(two->dones == 1);
  CHECK(four->dones == 1);
  CHECK(queued.pieces == std::vector<std::int64_t>{0, 16});
}

}  // namespace ac::serve
