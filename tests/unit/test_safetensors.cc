#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/safetensors.h"
#include "expect_error.h"
#include "safetensors_writer.h"

using namespace ac;
using namespace ac::test;

namespace {

std::string small_file() {
  return safetensors_bytes({
      {"weight", DType::f32, {2, 3}, bytes_of_values<float>({1, 2, 3, 4, 5, 6})},
      {"empty", DType::bf16, {0, 4}, ""},
      {"flag", DType::boolean, {}, std::string(1, '\1')},
      {"ids", DType::i64, {2}, bytes_of_values<std::int64_t>({-1, 7})},
  });
}

void parse(std::string_view file) { SafetensorsFile::from_bytes(as_bytes(file), "x.safetensors"); }
void parse(std::string_view header, std::string_view data) {
  parse(safetensors_bytes(header, data));
}

// Uses every tensor the way a reader would; the sanitizers see a span that leaves the file.
unsigned touch_everything(std::string_view bytes) {
  const auto file = SafetensorsFile::from_bytes(as_bytes(bytes), "x.safetensors");
  unsigned sum = 0;
  for (const SafetensorsEntry& entry : file.entries())
    if (entry.dtype)
      for (const std::byte byte : file.view(entry).bytes) sum += std::to_integer<unsigned>(byte);
  return sum;
}

}  // namespace

TEST_CASE("a right file gives its tensors") {
  const std::string bytes = small_file();
  auto moved_from = SafetensorsFile::from_bytes(as_bytes(bytes), "x.safetensors");
  const SafetensorsFile file = std::move(moved_from);
  REQUIRE(file.entries().size() == 4);
  REQUIRE(file.find("weight"));
  CHECK(file.find("weights") == nullptr);
  const TensorView weight = file.view(*file.find("weight"));
  CHECK(weight.dtype == DType::f32);
  CHECK(weight.shape == std::vector<std::int64_t>{2, 3});
  CHECK(weight.file == "x.safetensors");
  REQUIRE(weight.bytes.size() == 24);
  CHECK(load_element(DType::f32, weight.bytes.data() + 20) == 6);
  CHECK(file.view(*file.find("empty")).bytes.empty());
  CHECK(file.view(*file.find("flag")).bytes.size() == 1);
  CHECK(load_element(DType::i64, file.view(*file.find("ids")).bytes.data()) == -1);
}

TEST_CASE("a file on disk is mapped") {
  const TemporaryDirectory folder;
  write_safetensors(folder / "model.safetensors", {{"a", DType::i32, {1}, "\1\2\3\4"}});
  SafetensorsFile file(folder / "model.safetensors");
  file = SafetensorsFile(folder / "model.safetensors");
  CHECK(load_element(DType::i32, file.view(file.entries()[0]).bytes.data()) == 0x04030201);
  CHECK_BAD_INPUT(SafetensorsFile(folder / "none.safetensors"), "none.safetensors", "No such file");
  CHECK_BAD_INPUT(SafetensorsFile(folder.path()), "not a regular file");
  write_file_atomically(folder / "empty.safetensors", "");
  CHECK_BAD_INPUT(SafetensorsFile(folder / "empty.safetensors"), "empty.safetensors", "too short");
}

TEST_CASE("padding and metadata as the reference implementation writes them") {
  parse("{}        ", "");
  parse(R"({"__metadata__":{"format":"pt"}})", "");
  CHECK_BAD_INPUT(parse(R"({"__metadata__":{"format":1}})", ""), "__metadata__", "format");
  CHECK_BAD_INPUT(parse(R"({"__metadata__":[]})", ""), "__metadata__");
}

TEST_CASE("every truncation is an error") {
  const std::string whole = small_file();
  for (std::size_t size = 0; size < whole.size(); ++size)
    CHECK_BAD_INPUT(parse(whole.substr(0, size)), "x.safetensors");
}

TEST_CASE("header lengths that lie") {
  const auto with_length = [](std::uint64_t length) {
    std::string file = small_file();
    for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<char>((length >> (8 * i)) & 0xff);
    return file;
  };
  CHECK_BAD_INPUT(parse(with_length(~0ull)), "18446744073709551615", "limit");
  CHECK_BAD_INPUT(parse(with_length(100'000'001)), "100000001", "limit");
  CHECK_BAD_INPUT(parse(with_length(100'000'000)), "passes the end of the file");
  CHECK_BAD_INPUT(parse(with_length(small_file().size() - 7)), "passes the end of the file");
  CHECK_BAD_INPUT(parse(with_length(0)), "must start with '{'");
  CHECK_BAD_INPUT(parse(with_length(5)), "not valid JSON");
}

TEST_CASE("headers that are not the JSON they should be") {
  CHECK_BAD_INPUT(parse("{", ""), "x.safetensors", "not valid JSON");
  CHECK_BAD_INPUT(parse("[]", ""), "must start with");
  CHECK_BAD_INPUT(parse(" {}", ""), "must start with");
  CHECK_BAD_INPUT(parse("{\"\xff\xfe\":1}", ""), "not valid JSON");
  CHECK_BAD_INPUT(parse("{}x", ""), "not valid JSON");
  CHECK_BAD_INPUT(parse("{\"a\":" + std::string(100'000, '['), ""), "nested deeper");
  CHECK_BAD_INPUT(parse(R"({"a":1})", ""), "\"a\"", "object");
  std::string many = "{\"a\":{\"shape\":[0";
  for (int i = 0; i < 4'000'000; ++i) many += ",0";
  CHECK_BAD_INPUT(parse(many, ""), "more than 4000000 values");
}

TEST_CASE("entries that lie") {
  const auto entry = [](std::string_view dtype, std::string_view shape, std::string_view offsets) {
    return fmt::format(R"({{"w":{{"dtype":{},"shape":{},"data_offsets":{}}}}})", dtype, shape,
                       offsets);
  };
  const std::string four(4, '\0');
  parse(entry("\"F32\"", "[1]", "[0,4]"), four);

  struct Case {
    std::string_view dtype, shape, offsets, message;
  };
  for (const auto& [dtype, shape, offsets, message] : std::to_array<Case>({
           {"\"F31\"", "[1]", "[0,4]", "unknown dtype \"F31\""},
           {"7", "[1]", "[0,4]", "\"dtype\" must be a string"},
           {"\"F32\"", "1", "[0,4]", "\"shape\" must be an array"},
           {"\"F32\"", "[-1]", "[0,4]", "non-negative integers"},
           {"\"F32\"", "[1.0]", "[0,4]", "non-negative integers"},
           {"\"F32\"", "[1e0]", "[0,4]", "non-negative integers"},
           {"\"F32\"", "[\"1\"]", "[0,4]", "non-negative integers"},
           {"\"F32\"", "[null]", "[0,4]", "non-negative integers"},
           {"\"F32\"", "[[1]]", "[0,4]", "non-negative integers"},
           {"\"F32\"", "[18446744073709551616]", "[0,4]", "non-negative integers"},
           {"\"F32\"", "[18446744073709551615]", "[0,4]", "too large"},
           {"\"BOOL\"", "[2,9223372036854775807]", "[0,4]", "too large to address"},
           {"\"F32\"", "[4611686018427387905]", "[0,4]", "too large to address"},
           {"\"F32\"", "[2,18446744073709551614]", "[0,4]", "too large"},
           {"\"F32\"", "[2]", "[0,4]", "takes 8 bytes"},
           {"\"F32\"", "[0]", "[0,4]", "takes 0 bytes"},
           {"\"F4\"", "[7]", "[0,4]", "whole bytes"},
           {"\"F32\"", "[1]", "[4,0]", "run backwards"},
           {"\"F32\"", "[1]", "[0,8]", "pass the end"},
           {"\"F32\"", "[1]", "[0,18446744073709551615]", "pass the end"},
           {"\"F32\"", "[1]", "[18446744073709551612,18446744073709551615]", "pass the end"},
           {"\"F32\"", "[1]", "[-4,0]", "non-negative integers"},
           {"\"F32\"", "[1]", "[0.0,4.0]", "non-negative integers"},
           {"\"F32\"", "[1]", "[0]", "two numbers"},
           {"\"F32\"", "[1]", "[0,4,4]", "two numbers"},
           {"\"F32\"", "[1]", "{}", "must be an array"},
       }))
    CHECK_BAD_INPUT(parse(entry(dtype, shape, offsets), four), "x.safetensors", "\"w\"",
                    std::string(message));

  CHECK_BAD_INPUT(parse(R"({"w":{"shape":[1],"data_offsets":[0,4]}})", four), "\"w\"", "dtype");
  CHECK_BAD_INPUT(parse(R"({"w":{"dtype":"F32","data_offsets":[0,4]}})", four), "\"w\"", "shape");
  CHECK_BAD_INPUT(parse(R"({"w":{"dtype":"F32","shape":[1]}})", four), "\"w\"", "data_offsets");
}

TEST_CASE("data that is not tiled by the tensors") {
  const auto two = [](int begin, int end) {
    return fmt::format(R"({{"a":{{"dtype":"BOOL","shape":[4],"data_offsets":[0,4]}},
                            "b":{{"dtype":"BOOL","shape":[{}],"data_offsets":[{},{}]}}}})",
                       end - begin, begin, end);
  };
  parse(two(4, 8), std::string(8, '\0'));
  CHECK_BAD_INPUT(parse(two(3, 8), std::string(8, '\0')), "\"b\"", "overlapping");
  CHECK_BAD_INPUT(parse(two(0, 4), std::string(4, '\0')), "overlapping");
  CHECK_BAD_INPUT(parse(two(5, 8), std::string(8, '\0')), "\"b\"", "hole");
  CHECK_BAD_INPUT(parse(two(4, 8), std::string(9, '\0')), "1 bytes after the last tensor");
  CHECK_BAD_INPUT(parse("{}", "x"), "1 bytes after the last tensor");
  CHECK_BAD_INPUT(parse(R"({"a":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]},
                            "a":{"dtype":"BOOL","shape":[1],"data_offsets":[1,2]}})",
                        "xx"),
                  "duplicate key \"a\"");
}

TEST_CASE("a dtype we do not compute in fails only when its tensor is asked for") {
  const std::string bytes =
      safetensors_bytes(R"({"good":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},
                            "packed":{"dtype":"F4","shape":[2],"data_offsets":[2,3]},
                            "double":{"dtype":"F64","shape":[1],"data_offsets":[3,11]}})",
                        std::string(11, '\0'));
  const auto file = SafetensorsFile::from_bytes(as_bytes(bytes), "x.safetensors");
  CHECK(file.view(*file.find("good")).bytes.size() == 2);
  CHECK_BAD_INPUT(file.view(*file.find("double")), "x.safetensors", "\"double\"", "F64");
  CHECK_BAD_INPUT(file.view(*file.find("packed")), "\"packed\"", "F4");
}

TEST_CASE("hostile names cannot reach the terminal") {
  const std::string message = error_of(Fault::bad_input, [] { parse("{\"\\u001b[2J\":1}", ""); });
  CHECK(message.find('\x1b') == std::string::npos);
  CHECK(message.find("\\x1b[2J") != std::string::npos);
}

TEST_CASE("random damage gives a file or an error") {
  const std::string whole = small_file();
  std::mt19937 random(20240607);
  int refused = 0, accepted = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string damaged = whole;
    for (unsigned flips = 1 + random() % 4; flips > 0; --flips)
      damaged[random() % damaged.size()] ^= static_cast<char>(1u << (random() % 8));
    try {
      touch_everything(damaged);
      ++accepted;
    } catch (const Error& error) {
      CHECK(error.fault() == Fault::bad_input);
      ++refused;
    }
  }
  CHECK(refused > 1000);
  CHECK(accepted > 100);  // flips in the data or in a name
}

TEST_CASE("a file truncated while it is mapped") {
  const TemporaryDirectory folder;
  const auto path = folder / "model.safetensors";
  write_safetensors(path, {{"a", DType::boolean, {100'000}, std::string(100'000, '\1')}});
  const SafetensorsFile file(path);
  const TensorView early = file.view(file.entries()[0]);
  std::filesystem::resize_file(path, 4096);

  SUBCASE("is noticed when a tensor is asked for") {
    const std::string message = error_of(Fault::job_failed, [&] { file.view(file.entries()[0]); });
    CHECK(message.find("truncated") != std::string::npos);
  }
  SUBCASE("ends the program with a message when it is read") {
    std::array<int, 2> pipe_ends{};
    REQUIRE(pipe(pipe_ends.data()) == 0);
    const pid_t child = fork();
    if (child == 0) {
      dup2(pipe_ends[1], STDERR_FILENO);
      const volatile std::byte* last = &early.bytes.back();
      _exit(std::to_integer<int>(*last) + 100);
    }
    close(pipe_ends[1]);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 1);
    std::string message(1000, '\0');
    message.resize(static_cast<std::size_t>(
        std::max<ssize_t>(0, read(pipe_ends[0], message.data(), message.size()))));
    close(pipe_ends[0]);
    INFO(message);
    CHECK(message.find("model.safetensors: the file was truncated") != std::string::npos);
  }
}
