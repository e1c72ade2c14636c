// What server and worker say to each other, and workers that do not do as they should.
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <limits>

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

std::string answered(const std::string& finish, const std::string& stopped_by = {}) {
  Answered message;
  message.answer.finish = finish;
  message.answer.stopped_by = stopped_by;
  message.cached_tokens = 4;
  return say(message);
}
std::string piece(std::int64_t token) {
  return say(TextPiece{.text = "a", .token = token, .logprobs = {}});
}

std::string lost(Worker& worker) {
  try {
    worker.answer(some_request(), [](const TextPiece&) {}, [] { return false; });
  } catch (const WorkerLost& error) {
    return error.what();
  }
  return {};
}

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
  const Json sent = json_of(ToWorker(Ask{request}));
  const auto got = std::get<Ask>(to_worker(sent)).request;
  CHECK(json_of(ToWorker(Ask{got})) == sent);
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
  CHECK(std::holds_alternative<Stop>(to_worker(json_of(ToWorker(Stop{})))));
}

TEST_CASE("serve worker: numbers of an answer keep their bits") {
  const double infinite = -std::numeric_limits<double>::infinity();
  const TextPiece piece{.text = "é\n",
                        .token = 3,
                        .logprobs = TokenLogprobs{.own = -0.1, .likeliest = {{9, infinite}}}};
  std::string bytes;
  Json::to_cbor(json_of(FromWorker(piece)), bytes);
  const auto got = std::get<TextPiece>(from_worker(Json::from_cbor(bytes)));
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
    const std::string why = lost(*worker);
    return std::pair(why, worker->has_begun());
  };
  CHECK(after("kill -SEGV $$") ==
        std::pair(std::string("the process that runs the model crashed (SIGSEGV)"), false));
  // It goes on: it is ended.
  CHECK(after(say(Begun{}) + say(Failed{Fault::device_lost, "GPU 0 is lost"}) + "sleep 100") ==
        std::pair(std::string("the device failed: GPU 0 is lost"), true));
  CHECK(contains(after("printf '\\377\\377\\377\\377....' >&0; sleep 100").first, "no message"));
  CHECK(contains(after("printf '\\001\\000\\000\\000\\377' >&0; sleep 100").first, "no message"));
}

TEST_CASE("serve worker: an answer that fails leaves the worker for the next") {
  const auto worker = scripted(say(Loaded{8, "fp_1"}) + kHeard + say(Begun{}) +
                               say(Failed{Fault::bad_input, "too ambiguous"}) + say(Begun{}) +
                               piece(7) + answered("stop", "x") + "sleep 1");
  worker->wait_until_loaded();
  CHECK(error_of(Fault::bad_input, [&] { lost(*worker); }) == "too ambiguous");
  std::int64_t token = 0;
  const TextAnswer answer = worker->answer(
      some_request(), [&](const TextPiece& got) { token = got.token; }, [] { return false; });
  CHECK(token == 7);
  CHECK(answer.finish == "stop");
  CHECK(answer.stopped_by == "x");
}

TEST_CASE("serve worker: what comes after the client has left is not given on") {
  const auto worker = scripted(say(Loaded{8, "fp_1"}) + kHeard + say(Begun{}) + piece(1) +
                               piece(2) + piece(3) + answered("stop", "x"));
  worker->wait_until_loaded();
  std::vector<std::int64_t> tokens;
  const TextAnswer answer = worker->answer(
      some_request(), [&](const TextPiece& got) { tokens.push_back(got.token); },
      [&] { return tokens.size() == 2; });
  CHECK(tokens == std::vector<std::int64_t>{1, 2});
  CHECK(answer.finish == "interrupted");
  CHECK(answer.stopped_by.empty());
  CHECK(worker->cached_tokens() == 4);
}

}  // namespace ac::serve
