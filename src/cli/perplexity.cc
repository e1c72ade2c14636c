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
#include "cli/text_ids.h"
#include "cli/text_model.h"

namespace ac {
namespace {

// Returns the logarithm of each token's probability.
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
    const TextIds tokens(model.found.text().tokenizer(), words);
    if (other) check_alike(model, *other, tokens, words);
    const std::int64_t size =
        std::min({window, model.program().max_context,
                  other ? other->program().max_context : std::int64_t{INT64_MAX}});
    const std::vector<TextIds::Ids> pieces = tokens.pieces(size, most);
    // What follows the beginning is predicted; without one, all but the first token.
    const std::size_t first = std::max(std::ssize(tokens.begin), std::ptrdiff_t{1});
    std::size_t total = 0;
    for (const TextIds::Ids& piece : pieces) total += piece.size() - first;
    if (total == 0)
      wrong_usage("{}: there is no token to predict: {} tokens, in windows of {}", file,
                  tokens.ids.size(), size);

    std::int64_t same = 0;
    double sum = 0, largest = 0;
    TimingTurn turns(turns_of(*model.opened.device));
    const TimingTurn::Turn turn = turns.answer();
    Progress progress(text.engine.quiet);
    progress.stage("perplexity");
    std::size_t done = 0;
    for (const TextIds::Ids& piece : pieces) {
      for (Running* each : {&model, other.get()})
        if (each) each->opened.engine->reset();
      for (std::size_t i = 0; i + 1 < piece.size(); ++i) {
        const std::vector<double> mine = after(model, piece[i]);
        std::vector<double> theirs;
        if (other) theirs = after(*other, piece[i]);
        if (i + 1 < first) continue;
        const auto next = static_cast<std::size_t>(piece[i + 1]);
        model.loss -= mine[next];
        progress.step("tokens", ++done, total, "");
        if (!other) continue;
        other->loss -= theirs[next];
        const double away = divergence(theirs, mine);
        sum += away;
        largest = std::max(largest, away);
        same += std::ranges::max_element(mine) - mine.begin() ==
                std::ranges::max_element(theirs) - theirs.begin();
      }
    }
    progress.done();
    const auto count = static_cast<double>(total);
    Json result{{"tokens", total}, {"window", size}, {"perplexity", std::exp(model.loss / count)}};
    if (other) {
      result["against"] = {{"perplexity", std::exp(other->loss / count)},
                           {"mean_kl", sum / count},
                           {"largest_kl", largest},
                           {"same_likeliest_token", static_cast<double>(same) / count}};
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
               100 * other["same_likeliest_token"].get<double>());
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
      ->add_option(
          "--window", perplexity->window,
          "Cut the text into pieces of this many tokens; the model starts afresh with each")
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
