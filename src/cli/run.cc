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
#include "runtime/engine.h"

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

// What generates: the reference executor or a package.
class Generator {
 public:
  virtual ~Generator() = default;
  virtual void prompt(const std::vector<std::int64_t>& ids, std::int64_t chunk) = 0;
  virtual void step(std::int64_t id) = 0;
  virtual std::int64_t best() = 0;  // of the last logits
  virtual std::vector<double> logits() = 0;
};

class ReferenceGenerator : public Generator {
 public:
  ReferenceGenerator(const Model& model, int threads)
      : weights_(model),
        executor_(prefill_instance(incrementalise(normalise(model.graph))), weights_.lookup(),
                  threads) {}

  void prompt(const std::vector<std::int64_t>& ids, std::int64_t chunk) override {
    for (std::size_t at = 0; at < ids.size();) {
      const std::size_t size =
          std::min<std::size_t>(static_cast<std::size_t>(chunk), ids.size() - at);
      const auto begin = ids.begin() + static_cast<long>(at);
      run({begin, begin + static_cast<long>(size)});
      at += size;
    }
  }
  void step(std::int64_t id) override { run({id}); }
  std::int64_t best() override {
    return std::max_element(last_.begin(), last_.end()) - last_.begin();
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
  explicit PackageGenerator(const std::string& package)
      : device_(open_host_device()), engine_(*device_, package) {}

  void prompt(const std::vector<std::int64_t>& ids, std::int64_t chunk) override {
    engine_.prefill(ids, chunk);
  }
  void step(std::int64_t id) override { engine_.decode(id); }
  std::int64_t best() override { return engine_.chosen(); }
  std::vector<double> logits() override { return engine_.logits(); }

 private:
  std::unique_ptr<Device> device_;
  Engine engine_;
};

struct Run {
  SourceArguments source;
  std::string ids;
  std::int64_t max_new_tokens = 16;
  std::int64_t chunk = 128;
  int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  bool reference = false, logits = false, json = false;

  std::unique_ptr<Generator> make() const {
    if (reference) return std::make_unique<ReferenceGenerator>(source.capture(), threads);
    if (std::filesystem::exists(std::filesystem::path(source.source) / "config.json"))
      wrong_usage("{} is a model: compile it first, or run it with --reference", source.source);
    return std::make_unique<PackageGenerator>(source.source);
  }

  void run() const {
    const std::vector<std::int64_t> prompt = parse_ids(ids);
    const std::unique_ptr<Generator> generator = make();
    generator->prompt(prompt, chunk);
    std::vector<double> after_prompt;
    if (logits) after_prompt = generator->logits();
    std::vector<std::int64_t> generated;
    while (static_cast<std::int64_t>(generated.size()) < max_new_tokens) {
      generated.push_back(generator->best());
      if (!json) {
        fmt::print("{}{}", generated.size() > 1 ? "," : "", generated.back());
        std::fflush(stdout);
      }
      if (static_cast<std::int64_t>(generated.size()) < max_new_tokens)
        generator->step(generated.back());
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
};

}  // namespace

void add_run_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "run", "Generate tokens, greedily, with a package or the reference executor");
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
