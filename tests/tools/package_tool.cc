// For tests that damage packages again and again: reads the path of a package a line from stdin,
// and answers each with a JSON line of what the commands that read packages would make of it, in
// one process. "run" and "bench" hold tokens, "inspect" what it prints, "verify" the faults; or
// each an "error" with its exit code.
#include <fmt/format.h>

#include <cstdio>
#include <iostream>

#include "base/error.h"
#include "emit/package_stages.h"
#include "emit/verification.h"
#include "runtime/engine.h"

namespace ac {
namespace {

constexpr std::int64_t kNewTokens = 6;
const std::vector<std::int64_t> kPrompt = {5, 17, 3, 99, 8, 41, 7};

Json run(const std::string& package) {
  const std::unique_ptr<Device> device = open_host_device();
  Engine engine(*device, package);
  engine.prefill(kPrompt);
  Json tokens = Json::array();
  engine.generate(kNewTokens, [&](std::int64_t token) {
    tokens.push_back(token);
    return true;
  });
  return tokens;
}

Json bench(const std::string& package) {
  const std::unique_ptr<Device> device = open_host_device();
  Engine engine(*device, package);
  engine.prefill(kPrompt);
  Json tokens{engine.chosen()};
  for (std::int64_t i = 1; i < kNewTokens; ++i) {
    engine.replay(1);
    engine.check_tokens(1);
    tokens.push_back(engine.chosen());
  }
  return tokens;
}

Json inspect(const std::string& package) {
  const Json plan = read_plan_json(PackageFiles(package));
  std::string text;
  for (const PackageStage stage :
       {PackageStage::regions, PackageStage::candidates, PackageStage::advice,
        PackageStage::verdicts, PackageStage::selection, PackageStage::stats})
    text += stage_text(plan, stage, "plan.json");
  return text;
}

// What is found before any kernel is built.
Json faults(const std::string& package) {
  const PackageFiles files(package);
  const Program program = read_program(files);
  return disagreements(files, program, plan_file(read_plan_json(files), "plan.json"), {}, {});
}

Json answer(Json (*command)(const std::string&), const std::string& package) {
  try {
    return command(package);
  } catch (const Error& error) {
    return {{"error", error.what()}, {"exit", error.exit_code()}};
  } catch (const std::exception& error) {
    return {{"error", error.what()}, {"exit", 1}};
  }
}

}  // namespace
}  // namespace ac

int main() {
  for (std::string package; std::getline(std::cin, package);) {
    const ac::Json answers{{"run", ac::answer(ac::run, package)},
                           {"bench", ac::answer(ac::bench, package)},
                           {"inspect", ac::answer(ac::inspect, package)},
                           {"verify", ac::answer(ac::faults, package)}};
    // A message may hold bytes of a damaged file.
    fmt::print("{}\n", answers.dump(-1, ' ', false, ac::Json::error_handler_t::replace));
    std::fflush(stdout);
  }
}
