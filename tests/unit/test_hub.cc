#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "base/environment.h"
#include "capture/hub.h"
#include "capture/hub_listing.h"
#include "expect_error.h"
#include "safetensors_writer.h"

using namespace ac;
using namespace ac::test;
namespace fs = std::filesystem;

namespace {

// Exactly these of the table's variables are set while the object lives.
class WithEnvironment {
 public:
  explicit WithEnvironment(const std::map<std::string, std::string>& values) {
    for (const EnvironmentVariable& variable : environment_variables()) {
      const char* old = std::getenv(variable.name);
      before_[variable.name] = old ? std::optional<std::string>(old) : std::nullopt;
      unsetenv(variable.name);
    }
    for (const auto& [name, value] : values) {
      REQUIRE(before_.contains(name));
      setenv(name.c_str(), value.c_str(), 1);
    }
  }
  WithEnvironment(const WithEnvironment&) = delete;
  WithEnvironment& operator=(const WithEnvironment&) = delete;
  ~WithEnvironment() {
    for (const auto& [name, value] : before_) {
      if (value)
        setenv(name.c_str(), value->c_str(), 1);
      else
        unsetenv(name.c_str());
    }
  }

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

Environment environment_of(const std::map<std::string, std::string>& values) {
  const WithEnvironment scope(values);
  return read_environment();
}

const std::string kCommit(40, 'a');

}  // namespace

TEST_CASE("where the cache is") {
  CHECK(environment_of({{"HOME", "/h"}}).hub_cache == "/h/.cache/huggingface/hub");
  CHECK(environment_of({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}}).hub_cache ==
        "/x/huggingface/hub");
  CHECK(environment_of({{"XDG_CACHE_HOME", "/x"}, {"HF_HOME", "/f"}}).hub_cache == "/f/hub");
  const Environment all =
      environment_of({{"XDG_CACHE_HOME", "/x"}, {"HF_HOME", "/f"}, {"HF_HUB_CACHE", "/c"}});
  CHECK(all.hub_cache == "/c");
  CHECK(all.hf_home == "/f");
  CHECK(environment_of({{"HOME", "/h"}, {"HF_HOME", "~/f"}}).hub_cache == "/h/f/hub");
  CHECK(environment_of({{"HOME", "/h"}, {"HF_HOME", ""}}).hf_home == "/h/.cache/huggingface");
  CHECK(environment_of({}).hub_cache.empty());
}

TEST_CASE("defaults and values of the other variables") {
  const Environment none = environment_of({});
  CHECK(none.hf_endpoint == "https://huggingface.co");
  CHECK(none.python.empty());
  CHECK(none.host_compiler.empty());
  CHECK(none.cuda_home.empty());
  CHECK(none.cache.empty());
  CHECK_FALSE(none.hub_offline);
  CHECK_FALSE(none.no_color);
  const Environment set = environment_of({{"HF_ENDPOINT", "https://mirror.example/"},
                                          {"HF_HUB_OFFLINE", "YES"},
                                          {"NO_COLOR", "0"},
                                          {"AGENTCOMPILE_PYTHON", "/p"},
                                          {"AGENTCOMPILE_CXX", "/c"},
                                          {"CUDA_PATH", "/cuda"},
                                          {"HOME", "/h"}});
  CHECK(set.hf_endpoint == "https://mirror.example");
  CHECK(set.hub_offline);
  CHECK(set.no_color);
  CHECK(set.python == "/p");
  CHECK(set.host_compiler == "/c");
  CHECK(set.cuda_home == "/cuda");
  CHECK(set.cache == "/h/.cache");
  CHECK(environment_of({{"CUDA_HOME", "/a"}, {"CUDA_PATH", "/b"}}).cuda_home == "/a");
}

TEST_CASE("values that make no sense are named") {
  for (const auto& [name, value] : std::map<std::string, std::string>{
           {"HF_HUB_OFFLINE", "maybe"},
           {"HF_ENDPOINT", "ftp://x"},
           {"HF_TOKEN", "a b"},
           {"HF_HOME", "~/x"},
       }) {
    const std::string message =
        error_of(Fault::wrong_usage, [&] { environment_of({{name, value}}); });
    INFO(message);
    CHECK(message.find(name) != std::string::npos);
  }
  CHECK(error_of(Fault::wrong_usage, [] {
          environment_of({{"HF_TOKEN", "secret\n"}});
        }).find("secret") == std::string::npos);
}

TEST_CASE("the token") {
  const TemporaryDirectory folder;
  Environment environment;
  environment.hf_home = folder.path();
  CHECK(hub_token(environment).empty());
  write_file_atomically(folder / "token", "from-file\n");
  CHECK(hub_token(environment) == "from-file");
  environment.hf_token = "from-variable";
  CHECK(hub_token(environment) == "from-variable");
  environment.hf_token = "";
  write_file_atomically(folder / "token", "two tokens");
  CHECK_BAD_INPUT(hub_token(environment), "token");
}

TEST_CASE("model ids") {
  const auto id = parse_model_id("org/Name-1.5_b");
  REQUIRE(id);
  CHECK(id->repository == "org/Name-1.5_b");
  CHECK(id->revision == "main");
  CHECK(parse_model_id("gpt2")->repository == "gpt2");
  CHECK(parse_model_id("org/name@refs/pr/1")->revision == "refs/pr/1");
  CHECK(repository_folder("/c", *id) == "/c/models--org--Name-1.5_b");
  for (const char* wrong : {"",
                            "/",
                            "org/",
                            "/name",
                            "a/b/c",
                            "../x",
                            "org/..",
                            "org/.x",
                            "org/x.",
                            "org/a--b",
                            "org/a..b",
                            "org/na me",
                            "org/name@",
                            "org/name@../x",
                            "org/name@/x",
                            "org/name@a//b",
                            "org/name@a b",
                            "org/na\nme",
                            "org/na%2fme",
                            "org\\name"}) {
    INFO(wrong);
    CHECK_FALSE(parse_model_id(wrong));
  }
  CHECK_FALSE(parse_model_id("org/" + std::string(97, 'x')));
}

TEST_CASE("a model is a directory or an id in the cache") {
  const TemporaryDirectory folder;
  Environment environment;
  environment.hub_cache = folder / "hub";
  const fs::path repository = environment.hub_cache / "models--org--name";
  const fs::path snapshot = repository / "snapshots" / kCommit;
  fs::create_directories(repository / "refs/pr");
  fs::create_directories(snapshot);
  write_file_atomically(snapshot / "config.json", "{}");
  write_file_atomically(repository / "refs/main", kCommit);
  write_file_atomically(repository / "refs/pr/1", kCommit + "\n");

  CHECK(resolve_model(snapshot.string(), environment) == snapshot);
  CHECK(resolve_model("org/name", environment) == snapshot);
  CHECK(resolve_model("org/name@pr/1", environment) == snapshot);
  CHECK(resolve_model("org/name@" + kCommit, environment) == snapshot);

  CHECK_BAD_INPUT(resolve_model("org/other", environment), "org/other", "models--org--other",
                  "--download");
  CHECK_BAD_INPUT(resolve_model("org/name@v2", environment), "\"v2\"", "--download");
  CHECK_BAD_INPUT(resolve_model(folder.path().string(), environment), "config.json");
  CHECK_BAD_INPUT(resolve_model("./none", environment), "./none", "no such directory");
  CHECK_BAD_INPUT(resolve_model("a b", environment), "\"a b\"");
  write_file_atomically(repository / "refs/main", "../../../../etc");
  CHECK_BAD_INPUT(resolve_model("org/name", environment), "refs/main", "not a commit");
  error_of(Fault::wrong_usage, [] { resolve_model("org/name", Environment{}); });
}

TEST_CASE("the hub's listing") {
  const ModelId id{"org/name", "main"};
  const auto listing_with = [&](const std::string& entry) {
    return read_hub_listing(R"({"sha":")" + kCommit + R"(","siblings":[)" + entry + "]}", id);
  };
  const std::string blob = R"(,"size":3,"blobId":")" + std::string(40, 'b') + "\"}";
  const HubListing listing = listing_with(R"({"rfilename":"config.json")" + blob);
  REQUIRE(listing.find("config.json"));
  CHECK(listing.find("config.json")->blob.size == 3);
  CHECK_FALSE(listing.find("config.json")->blob.is_sha256);

  for (const char* name :
       {"../x", "/etc/x", "a/../../x", "", "a//b", "./x", "..", "a\\\\b", "\\n"}) {
    INFO(name);
    CHECK_BAD_INPUT(listing_with(std::string(R"({"rfilename":")") + name + "\"" + blob), "org/name",
                    "file name");
  }
  CHECK_BAD_INPUT(listing_with("1"), "org/name");
  CHECK_BAD_INPUT(listing_with(R"({"rfilename":"x","size":1})"), "\"x\"", "hash");
  CHECK_BAD_INPUT(listing_with(R"({"rfilename":"x","size":1,"blobId":"../../x"})"), "\"x\"",
                  "hash");
  CHECK_BAD_INPUT(listing_with(R"({"rfilename":"x","size":1,"lfs":{"sha256":"12"}})"), "hash");
  CHECK_BAD_INPUT(
      listing_with(R"({"rfilename":"x","size":-1,"blobId":")" + std::string(40, 'b') + "\"}"),
      "\"x\"", "size");
  CHECK_BAD_INPUT(read_hub_listing("{}", id), "sha");
  CHECK_BAD_INPUT(read_hub_listing("[]", id), "not an object");
  CHECK_BAD_INPUT(read_hub_listing("<html>", id), "org/name");
}
