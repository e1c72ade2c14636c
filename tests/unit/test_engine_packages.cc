// What an engine makes of a package's files: weights and what is no package.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "base/files.h"
#include "program/traffic.h"
#include "tests/unit/contains.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/named_phase.h"
#include "tests/unit/running_toy.h"
#include "tests/unit/safetensors_writer.h"

namespace ac::test {
namespace {

TEST_CASE("engine: packages that are none") {
  const Running running;
  const std::filesystem::path& package = running.package;
  CHECK_BAD_INPUT(Engine(*running.device, package / "absent"), "does not exist");

  Json json = running.json();
  json["target"] = "sm_90";
  running.rewrite(json);
  const std::string other = error_of(Fault::wrong_usage, [&] { running.engine(); });
  CHECK(contains(other, "compiled for sm_90"));
  json["target"] = "host";

  const int format = json["format"];
  json["format"] = 1;
  running.rewrite(json);
  CHECK_BAD_INPUT(running.engine(), "format 1 is not", "compile the model again");
  json["format"] = format;

  Json two = json;
  two["buffers"].push_back(two["buffers"][3]);
  running.rewrite(two);
  CHECK_BAD_INPUT(running.engine(), "2 buffers of the role log");
  two = json;
  two["buffers"][3]["bytes"] = 160;
  running.rewrite(two);
  CHECK_BAD_INPUT(running.engine(), "buffer log is not of 41 i32");
  two = json;
  named(two, "decode")["ids"] = 1;
  running.rewrite(two);
  CHECK_BAD_INPUT(running.engine(), "decode: its token ids");
  running.rewrite(json);
  CHECK_NOTHROW(running.engine());

  for (const std::size_t bytes : {0, 3, 5}) {
    write_file(package / "constants.bin", std::string(bytes, 'x'));
    write_digests(package);
    CHECK_BAD_INPUT(running.engine(), "constants.bin", "program.json says 4");
  }
}

TEST_CASE("engine: nothing of a package is loaded that is not as it was compiled") {
  const Running running;
  const std::filesystem::path& package = running.package;
  for (const char* name : {"program.json", "constants.bin", "toy.so", "advance.so",
                           "model.safetensors", "digests.json"}) {
    const std::filesystem::path file = package / name;
    const std::string whole = read_file(file, 1 << 24);
    for (const std::size_t at : {std::size_t{0}, whole.size() / 2, whole.size() - 1}) {
      std::string other = whole;
      other[at] ^= 1;
      CAPTURE(at);
      for (const std::string& content : {other, whole.substr(0, at), whole + "x"}) {
        write_file(file, content);
        // White space between its values is no damage to a list of digests.
        if (name == std::string("digests.json") && content.size() >= whole.size() - 1 &&
            content.substr(0, whole.size() - 1) == whole.substr(0, whole.size() - 1) &&
            content.back() != 'x')
          continue;
        CHECK_BAD_INPUT(running.engine(), file.string());
      }
    }
    std::filesystem::remove(file);
    CHECK_BAD_INPUT(running.engine(), file.string(), "is missing");
    write_file(file, whole);
    CHECK_NOTHROW(running.engine());
  }
  std::filesystem::copy_file(package / "advance.so", package / "toy.so",
                             std::filesystem::copy_options::overwrite_existing);
  CHECK_BAD_INPUT(running.engine(), "toy.so", "not the file that was compiled");
}

TEST_CASE("engine: more than the device has room for") {
  const Running running;
  Json json = running.json();
  json["arena_bytes"] = std::int64_t{1} << 46;
  running.rewrite(json);
  const std::string message = error_of(Fault::job_failed, [&] { running.engine(); });
  CHECK(contains(message, "work space 65536.00 GiB"));
}

TEST_CASE("engine: weights of another type are converted, piece by piece") {
  const Running running;
  std::vector<std::uint16_t> halves(50, 0x3c00);  // 1
  write_safetensors(running.package / "model.safetensors",
                    {{"weight", DType::f16, {50}, bytes_of_values(halves)}});
  write_digests(running.package);
  Engine engine = running.engine();
  std::vector<float> weights(50);
  running.device->download(std::as_writable_bytes(std::span(weights)), engine.addresses()[4]);
  CHECK(weights == std::vector<float>(50, 1.f));
}

TEST_CASE("engine: weights that are too large for the type of the package are refused") {
  const Running running;
  Json json = running.json();
  json["buffers"][4]["dtype"] = "f16";
  json["buffers"][4]["bytes"] = 100;
  running.rewrite(json);
  const auto store = [&](float last) {
    std::vector<float> values(50, 1);
    values.back() = last;
    write_safetensors(running.package / "model.safetensors",
                      {{"weight", DType::f32, {50}, bytes_of_values(values)}});
    write_digests(running.package);
  };
  store(65504);
  CHECK_NOTHROW(running.engine());
  store(-65520);
  CHECK_BAD_INPUT(running.engine(), "model.safetensors", "\"weight\"", "-65520", "float16");
}

TEST_CASE("traffic: weights whole, tables by their rows, caches as far as they are seen") {
  const Program program = Toy{.window = 3}.program();  // 10 slots
  const auto at = [&](std::int64_t tokens, std::int64_t cached) {
    return traffic_of(program, program.phases[1].launches[0], tokens, cached);
  };
  // The weight's only axis is no table's.
  CHECK(at(1, 0).weights == 200);
  CHECK(at(1, 0).cache == 4);
  CHECK(at(1, 30).cache == 12);
  CHECK(at(4, 30).cache == 24);
  CHECK(at(1, 0).rest == 8 + 4 + 4 + 4 + 200);
  Program table = program;
  table.buffers[4].shape = {25, 2};
  CHECK(traffic_of(table, table.phases[1].launches[0], 3, 0).weights == 24);
  CHECK(traffic_of(program, program.phases[1], 1, 0).weights == 200);
}

}  // namespace
}  // namespace ac::test
