// What a capture computes: the logits of every token of a prompt, taken in chunks, by the reference
// executor. The Python capture compares them with the live module.
#include <algorithm>
#include <memory>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "capture/model_weights.h"
#include "cli/commands.h"
#include "cli/source_arguments.h"
#include "ir/incrementalise.h"
#include "reference/executor.h"

namespace ac {
namespace {

struct Evaluate {
  SourceArguments source;
  std::string work, output;

  static std::int64_t count(const Json& run, const char* key) {
    if (!run.is_object() || !run.contains(key) || !run[key].is_number_integer() || run[key] < 1)
      bad_input("\"{}\" of a run is no positive integer", key);
    return run[key].get<std::int64_t>();
  }

  static std::string bytes_of(const std::vector<double>& data) {
    return {reinterpret_cast<const char*>(data.data()), data.size() * sizeof(double)};
  }

  void run() const {
    const Json wanted = read_json(work);
    const auto ids = wanted.at("ids").get<std::vector<std::int64_t>>();
    const Model model = source.capture();
    const StepGraph step = incrementalise(source.normal_form(model.graph), source.kv_storage());
    ModelWeights weights(model);
    const int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    StepExecutor several(step, weights.lookup(), threads);
    StepExecutor single(decode_instance(step), weights.lookup(), threads);
    const std::int64_t most = step.graph.limit.tokens;
    std::string logits = bytes_of({static_cast<double>(most)});
    for (const Json& each : wanted.at("runs")) {
      const std::int64_t wanted_tokens = count(each, "tokens"), chunk = count(each, "chunk");
      if (wanted_tokens > static_cast<std::int64_t>(ids.size()))
        bad_input("a run of {} tokens, but there are {} ids", wanted_tokens, ids.size());
      const std::int64_t tokens = std::min(wanted_tokens, most);
      StepExecutor& executor = chunk == 1 ? single : several;
      executor.reset();
      for (std::int64_t at = 0; at < tokens; at += chunk) {
        const auto begin = ids.begin() + at;
        const Values values = executor.step({begin, begin + std::min(chunk, tokens - at)});
        logits += bytes_of(values.at("logits").data);
      }
    }
    write_file_atomically(output, logits);
    ScoresSeen seen = several.scores_seen();
    if (const ScoresSeen& more = single.scores_seen(); more.within > 0)
      seen.add(more.largest, more.within);
    if (seen.within > 0)
      fmt::print("{}\n", Json{{"largest", seen.largest}, {"within", seen.within}}.dump());
  }
};

}  // namespace

void add_evaluate_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("evaluate", "The logits of a capture, for its check");
  command->group("");  // not for people
  const auto evaluate = std::make_shared<Evaluate>();
  evaluate->source.add_to(*command);
  command->add_option("--work", evaluate->work, "{\"ids\": [...], \"runs\": [{tokens, chunk}]}")
      ->required();
  command
      ->add_option("-o", evaluate->output,
                   "float64: the most tokens that the step knows, which no run exceeds;"
                   " then [runs, tokens, vocabulary]. What attention assumes of its scores is on "
                   "stdout: {\"largest\", \"within\"}")
      ->required();
  command->callback([evaluate] { evaluate->run(); });
}

}  // namespace ac
