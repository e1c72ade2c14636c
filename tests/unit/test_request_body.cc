// The body of a request, held against the tree that a parser makes of all of it.
#include "api/request_body.h"

#include <doctest/doctest.h>

#include <random>

#include "ask/packed_ids.h"
#include "base/error.h"
#include "contains.h"

namespace ac::test {
namespace {

constexpr JsonLimits kLimits{.bytes = 400, .depth = 4, .values = 40};

bool is_packed(const std::string& text) {
  const Json body = api::read_body(text, kLimits);
  return body.is_object() && body.contains("prompt") && body["prompt"].is_binary();
}

// With a value for each id; what is wrong with it, if it is an error.
std::string read(const std::string& text) {
  try {
    Json body = api::read_body(text, kLimits);
    if (body.is_object() && body.contains("prompt") && body["prompt"].is_binary())
      body["prompt"] = unpacked(body["prompt"]);
    return body.dump(-1, ' ', true);
  } catch (const Error& error) {
    return error.what();
  }
}
std::string parsed(const std::string& text) {
  try {
    return parse_json(text, "the body", kLimits).dump(-1, ' ', true);
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("request body: ids of a prompt are one value, and all else is as it was") {
  CHECK(is_packed(R"({"prompt":[0,1,16777215]})"));
  CHECK(is_packed(R"( {"a\"": "\\", "b": [{"c": "]"}], "prompt" : [ 1 ,2,
    3 ] , "d": "x"} )"));
  for (const char* const text :
       {R"({"prompt": []})", R"({"prompt": [1, -2]})", R"({"prompt": [1, 2.0]})",
        R"({"prompt": [1, 2e0]})", R"({"prompt": [1, 16777216]})", R"({"prompt": [[1], [2]]})",
        R"({"prompt": [1, "a"]})", R"({"prompt": "[1, 2]"})", R"({"prompts": [1, 2]})",
        R"({"a": {"prompt": [1, 2]}})", R"([{"prompt": [1, 2]}])", R"({"a": "prompt", "b": [1]})",
        R"({"a": "\"prompt\": [1, 2]"})", R"({"prompt": [18446744073709551617]})"}) {
    CAPTURE(text);
    CHECK(!is_packed(text));
    CHECK(read(text) == parsed(text));
  }
  for (const char* const text :
       {R"({"prompt": [1, 02]})", R"({"prompt": [1, 2)", R"({"prompt": [1,, 2]})",
        R"({"prompt": [1, 2,]})", R"({"prompt": [1], "prompt": [2]})", R"({"prompt": [1, 2]} x)",
        R"(["prompt": [1, 2]])", R"({"prompt": [1 2]})", R"({"prompt": [1], "a": [[[[0]]]]})",
        R"({"prompt": [1], "\u0070rompt": 2})", "", "\"", "\"prompt\":", "{\"prompt\":[1],\"\\"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(api::read_body(text, kLimits), Error);
    CHECK(read(text) == parsed(text));
  }
}

TEST_CASE("request body: ids count as values") {
  const auto of = [](int ids) {
    return Json{{"prompt", std::vector<int>(static_cast<std::size_t>(ids), 7)}, {"a", 1}}.dump();
  };
  CHECK(is_packed(of(37)));  // an object, a list, and 1
  CHECK(read(of(37)) == parsed(of(37)));
  CHECK(contains(read(of(38)), "more than 40 values"));
  CHECK(contains(read(of(100)), "more than 40 values"));
  const std::string spaces(400, ' ');
  CHECK(contains(read("{\"prompt\": [1," + spaces + "2]}"), "more than the limit of 400"));
}

TEST_CASE("request body: random texts are read as a parser reads them") {
  const std::vector<std::string> parts = {"{",
                                          "}",
                                          "[",
                                          "]",
                                          ",",
                                          ":",
                                          "\"prompt\"",
                                          "\"a\"",
                                          "\"",
                                          "\\",
                                          "1",
                                          "0",
                                          "23",
                                          "-",
                                          ".5",
                                          " ",
                                          "[1,2]",
                                          "[1, 2 ]",
                                          "null",
                                          "{\"prompt\":",
                                          "\"prompt\":[",
                                          "\"\\\"\"",
                                          "16777216"};
  std::mt19937 random(3);
  int packed = 0, errors = 0;
  for (int round = 0; round < 30'000; ++round) {
    std::string text =
        R"({"a": [1, {"prompt": [3]}, "\"prompt\": ["], "prompt": [1, 2, 30], "b": 1})";
    if (round % 2) text.clear();
    for (auto more = random() % 6; more > 0; --more) {
      const std::size_t at = random() % (text.size() + 1);
      if (random() % 3 == 0) text.erase(at, random() % 4);
      text.insert(std::min(at, text.size()), parts[random() % parts.size()]);
    }
    CAPTURE(text);
    const std::string wanted = parsed(text);
    CHECK(read(text) == wanted);
    errors += wanted.starts_with("the body");
    packed += !wanted.starts_with("the body") && is_packed(text);
  }
  CHECK(packed > 1000);
  CHECK(errors > 1000);
}

}  // namespace ac::test
