#include "cli/reference_generator.h"

#include <fmt/format.h>

#include <algorithm>

#include "capture/model_weights.h"
#include "ir/incrementalise.h"
#include "ir/positions.h"
#include "reference/executor.h"

namespace ac {
namespace {

constexpr std::int64_t kReferenceChunk = 128;

class ReferenceGenerator : public Generator {
 public:
  ReferenceGenerator(const Model& model, const StepGraph& step, int threads)
      : vocabulary_(step.graph.type(step.graph.outputs.at(0).node).shape.back().constant()),
        limit_(token_limit(step)),
        weights_(model),
        executor_(prefill_instance(step), weights_.lookup(), threads) {}

  std::vector<double> logits() override { return last_; }

  std::int64_t position() const override { return executor_.position(); }

 protected:
  std::int64_t vocabulary() const override { return vocabulary_; }
  std::int64_t most_tokens() const override { return limit_.tokens; }
  std::string room() const override {
    return fmt::format("the model is right for {} tokens{}", limit_.tokens, limit_.reason());
  }
  bool go_back(std::int64_t tokens) override {
    executor_.truncate(tokens);
    return true;
  }
  void choose_by(const Sampling& sampling) override {
    ac::check(sampling);
    sampling_ = sampling;
  }
  std::int64_t most_at_once() const override { return kReferenceChunk; }
  void run(const std::vector<std::int64_t>& ids) override {
    last_ = std::move(executor_.step(ids).at("logits").data);
    check_finite(last_);
  }
  void step(std::int64_t token) override { run({token}); }
  void follow(std::int64_t count, const std::vector<std::int64_t>& stops,
              const std::function<bool(std::int64_t)>& on_token) override {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t token = choose_token(last_, sampling_, executor_.position());
      if (!on_token(token) || std::ranges::find(stops, token) != stops.end()) return;
      if (i + 1 < count) step(token);
    }
  }

 private:
  const std::int64_t vocabulary_;
  const TokenLimit limit_;
  ModelWeights weights_;
  StepExecutor executor_;
  Sampling sampling_;
  std::vector<double> last_;
};

}  // namespace

std::unique_ptr<Generator> reference_generator(const Model& model, const StepGraph& step,
                                               int threads) {
  return std::make_unique<ReferenceGenerator>(model, step, threads);
}

}  // namespace ac
