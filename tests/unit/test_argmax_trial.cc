// The trials of kernels that choose a token: one that overlooks a logit that is not finite is not
// admitted.
#include <doctest/doctest.h>

#include "admit/judge.h"
#include "admit/trials.h"
#include "base/files.h"
#include "base/temporary_folder.h"

namespace ac::test {
namespace {

// The trial's verdict with other text in kernels/argmax.cuh.
std::string verdict(Request request, const std::string& from, const std::string& to) {
  static const TemporaryFolder cache;
  BuilderOptions options = builder_options(read_environment());
  std::string header = read_file(options.sources / "kernels/argmax.cuh", 1 << 20);
  options.cache = cache.path();
  KernelBuilder builder(options);
  REQUIRE(header.find(from) != std::string::npos);
  header.replace(header.find(from), from.size(), to);
  // In front of what includes the right one, which then is there already.
  std::string& text = request.sources.at(0).text;
  const std::string once = "#pragma once";
  header.replace(header.find(once), once.size(), "");
  const std::string family = "kernels/fallback.cuh";
  std::string kernel = read_file(options.sources / family, 1 << 20);
  for (const auto& [find, by] :
       {std::pair{once, std::string()}, {"#include \"kernels/argmax.cuh\"", header}})
    kernel.replace(kernel.find(find), find.size(), by);
  const std::string include = "#include \"" + family + "\"";
  REQUIRE(text.find(include) != std::string::npos);
  text.replace(text.find(include), include.size(), kernel);
  const BuildResult result = builder.build(request.sources[0], {});
  if (const auto* failure = std::get_if<CompileFailure>(&result)) FAIL(failure->log);
  const auto rejection =
      judge(request.trial, {{request.sources[0].entry, std::get<Artifact>(result).file}}).rejection;
  return rejection ? rejection->reason : "";
}

TEST_CASE("argmax trial: kernels that overlook a NaN or an infinity are not admitted") {
  const Request request = trial_of_argmax(DType::f32, 300);
  const std::string test = "if ((bits & infinity) != infinity)";
  CHECK(verdict(request, test, test) == "");
  CHECK(verdict(request, test, test + " return argmax_key(value, row);\n  if (value != value)") !=
        "");
  CHECK(verdict(request, test, "if (value == value)") != "");
  CHECK(verdict(request, "bad_token(row, what)", "bad_token(0, what)") != "");
}

TEST_CASE("argmax trial: logits that differ in the last bit are told apart, and from zero") {
  const Request request = trial_of_argmax(DType::f32, 300);
  CHECK(verdict(request, "(ordered) << 32", "(ordered) << 31") != "");
  CHECK(verdict(request, "value == 0 ? 0 :", "value == 0 ? 1 :") != "");
  CHECK(verdict(request, "value == 0 ? 0 :", "") != "");  // -0 equals 0
}

}  // namespace
}  // namespace ac::test
