// Verdicts on disk: only what was written for the very same trial, kernel and program is believed.
#include "lab/verdicts.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "admit/trials.h"
#include "base/files.h"
#include "build/cache_record.h"
#include "plan/planner.h"
#include "small_compilation.h"

using namespace ac;
using namespace ac::test;
namespace fs = std::filesystem;

namespace {

struct VerdictFixture : FreshBuilder {
  StepGraph step = norm_and_product(DType::f32, 8);
  Request request = trial_of_argmax(DType::f32, 8);
  fs::path folder_of_verdicts = folder.path() / "verdicts";
  Verdicts verdicts{folder_of_verdicts, "this program"};
  std::string key = verdicts.key(request.trial, {"kernel"});

  void keep() const {
    Outcome outcome;
    outcome.worst_error = 0.25, outcome.launches = 7;
    verdicts.keep(key, outcome);
  }
  fs::path file() const { return folder_of_verdicts / (key + ".json"); }
  std::string text() const { return read_file(file(), 1 << 20); }
};

}  // namespace

TEST_CASE("verdicts: what was kept is found, by all that it rests on") {
  const VerdictFixture f;
  CHECK(!f.verdicts.find(f.key));
  f.keep();
  const std::optional<Outcome> found = f.verdicts.find(f.key);
  REQUIRE(found);
  CHECK(found->admitted());
  CHECK(found->from_cache);
  CHECK(found->worst_error == 0.25);
  Trial thorough = f.request.trial, other = trial_of_argmax(DType::f32, 9).trial;
  thorough.thorough = true;
  for (const std::string& key :
       {f.verdicts.key(other, {"kernel"}), f.verdicts.key(thorough, {"kernel"}),
        f.verdicts.key(f.request.trial, {"another"}),
        f.verdicts.key(f.request.trial, {"kernel", "another"}),
        Verdicts(f.folder_of_verdicts, "another program").key(f.request.trial, {"kernel"})}) {
    CHECK(key != f.key);
    CHECK(!f.verdicts.find(key));
  }
}

TEST_CASE("verdicts: a damaged one is none, whatever bit or byte it was") {
  const VerdictFixture f;
  f.keep();
  const std::string whole = f.text();
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
    write_file(f.file(), damaged);
    CAPTURE(damaged);
    REQUIRE(!f.verdicts.find(f.key));
    write_file(f.file(), whole.substr(0, at));
    REQUIRE(!f.verdicts.find(f.key));
  }
  // Whole in itself, and not this one: what is wanted of it is no proof that it was judged.
  const Json admitted{{"kind", "admitted"}, {"worst_error", 0.5}};
  for (const std::string& text :
       {admitted.dump(), Json{{"key", f.key}, {"verdict", admitted}}.dump(),
        record_text("another", {{"verdict", admitted}}), record_text(f.key, {}),
        record_text(f.key, {{"verdict", {{"kind", "aemitted"}}}}),
        record_text(f.key, {{"verdict", {{"kind", "admitted"}, {"why", 3}}}}),
        record_text(f.key, {{"verdict", Json::array()}})}) {
    write_file(f.file(), text);
    CAPTURE(text);
    CHECK(!f.verdicts.find(f.key));
  }
  fs::remove(f.file());
  fs::create_directory(f.file());
  CHECK(!f.verdicts.find(f.key));
  fs::remove(f.file());
  fs::create_symlink("nowhere", f.file());
  CHECK(!f.verdicts.find(f.key));
  // Each is mended by the next verdict.
  fs::remove(f.file());
  fs::create_directory(f.file());
  f.keep();
  CHECK(f.text() == whole);
  CHECK(f.verdicts.find(f.key));
}

TEST_CASE("verdicts: a cache folder that was moved is as good, and what was planted in it is not") {
  VerdictFixture f;
  const auto is_known = [&](const fs::path& at) {
    BuilderOptions options = builder_options(read_environment());
    options.cache = at / "kernels";
    KernelBuilder builder(options);
    LabOptions with = f.unmeasured();
    with.verdicts = at / "verdicts";
    Lab lab(builder, with);
    const Outcome outcome = lab.judge({f.request}).at(0);
    CHECK(outcome.admitted());
    CHECK(lab.has_admitted(to_json(f.request.trial)));
    CHECK(!lab.has_admitted(to_json(trial_of_argmax(DType::f32, 9).trial)));
    CHECK(lab.has_admitted_kernel(f.request.sources.at(0).entry, Purpose::quick));
    CHECK(!lab.has_admitted_kernel("another", Purpose::quick));
    return outcome.from_cache;
  };
  CHECK(!is_known(f.folder.path()));
  CHECK(is_known(f.folder.path()));
  const TemporaryFolder elsewhere;
  fs::copy(f.folder.path(), elsewhere.path(), fs::copy_options::recursive);
  CHECK(is_known(elsewhere.path()));
  for (const auto& entry : fs::directory_iterator(elsewhere.path() / "verdicts"))
    write_file(entry.path(), Json{{"kind", "admitted"}, {"worst_error", 0.5}}.dump());
  CHECK(!is_known(elsewhere.path()));
  CHECK(is_known(elsewhere.path()));
}
