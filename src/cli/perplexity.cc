// How well a model predicts a text, and how far from another model it is: what quantised weights
// cost.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/progress.h"
#include "base/table.h"
#include "cli/command_page.h"
#include "cli/commands.h"
#include "cli/run_request.h"
#include "cli/text_model.h"

namespace ac {
namespace {

using Ids = std::vector<std::int64_t>;

// Of logits: the logarithm of each token's probability.
std::vector<double> log_probabilities(std::vector<double> logits) {
  const double largest = std::ranges::max(logits);
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - largest);
  const double log_sum = largest + std::log(sum);
  for (double& logit : logits) logit -= log_sum;
  return logits;
}

// KL(p || q), in nats.
double divergence(const std::vector<double>& p, const std::vector<double>& q) {
  double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i)
    if (const double probability = std::exp(p[i]); probability > 0)
      sum += probability * (p[i] - q[i]);
  return std::max(sum, 0.0);
}

// A text as the tokenizer has it, and what belongs before each piece of it.
struct TextIds {
  Ids begin, ids;

  TextIds(const text::Tokenizer& tokenizer, const std::string& text) {
    const auto plain = tokenizer.encode(text);
    const auto whole = tokenizer.encode(text, {.add_special = true});
    ids.assign(plain.begin(), plain.end());
    const auto at = std::ranges::search(whole, plain).begin();
    if (at != whole.end()) begin.assign(whole.begin(), at);
  }
  bool operator==(const TextIds&) const = default;
};

// A model with an engine.
struct Running {
  explicit Running(const TextArguments& given)
      : arguments(given),
        found(arguments, false),
        opened(arguments.engine.open(found.package(), false, found.take_device())) {}

  const Program& program() const { return opened.engine->program(); }

  const TextArguments arguments;
  FoundModel found;
  EngineArguments::Opened opened;
  double loss = 0;  // of all tokens, in nats
};

struct Perplexity {
  TextArguments text;
  std::string file, against;
  std::int64_t window = 512, most = 2048;
  bool json = false;

  void run() const {
    const std::string words = read_whole(file);
    Running model(text);
    std::unique_ptr<Running> other;
    if (!against.empty()) {
      TextArguments arguments = text;
      arguments.model = text.model.other(against);
      other = std::make_unique<Running>(arguments);
    }
    TextIds tokens(model.found.text().tokenizer(), words);
    if (other) check_alike(model, *other, tokens, words);
    tokens.ids.resize(std::min(tokens.ids.size(), static_cast<std::size_t>(most)));
    const std::int64_t room =
        std::min(model.program().max_context, other ? other->program().max_context : INT64_MAX);
    const std::int64_t piece =
        std::min(window, room) - static_cast<std::int64_t>(tokens.begin.size());
    if (piece < 2 || tokens.ids.size() < 2)
      wrong_usage("{}: there is no token to predict: {} tokens, in windows of {}", file,
                  tokens.ids.size(), std::min(window, room));

    std::int64_t count = 0, same = 0;
    double sum = 0, largest = 0;
    TimingTurn turns(turns_of(*model.opened.device));
    const TimingTurn::Turn turn = turns.answer();
    Progress progress(text.engine.quiet);
    progress.stage("perplexity");
    const auto size = std::ssize(tokens.ids);
    for (std::int64_t at = 0; at < size; at += piece) {
      Ids ids = tokens.begin;
      ids.insert(ids.end(), tokens.ids.begin() + at,
                 tokens.ids.begin() + std::min(at + piece, size));
      for (Running* each : {&model, other.get()})
        if (each) each->opened.engine->reset();
      for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
        progress.step("tokens", static_cast<std::size_t>(at) + i, static_cast<std::size_t>(size),
                      "");
        const auto next = static_cast<std::size_t>(ids[i + 1]);
        const bool is_scored = i + 1 >= tokens.begin.size();
        const std::vector<double> mine = after(model, ids[i]);
        std::vector<double> theirs;
        if (other) theirs = after(*other, ids[i]);
        if (!is_scored) continue;
        ++count;
        model.loss -= mine[next];
        if (other) {
          other->loss -= theirs[next];
          const double away = divergence(theirs, mine);
          sum += away;
          largest = std::max(largest, away);
          same += std::ranges::max_element(mine) - mine.begin() ==
                  std::ranges::max_element(theirs) - theirs.begin();
        }
      }
    }
    progress.done();
    Json result{{"tokens", count},
                {"window", piece + std::ssize(tokens.begin)},
                {"perplexity", std::exp(model.loss / count)}};
    if (other) {
      result["against"] = {{"perplexity", std::exp(other->loss / count)},
                           {"mean_kl", sum / count},
                           {"largest_kl", largest},
                           {"same_first_token", static_cast<double>(same) / count}};
    }
    json ? fmt::print("{}\n", result.dump()) : print(result);
  }

  static std::vector<double> after(Running& model, std::int64_t token) {
    model.opened.engine->decode(token);
    return log_probabilities(model.opened.engine->logits());
  }

  void check_alike(const Running& model, const Running& other, const TextIds& tokens,
                   const std::string& words) const {
    if (model.program().vocab != other.program().vocab)
      bad_input("{} has {} tokens, and {} has {}: they cannot be compared", text.model.name(),
                model.program().vocab, against, other.program().vocab);
    if (TextIds(other.found.text().tokenizer(), words) != tokens)
      bad_input("{} and {} have different tokenizers: they cannot be compared", text.model.name(),
                against);
  }

  void print(const Json& result) const {
    Table table({"model", "perplexity"});
    const auto add = [&](const std::string& name, const Json& of) {
      table.add({name, fmt::format("{:.4f}", of["perplexity"].get<double>())});
    };
    add(text.model.described(), result);
    if (result.contains("against")) add(against, result["against"]);
    fmt::print("{}{} tokens, in windows of {}\n", table.text(), result["tokens"].dump(),
               result["window"].dump());
    if (!result.contains("against")) return;
    const Json& other = result["against"];
    fmt::print("KL divergence from {}: {:.5f} nats a token, at most {:.3f}\n", against,
               other["mean_kl"].get<double>(), other["largest_kl"].get<double>());
    fmt::print("the likeliest token is the same for {:.1f} % of the tokens\n",
               100 * other["same_first_token"].get<double>());
  }
};

}  // namespace

void add_perplexity_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "perplexity", "How well a model predicts a text, and how far from another model it is");
  const auto perplexity = std::make_shared<Perplexity>();
  perplexity->text.model.add_to(*command);
  command->add_option("--text", perplexity->file, "The text; - is stdin")
      ->required()
      ->type_name("FILE");
  command
      ->add_option(
          "--against", perplexity->against,
          "Another MODEL of the same tokens, or MODEL itself with the weights that it has: "
          "its perplexity, and how far MODEL's probabilities are from its")
      ->type_name("MODEL");
  command
      ->add_option("--window", perplexity->window,
                   "The text is cut into pieces of so many tokens, each of which begins anew")
      ->capture_default_str()
      ->check(CLI::Range(2, 1 << 24));
  command->add_option("--tokens", perplexity->most, "Use the first tokens of the text, so many")
      ->capture_default_str()
      ->check(CLI::Range(2, 1 << 30));
  command
      ->add_option("--device", perplexity->text.engine.device,
                   "host, cuda or cuda:NUMBER (default: what the package is compiled for)")
      ->type_name("DEVICE");
  command
      ->add_option("--tokenizer", perplexity->text.tokenizer,
                   "A folder with the tokenizer, or FILE.gguf, instead of the model's own")
      ->type_name("FOLDER")
      ->group(kRare);
  command->add_flag("--json", perplexity->json, "Print one JSON object");
  command->add_flag("--quiet,-q", perplexity->text.engine.quiet, "No progress on stderr");
  command->footer(
      "Examples:\n"
      "  agentcompile perplexity MODEL --text text.txt\n"
      "  agentcompile perplexity MODEL --weights int4 --against MODEL --text text.txt\n"
      "Perplexity is the exponential of the mean loss of a token. The KL divergence is the\n"
      "other model's from MODEL's: 0 where all probabilities are the same. Tokens are run one by\n"
      "one, by the kernels that answer.");
  command->callback([perplexity] { perplexity->run(); });
}

}  // namespace ac
