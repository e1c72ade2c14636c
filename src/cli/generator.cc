#include "cli/generator.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "capture/weights.h"
#include "ir/incrementalise.h"
#include "ir/positions.h"
#include "reference/draw.h"
#include "reference/executor.h"

namespace ac {
namespace {

constexpr std::int64_t kReferenceChunk = 128;

// After so many tokens, which the random numbers of a draw depend on.
std::int64_t choose_token(const std::vector<double>& logits, const Sampling& sampling,
                          std::int64_t position) {
  if (!sampling.is_greedy()) return draw_token(logits, draw_settings(sampling), position);
  return std::ranges::max_element(logits) - logits.begin();
}

class ReferenceGenerator : public Generator {
 public:
  ReferenceGenerator(const Model& model, const Graph& normal_form, int threads)
      : ReferenceGenerator(model, incrementalise(normal_form), threads) {}

  std::vector<double> logits() override { return last_; }

 protected:
  std::int64_t position() const override { return executor_.position(); }
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
  ReferenceGenerator(const Model& model, const StepGraph& step, int threads)
      : vocabulary_(step.graph.type(step.graph.outputs.at(0).node).shape.back().constant()),
        limit_(token_limit(step)),
        weights_(model),
        executor_(prefill_instance(step), weights_.lookup(), threads) {}

  const std::int64_t vocabulary_;
  const TokenLimit limit_;
  ModelWeights weights_;
  StepExecutor executor_;
  Sampling sampling_;
  std::vector<double> last_;
};

class PackageGenerator : public Generator {
 public:
  explicit PackageGenerator(Engine& engine) : engine_(engine) {}

  std::vector<double> logits() override { return engine_.logits(); }

 protected:
  std::int64_t position() const override { return engine_.position(); }
  std::int64_t vocabulary() const override { return engine_.program().vocab; }
  std::int64_t most_tokens() const override { return engine_.program().max_context; }
  std::string room() const override { return room_of(engine_.program()); }
  bool go_back(std::int64_t tokens) override {
    if (!engine_.can_truncate(tokens)) return false;
    engine_.truncate(tokens);
    return true;
  }
  void choose_by(const Sampling& sampling) override { engine_.sample(sampling); }
  std::int64_t most_at_once() const override { return engine_.program().longest_step(); }
  void run(const std::vector<std::int64_t>& ids) override { engine_.prefill(ids); }
  void step(std::int64_t token) override { engine_.decode(token); }
  void follow(std::int64_t count, const std::vector<std::int64_t>& stops,
              const std::function<bool(std::int64_t)>& on_token) override {
    engine_.generate(count, on_token, stops);
  }

 private:
  Engine& engine_;
};

}  // namespace

void Generator::check(const TokenRequest& request) const {
  const auto check_ids = [&](const std::vector<std::int64_t>& ids, const char* what) {
    for (const std::int64_t id : ids)
      if (id < 0 || id >= vocabulary())
        bad_input("{}the {} {} is outside the vocabulary of {}", request.where, what, id,
                  vocabulary());
  };
  check_ids(request.ids, "token id");
  check_ids(request.stop_ids, "stop id");
  // The last token is not run.
  const std::int64_t run =
      std::ssize(request.ids) + std::max<std::int64_t>(request.max_new_tokens - 1, 0);
  if (run > most_tokens())
    bad_input("{}{}, and {} ids with {} new tokens need {}", request.where, room(),
              request.ids.size(), request.max_new_tokens, run);
}

std::int64_t Generator::prompt(const TokenRequest& request, std::int64_t chunk,
                               const std::function<bool()>& stopped) {
  const std::vector<std::int64_t>& ids = request.ids;
  AC_ASSERT(!ids.empty());
  choose_by(request.penalties.none() ? request.sampling : Sampling{});
  const auto cached = seen_.begin() + static_cast<std::ptrdiff_t>(
                                          std::min<std::int64_t>(std::ssize(seen_), position()));
  // The last one is run in any case: it gives the logits.
  const auto differs = std::mismatch(ids.begin(), ids.end() - 1, seen_.begin(), cached).first;
  std::int64_t alike = differs - ids.begin();
  if (!go_back(alike)) {
    alike = 0;
    go_back(0);
  }
  seen_ = ids;
  const auto most = static_cast<std::ptrdiff_t>(chunk > 0 ? chunk : most_at_once());
  for (auto at = ids.begin() + static_cast<std::ptrdiff_t>(alike);
       at != ids.end() && !(stopped && stopped());) {
    const auto end = ids.end() - at > most ? at + most : ids.end();
    run({at, end});
    at = end;
  }
  return alike;
}

void Generator::generate(const TokenRequest& request,
                         const std::function<bool(std::int64_t)>& on_token) {
  const auto take = [&](std::int64_t token) {
    seen_.push_back(token);
    return on_token(token);
  };
  const std::vector<std::int64_t>& stops = request.stop_ids;
  if (request.penalties.none()) return follow(request.max_new_tokens, stops, take);
  for (std::int64_t i = 0; i < request.max_new_tokens; ++i) {
    std::vector<double> penalised = logits();
    penalise(penalised, request.penalties, seen_, request.ids.size());
    const std::int64_t token = choose_token(penalised, request.sampling, position());
    if (!take(token) || std::ranges::find(stops, token) != stops.end()) return;
    if (i + 1 < request.max_new_tokens) step(token);
  }
}

std::unique_ptr<Generator> reference_generator(const Model& model, const Graph& normal_form,
                                               int threads) {
  return std::make_unique<ReferenceGenerator>(model, normal_form, threads);
}

std::unique_ptr<Generator> package_generator(Engine& engine) {
  return std::make_unique<PackageGenerator>(engine);
}

}  // namespace ac
