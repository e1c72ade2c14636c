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
#include "cli/engine.h"
#include "cli/source.h"
#include "ir/incrementalise.h"
#include "reference/executor.h"

namespace ac {
namespace {

constexpr std::int64_t kReferenceChunk = 128;

std::vector<std::int64_t> parse_ids(const std::string& text, const char* option) {
  std::vector<std::int64_t> ids;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    std::int64_t id = 0;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, id);
    if (error != std::errc() || stop != text.data() + end || id < 0)
      wrong_usage("{0}: \"{1}\" is not a token id; write {0} 1,2,3", option,
                  text.substr(at, end - at));
    ids.push_back(id);
    at = end + 1;
  }
  return ids;
}

// What generates: the reference executor or a package.
class Generator {
 public:
  virtual ~Generator() = default;
  virtual void prompt(const std::vector<std::int64_t>& ids, std::int64_t chunk) = 0;
  // The largest of the last logits, and what follows it, until `on_token` returns false.
  virtual void generate(std::int64_t count, const std::function<bool(std::int64_t)>& on_token) = 0;
  virtual std::vector<double> logits() = 0;
};

class ReferenceGenerator : public Generator {
 public:
  ReferenceGenerator(const Model& model, const Graph& normal_form, int threads)
      : weights_(model),
        executor_(prefill_instance(incrementalise(normal_form)), weights_.lookup(), threads) {}

  void prompt(const std::vector<std::int64_t>& ids, std::int64_t chunk) override {
    for (std::size_t at = 0; at < ids.size();) {
      const std::size_t size =
          std::min<std::size_t>(static_cast<std::size_t>(chunk), ids.size() - at);
      const auto begin = ids.begin() + static_cast<long>(at);
      run({begin, begin + static_cast<long>(size)});
      at += size;
    }
  }
  void generate(std::int64_t count, const std::function<bool(std::int64_t)>& on_token) override {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t best = std::max_element(last_.begin(), last_.end()) - last_.begin();
      if (!on_token(best)) return;
      if (i + 1 < count) run({best});
    }
  }
  std::vector<double> logits() override { return last_; }

 private:
  void run(const std::vector<std::int64_t>& ids) {
    last_ = std::move(executor_.step(ids).at("logits").data);
    for (std::size_t i = 0; i < last_.size(); ++i)
      if (!std::isfinite(last_[i]))
        job_failed("the logit of token {} is {}: the weights or the model are damaged", i,
                   last_[i]);
  }

  ModelWeights weights_;
  StepExecutor executor_;
  std::vector<double> last_;
};

class PackageGenerator : public Generator {
 public:
  explicit PackageGenerator(EngineArguments::Opened opened) : opened_(std::move(opened)) {}

  void prompt(const std::vector<std::int64_t>& ids, std::int64_t chunk) override {
    opened_.engine->prefill(ids, chunk);
  }
  void generate(std::int64_t count, const std::function<bool(std::int64_t)>& on_token) override {
    opened_.engine->generate(count, on_token);
  }
  std::vector<double> logits() override { return opened_.engine->logits(); }

 private:
  EngineArguments::Opened opened_;
};

struct Run {
  SourceArguments source;
  EngineArguments engine;
  std::string ids, stop_ids;
  std::int64_t max_new_tokens = 16;
  std::int64_t chunk = 0;  // 0: as many as the package takes; 128 for the reference
  int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  bool reference = false, logits = false, json = false;

  std::unique_ptr<Generator> make() const {
    if (reference) {
      const Model model = source.capture();
      return std::make_unique<ReferenceGenerator>(model, source.normal_form(model.graph), threads);
    }
    if (source.dtype)
      wrong_usage("--dtype: a package computes in the type that it was compiled for");
    if (std::filesystem::exists(std::filesystem::path(source.source) / "config.json"))
      wrong_usage("{} is a model: compile it first, or run it with --reference", source.source);
    return std::make_unique<PackageGenerator>(engine.open(source.source));
  }

  void run() const {
    const std::vector<std::int64_t> prompt = parse_ids(ids, "--ids");
    std::vector<std::int64_t> stops;
    if (!stop_ids.empty()) stops = parse_ids(stop_ids, "--stop-ids");
    const std::unique_ptr<Generator> generator = make();
    generator->prompt(prompt, chunk > 0 ? chunk : reference ? kReferenceChunk : 0);
    std::vector<double> after_prompt;
    if (logits) after_prompt = generator->logits();
    std::vector<std::int64_t> generated;
    generator->generate(max_new_tokens, [&](std::int64_t token) {
      generated.push_back(token);
      if (!json) {
        fmt::print("{}{}", generated.size() > 1 ? "," : "", token);
        std::fflush(stdout);
      }
      return std::ranges::find(stops, token) == stops.end();
    });
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
};

}  // namespace

void add_run_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "run", "Generate tokens, greedily, with a package or the reference executor");
  const auto run = std::make_shared<Run>();
  run->source.add_to(*command);
  run->engine.add_to(*command);
  command->add_flag("--reference", run->reference,
                    "Run the reference executor: plain C++ in double precision, slow and exact");
  command->add_option("--ids", run->ids, "The prompt as token ids: 1,2,3")->required();
  command->add_option("--stop-ids", run->stop_ids, "Tokens after which no more are generated: 1,2");
  command->add_option("--max-new-tokens,-n", run->max_new_tokens, "How many tokens to generate")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 30));
  command
      ->add_option("--chunk", run->chunk,
                   "Tokens of the prompt that are processed at once (default: as many as the "
                   "package takes; 128 with --reference)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30));
  command->add_option("--threads", run->threads, "Threads of the reference executor")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  command->add_flag("--logits", run->logits, "Also give the logits after the prompt");
  command->add_flag("--json", run->json, "Print JSON: ids, generated, last_logits");
  command->callback([run] { run->run(); });
}

}  // namespace ac
