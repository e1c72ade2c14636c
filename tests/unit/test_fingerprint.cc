// A package and the checkpoint that it was compiled from: another one is refused, and said.
#include "runtime/fingerprint.h"

#include <doctest/doctest.h>

#include "base/files.h"
#include "base/temporary_folder.h"
#include "runtime/weight_source.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/safetensors_writer.h"

namespace ac::test {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLargeCount = 100'003;

struct Bound {
  Bound() {
    fs::create_directories(package), fs::create_directories(checkpoint);
    write();
    write_file(checkpoint / "config.json", R"({"model_type": "toy", "rms_norm_eps": 1e-5})");
    program.stores["checkpoint"] = checkpoint.string();
    for (const auto& [name, count] : {std::pair{"large", kLargeCount}, {"small", std::int64_t{3}}})
      program.buffers.push_back({.role = Buffer::Role::weight,
                                 .name = name,
                                 .store = "checkpoint",
                                 .key = name,
                                 .shape = {count}});
    bind();
  }

  void write(const char* second = "small", DType dtype = DType::f32, std::size_t changed = ~0u,
             const fs::path& to = {}) const {
    std::vector<float> large(static_cast<std::size_t>(kLargeCount), 1.f), small = {1, 2, 3};
    if (changed < large.size()) large[changed] = 1.5f;
    std::string bytes = bytes_of_values(small);
    bytes.resize(3 * bytes_of(dtype));
    write_safetensors((to.empty() ? checkpoint : to) / "model.safetensors",
                      {{"large", DType::f32, {kLargeCount}, bytes_of_values(large)},
                       {second, dtype, {3}, bytes}});
  }
  void bind() {
    std::vector<std::string> warnings;
    write_fingerprint(fingerprint_of(program, warnings), package);
    CHECK(warnings.empty());
    write_digests(package);
  }
  PackageStores open(const fs::path& named = {}) const {
    return {program, PackageFiles(package), named,
            [&](const std::string& warning) { warned = warning; }};
  }

  TemporaryFolder folder;
  fs::path package = folder.path() / "package", checkpoint = folder.path() / "model";
  Program program;
  mutable std::string warned;
};

TEST_CASE("fingerprint: the checkpoint that was compiled is taken, wherever it lies") {
  Bound bound;
  CHECK(bound.open().at("checkpoint").keys().size() == 2);
  const fs::path moved = bound.folder.path() / "moved";
  fs::rename(bound.checkpoint, moved);
  CHECK_BAD_INPUT(bound.open(), "are gone", bound.checkpoint.string(), "--checkpoint DIR");
  bound.open(moved);
  bound.open(moved / "model.safetensors");
  CHECK(bound.warned == "");
  CHECK_BAD_INPUT(bound.open(bound.folder.path() / "absent"), "absent does not exist");
}

TEST_CASE("fingerprint: other values are refused, unless they are named") {
  const Bound bound;
  // The first and the last element, and one in the middle of a piece.
  for (const std::size_t changed :
       {std::size_t{0}, std::size_t{kLargeCount - 1}, std::size_t{33'200}}) {
    bound.write("small", DType::f32, changed);
    CHECK_BAD_INPUT(bound.open(), "tensor \"large\" has other values",
                    bound.package.string() + " was compiled",
                    "--checkpoint " + bound.checkpoint.string());
    bound.warned.clear();
    bound.open(bound.checkpoint);
    CHECK(bound.warned.find("tensor \"large\" has other values than when") != std::string::npos);
  }
  bound.write();
  CHECK_NOTHROW(bound.open());
}

TEST_CASE("fingerprint: other names and types are refused in any case") {
  const Bound bound;
  for (const fs::path& named : {fs::path(), bound.checkpoint}) {
    bound.write("small", DType::f16);
    CHECK_BAD_INPUT(bound.open(named), "tensor \"small\" is f16, and was f32", "compile the model");
    bound.write("smaller");
    CHECK_BAD_INPUT(bound.open(named), "there is no tensor \"small\"", "smaller");
  }
}

TEST_CASE("fingerprint: an edit of config.json is noticed where it means something") {
  const Bound bound;
  const auto config = [&](const char* text) { write_file(bound.checkpoint / "config.json", text); };
  config("{\n\"rms_norm_eps\": 0.00001,\n\"eos_token_id\": 7, \"model_type\": \"toy\"}\n");
  CHECK_NOTHROW(bound.open());
  config(R"({"model_type": "toy", "rms_norm_eps": 1e-6})");
  for (const fs::path& named : {fs::path(), bound.checkpoint})
    CHECK_BAD_INPUT(bound.open(named), "config.json", "compile the model again");
  config(R"({"model_type": "toy", "rms_norm_eps": 1e-5, "rope_scaling": {"factor": 2}})");
  CHECK_BAD_INPUT(bound.open(), "config.json");
  config("{");
  CHECK_BAD_INPUT(bound.open(), "config.json");
  fs::remove(bound.checkpoint / "config.json");
  CHECK_NOTHROW(bound.open());
}

TEST_CASE("fingerprint: weights that came after the package must be named") {
  Bound bound;
  const fs::path file = bound.checkpoint / "model.safetensors";
  const std::string whole = read_file(file, 1 << 24);
  fs::remove(file);
  bound.bind();
  write_file(file, whole);
  CHECK_BAD_INPUT(bound.open(), "compiled where its weights were not",
                  "--checkpoint " + bound.checkpoint.string());
  CHECK_NOTHROW(bound.open(bound.checkpoint));
  // A checkpoint that cannot be read is told when the package is made.
  write_file(file, whole.substr(0, 20));
  std::vector<std::string> warnings;
  CHECK(fingerprint_of(bound.program, warnings).empty());
  CHECK(warnings.size() == 1);
}

TEST_CASE("fingerprint: a package with weights of its own takes no others") {
  Bound bound;
  fs::copy_file(bound.checkpoint / "model.safetensors", bound.package / "own.safetensors");
  bound.program.stores["checkpoint"] = "own.safetensors";
  CHECK_BAD_INPUT(bound.open(), "own.safetensors", "is no file of the package");
  bound.bind();
  CHECK_NOTHROW(bound.open());
  CHECK(error_of(Fault::wrong_usage, [&] {
          bound.open(bound.checkpoint);
        }).find("has its weights in itself") != std::string::npos);
  bound.write("small", DType::f32, 5000, bound.package);
  fs::rename(bound.package / "model.safetensors", bound.package / "own.safetensors");
  CHECK_BAD_INPUT(bound.open(), "own.safetensors", "is not the file that was compiled");
}

}  // namespace
}  // namespace ac::test
