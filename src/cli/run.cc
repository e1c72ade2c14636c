#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>
#include <thread>

#include "base/error.h"
#include "base/json.h"
#include "capture/weights.h"
#include "cli/commands.h"
#include "cli/source.h"
#include "ir/incrementalise.h"
#include "ir/normalise.h"
#include "reference/executor.h"

namespace ac {
namespace {

std::vector<std::int64_t> parse_ids(const std::string& text) {
  std::vector<std::int64_t> ids;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    std::int64_t id = 0;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, id);
    if (error != std::errc() || stop != text.data() + end || id < 0)
      wrong_usage("--ids: \"{}\" is not a token id; write --ids 1,2,3", text.substr(at, end - at));
    ids.push_back(id);
    at = end + 1;
  }
  return ids;
}

struct Run {
  SourceArguments source;
  std::string ids;
  std::int64_t max_new_tokens = 16;
  std::int64_t chunk = 128;
  int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  bool reference = false, logits = false, json = false;

  void run() const {
    if (!reference) wrong_usage("run needs --reference: there is no compiled package to run");
    const std::vector<std::int64_t> prompt = parse_ids(ids);
    const Model model = source.capture();
    const StepGraph step = incrementalise(normalise(model.graph));
    ModelWeights weights(model);
    StepExecutor executor(prefill_instance(step), weights.lookup(), threads);

    std::vector<double> last;
    for (std::size_t at = 0; at < prompt.size();) {
      const std::size_t size =
          std::min<std::size_t>(static_cast<std::size_t>(chunk), prompt.size() - at);
      const auto begin = prompt.begin() + static_cast<long>(at);
      last = row(executor.step({begin, begin + static_cast<long>(size)}));
      at += size;
    }
    const std::vector<double> after_prompt = last;
    std::vector<std::int64_t> generated;
    while (static_cast<std::int64_t>(generated.size()) < max_new_tokens) {
      generated.push_back(std::max_element(last.begin(), last.end()) - last.begin());
      if (!json) {
        fmt::print("{}{}", generated.size() > 1 ? "," : "", generated.back());
        std::fflush(stdout);
      }
      if (static_cast<std::int64_t>(generated.size()) < max_new_tokens)
        last = row(executor.step({generated.back()}));
    }
    if (json) {
      Json result{{"ids", prompt}, {"generated", generated}};
      if (logits) result["last_logits"] = after_prompt;
      fmt::print("{}\n", result.dump());
    } else {
      fmt::print("\n");
      if (logits)
        for (std::size_t i = 0; i < after_prompt.size(); ++i)
          fmt::print("{} {}\n", i, after_prompt[i]);
    }
  }

  static std::vector<double> row(Values outputs) {
    std::vector<double> logits = std::move(outputs.at("logits").data);
    for (std::size_t i = 0; i < logits.size(); ++i)
      if (!std::isfinite(logits[i]))
        job_failed("the logit of token {} is {}: the weights or the model are damaged", i,
                   logits[i]);
    return logits;
  }
};

}  // namespace

void add_run_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("run", "Generate tokens, greedily");
  const auto run = std::make_shared<Run>();
  run->source.add_to(*command);
  command->add_flag("--reference", run->reference,
                    "Run the reference executor: plain C++ in double precision, slow and exact");
  command->add_option("--ids", run->ids, "The prompt as token ids: 1,2,3")->required();
  command->add_option("--max-new-tokens,-n", run->max_new_tokens, "How many tokens to generate")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 30));
  command->add_option("--chunk", run->chunk, "Tokens of the prompt that are processed at once")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30));
  command->add_option("--threads", run->threads, "Threads of the reference executor")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  command->add_flag("--logits", run->logits, "Also give the logits after the prompt");
  command->add_flag("--json", run->json, "Print JSON: ids, generated, last_logits");
  command->callback([run] { run->run(); });
}

}  // namespace ac
