#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/model_files.h"
#include "expect_error.h"
#include "safetensors_writer.h"

using namespace ac;
using namespace ac::test;
namespace fs = std::filesystem;

namespace {

TensorBytes tensor(const std::string& name, float value) {
  return {name, DType::f32, {1}, bytes_of_values<float>({value})};
}

void write_index(const fs::path& directory, const Json& weight_map) {
  write_file_atomically(directory / "model.safetensors.index.json",
                        Json{{"metadata", {{"total_size", 8}}}, {"weight_map", weight_map}}.dump());
}

constexpr const char* kShard1 = "model-00001-of-00002.safetensors";
constexpr const char* kShard2 = "model-00002-of-00002.safetensors";

void write_sharded(const fs::path& directory) {
  write_safetensors(directory / kShard1, {tensor("a", 1)});
  write_safetensors(directory / kShard2, {tensor("b", 2), tensor("c", 3)});
  write_index(directory, {{"a", kShard1}, {"b", kShard2}, {"c", kShard2}});
}

float value_of(const Checkpoint& checkpoint, std::string_view key) {
  const auto view = checkpoint.find(key);
  REQUIRE(view);
  return static_cast<float>(load_element(view->dtype, view->bytes.data()));
}

}  // namespace

TEST_CASE("a checkpoint of one file") {
  const TemporaryDirectory folder;
  write_safetensors(folder / "model.safetensors",
                    {{"layers.0.weight", DType::f32, {1, 2}, std::string(8, '\0')}});
  const Checkpoint checkpoint = Checkpoint::open_model(folder.path());
  CHECK(checkpoint.keys() == std::vector<std::string>{"layers.0.weight"});
  CHECK(checkpoint.warnings().empty());
  CHECK(checkpoint.find("nothing") == std::nullopt);
  CHECK(checkpoint.require("layers.0.weight", std::array<std::int64_t, 2>{1, 2}).bytes.size() == 8);

  const std::array<std::int64_t, 2> other{2, 1};
  CHECK_BAD_INPUT(checkpoint.require("layers.0.weight", other), "model.safetensors",
                  "\"layers.0.weight\"", "[1, 2]", "[2, 1]");
  CHECK_BAD_INPUT(checkpoint.require("layers.1.weight", other), "model.safetensors",
                  "\"layers.1.weight\"", "[2, 1]", "similar: \"layers.0.weight\"");
}

TEST_CASE("a file of any other name, if it is the only one") {
  const TemporaryDirectory folder;
  write_safetensors(folder / "tiny.safetensors", {tensor("a", 1)});
  CHECK(value_of(Checkpoint::open_model(folder.path()), "a") == 1);
  write_safetensors(folder / "other.safetensors", {tensor("a", 2)});
  CHECK_BAD_INPUT(Checkpoint::open_model(folder.path()), "2 safetensors files", "index.json");
  CHECK(value_of(Checkpoint::open_file(folder.path(), "other.safetensors"), "a") == 2);
  write_safetensors(folder / "model.safetensors", {tensor("a", 3)});
  const Checkpoint checkpoint = Checkpoint::open_model(folder.path());
  CHECK(value_of(checkpoint, "a") == 3);
  CHECK(checkpoint.warnings().size() == 2);
}

TEST_CASE("shards open when they are needed") {
  const TemporaryDirectory folder;
  write_sharded(folder.path());
  Checkpoint first = Checkpoint::open_model(folder.path());
  const Checkpoint checkpoint = std::move(first);
  CHECK(checkpoint.keys() == std::vector<std::string>{"a", "b", "c"});
  CHECK(checkpoint.warnings().empty());
  write_file_atomically(folder / kShard2, "damaged");
  CHECK(value_of(checkpoint, "a") == 1);
  CHECK_BAD_INPUT(checkpoint.find("b"), kShard2, "too short");
}

TEST_CASE("an index that contradicts its shards") {
  const TemporaryDirectory folder;
  write_sharded(folder.path());

  SUBCASE("a missing shard is named at once") {
    fs::remove(folder / kShard2);
    CHECK_BAD_INPUT(Checkpoint::open_model(folder.path()), "1 of the 2 shards", kShard2);
  }
  SUBCASE("a shard lacks a tensor of its") {
    write_index(folder.path(), {{"a", kShard1}, {"b", kShard2}, {"d", kShard2}});
    CHECK_BAD_INPUT(Checkpoint::open_model(folder.path()).find("b"), kShard2, "\"d\"");
  }
  SUBCASE("a tensor in two shards") {
    write_safetensors(folder / kShard1, {tensor("a", 1), tensor("b", 5)});
    CHECK_BAD_INPUT(Checkpoint::open_model(folder.path()).find("a"), kShard1, "\"b\"", kShard2);
  }
  SUBCASE("a third shard of the same series that holds a tensor of theirs") {
    write_safetensors(folder / "model-00003-of-00003.safetensors", {tensor("c", 1)});
    CHECK_BAD_INPUT(Checkpoint::open_model(folder.path()), "model-00003-of-00003", "\"c\"",
                    kShard2);
  }
  SUBCASE("a third shard with tensors of its own is only worth a warning") {
    write_safetensors(folder / "model-00003-of-00003.safetensors", {tensor("z", 1)});
    const Checkpoint checkpoint = Checkpoint::open_model(folder.path());
    REQUIRE(checkpoint.warnings().size() == 1);
    CHECK(checkpoint.warnings()[0].find("model-00003-of-00003") != std::string::npos);
    CHECK(checkpoint.find("z") == std::nullopt);
  }
  SUBCASE("so is a file of another series") {
    write_safetensors(folder / "consolidated.safetensors", {tensor("a", 1)});
    CHECK(Checkpoint::open_model(folder.path()).warnings().size() == 1);
  }
  SUBCASE("a whole model beside the shards wins, as in transformers") {
    write_safetensors(folder / "model.safetensors", {tensor("a", 9)});
    CHECK(value_of(Checkpoint::open_model(folder.path()), "a") == 9);
  }
}

TEST_CASE("hostile indices") {
  const TemporaryDirectory folder;
  fs::create_directory(folder / "model");
  const fs::path model = folder / "model";
  write_safetensors(folder / "outside.safetensors", {tensor("a", 1)});
  const auto open_index = [&](const Json& weight_map) {
    write_index(model, weight_map);
    return Checkpoint::open_model(model);
  };
  const std::string outside = (folder / "outside.safetensors").string();
  CHECK_BAD_INPUT(open_index({{"a", "../outside.safetensors"}}), "index.json", "\"a\"", "\"..\"");
  CHECK_BAD_INPUT(open_index({{"a", "x/../../outside.safetensors"}}), "\"..\"");
  CHECK_BAD_INPUT(open_index({{"a", outside}}), "\"a\"", "is absolute");
  CHECK_BAD_INPUT(open_index({{"a", ""}}), "is empty");
  CHECK_BAD_INPUT(open_index({{"a", "./x.safetensors"}}), "component");
  CHECK_BAD_INPUT(open_index({{"a", "..\\outside.safetensors"}}), "backslashes");
  CHECK_BAD_INPUT(open_index({{"a", std::string("x\0.safetensors", 14)}}), "control characters");
  const std::string long_name = std::string(2000, 'x') + ".safetensors";
  CHECK_BAD_INPUT(open_index({{"a", long_name}}), "too long");
  CHECK_BAD_INPUT(open_index({{"a", "pytorch_model.bin"}}), "convert");
  CHECK_BAD_INPUT(open_index({{"a", 1}}), "\"a\"", "string");
  CHECK_BAD_INPUT(open_index(Json::object()), "names no tensors");
  CHECK_BAD_INPUT(open_index(Json::array()), "weight_map");
  for (const std::string text :
       {"", "[]", "{", "null", "{\"weight_map\":{\"a\":\"b\",\"a\":\"c\"}}"}) {
    write_file_atomically(model / "model.safetensors.index.json", text);
    CHECK_BAD_INPUT(Checkpoint::open_model(model), "index.json");
  }
  write_file_atomically(model / "model.safetensors.index.json", std::string(100'000, '['));
  CHECK_BAD_INPUT(Checkpoint::open_model(model), "index.json", "nested deeper");
}

TEST_CASE("symlinks stay in the model") {
  const TemporaryDirectory folder;
  const fs::path model = folder / "model";
  fs::create_directory(model);
  write_safetensors(folder / "outside.safetensors", {tensor("a", 1)});

  SUBCASE("one that leads outside is refused") {
    fs::create_symlink("../outside.safetensors", model / "model.safetensors");
    CHECK_BAD_INPUT(Checkpoint::open_model(model), "model.safetensors", "outside");
  }
  SUBCASE("so is a folder that leads outside") {
    fs::create_symlink(folder.path(), model / "sub");
    CHECK_BAD_INPUT(Checkpoint::open_file(model, "sub/outside.safetensors"), "outside");
  }
  SUBCASE("one that leads to a neighbour is fine") {
    write_safetensors(model / "real.safetensors", {tensor("a", 4)});
    fs::create_symlink("real.safetensors", model / "model.safetensors");
    CHECK(value_of(Checkpoint::open_model(model), "a") == 4);
  }
  SUBCASE("a loop") {
    fs::create_symlink("model.safetensors", model / "model.safetensors");
    CHECK_BAD_INPUT(Checkpoint::open_model(model), "model.safetensors", "back to itself");
  }
  SUBCASE("one that leads nowhere") {
    fs::create_symlink("gone.safetensors", model / "model.safetensors");
    CHECK_BAD_INPUT(Checkpoint::open_model(model), "gone.safetensors", "does not exist");
  }
  SUBCASE("the model's folder itself may be one") {
    write_safetensors(model / "model.safetensors", {tensor("a", 5)});
    fs::create_symlink(model, folder / "alias");
    CHECK(value_of(Checkpoint::open_model(folder / "alias"), "a") == 5);
  }
}

TEST_CASE("a snapshot of the cache links to the blobs of its own repository only") {
  const TemporaryDirectory cache;
  const fs::path repository = cache / "models--org--name";
  const fs::path snapshot = repository / "snapshots" / "rev";
  fs::create_directories(snapshot);
  fs::create_directories(repository / "blobs");
  fs::create_directories(cache / "models--org--other/blobs");
  write_safetensors(repository / "blobs/1234", {tensor("a", 6)});
  write_safetensors(cache / "models--org--other/blobs/1234", {tensor("a", 7)});

  fs::create_symlink("../../blobs/1234", snapshot / "model.safetensors");
  const Checkpoint checkpoint = Checkpoint::open_model(snapshot);
  CHECK(value_of(checkpoint, "a") == 6);
  CHECK(checkpoint.find("a")->file == (snapshot / "model.safetensors").string());

  fs::remove(snapshot / "model.safetensors");
  fs::create_symlink("../../../models--org--other/blobs/1234", snapshot / "model.safetensors");
  CHECK_BAD_INPUT(Checkpoint::open_model(snapshot), "model.safetensors", "outside");

  fs::remove(snapshot / "model.safetensors");
  fs::create_symlink("../../blobs", snapshot / "model.safetensors");
  CHECK_BAD_INPUT(Checkpoint::open_model(snapshot), "model.safetensors");
}

TEST_CASE("no safetensors") {
  const TemporaryDirectory folder;
  CHECK_BAD_INPUT(Checkpoint::open_model(folder.path()), "no weights");
  CHECK_BAD_INPUT(Checkpoint::open_model(folder / "none"), "none", "No such file");
  for (const char* pickle : {"pytorch_model.bin", "consolidated.00.pth"}) {
    write_file_atomically(folder / pickle, "x");
    CHECK_BAD_INPUT(Checkpoint::open_model(folder.path()), pickle, "pickle", "convert");
    fs::remove(folder / pickle);
  }
  CHECK_BAD_INPUT(Checkpoint::open_file(folder.path(), "../x.safetensors"), "\"..\"");
  CHECK_BAD_INPUT(Checkpoint::open_file(folder.path(), "x.safetensors"), "no such file");
}
