#include "cli/weights_argument.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/environment.h"
#include "base/error.h"
#include "base/files.h"
#include "base/process_lock.h"
#include "base/warning.h"
#include "build/digest.h"
#include "capture/native.h"
#include "cli/command_page.h"
#include "cli/model_argument.h"
#include "cli/source_state.h"
#include "cli/text_ids.h"
#include "emit/draft.h"
#include "text/text_files.h"

namespace ac {
namespace {

namespace fs = std::filesystem;

// Goes up when the same source and options give other codes or scales.
constexpr int kVersion = 1;
constexpr std::size_t kMostText = 256u << 20;
constexpr std::int64_t kWindow = 512;  // tokens of a text that see each other

// Nothing: the folder is not there, or has been damaged.
std::optional<Model> read_kept(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder, error)) return {};
  try {
    return capture_native(folder);
  } catch (const Error& damage) {
    warn("{}; its weights are quantized again", damage.what());
    return {};
  }
}

}  // namespace

CLI::Option* WeightsArgument::add_to(CLI::App& command, const std::string& what) {
  CLI::Option* const weights =
      command
          .add_option("--weights", weights_,
                      "fp8 or int8, with a scale a row; int4, with a scale for each 128 of a row; "
                      "or int4:GROUP" +
                          what)
          ->type_name("FORMAT");
  if (CLI::Option* const front_end = command.get_option_no_throw("--front-end"))
    weights->excludes(front_end);  // it is the native one
  command
      .add_option("--head-weights", head_,
                  "keep leaves the head as it is; what --weights says quantizes it, too, if it "
                  "has weights of its own")
      ->type_name("FORMAT")
      ->capture_default_str()
      ->needs(weights)
      ->group(kRare);
  CLI::Option* const text =
      command
          .add_option("--calibrate", calibrate_,
                      "A text: errors count by how large the inputs are that each column of the "
                      "weights meets in it. The reference executor runs it on the CPU, slowly")
          ->type_name("FILE")
          ->needs(weights);
  command.add_option("--calibrate-tokens", tokens_, "Use the first tokens of that text, so many")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 24))
      ->needs(text)
      ->group(kRare);
  return weights;
}

void WeightsArgument::check() const {
  parse_weights(weights_, "--weights");
  if (head_ != "keep" && head_ != weights_)
    wrong_usage("--head-weights {}: a checkpoint has one format: write keep, or {}", head_,
                weights_);
}

Model WeightsArgument::capture(SourceArguments source, bool quiet) const {
  const fs::path path = file_of(source.source);
  if (fs::exists(path) && !is_package_or_packages(path) && !fs::exists(path / "config.json"))
    wrong_usage(
        "--weights {}: {}: a HuggingFace folder or id is wanted, with config.json and "
        "safetensors",
        weights_, source.source);
  source.options.front_end = FrontEnd::native;
  return source.capture(quiet);
}

Importance WeightsArgument::calibrate(const Model& model, Progress& progress) const {
  const fs::path& folder = model.stores.at("checkpoint");
  if (!text::has_tokenizer(folder))
    bad_input("{}: --calibrate needs a tokenizer, and there is no tokenizer.json", folder.string());
  const TextIds tokens(text::Tokenizer::load(folder), read_file(calibrate_, kMostText));
  const std::vector<TextIds::Ids> pieces =
      tokens.pieces(std::min(kWindow, model.graph.limit.tokens), tokens_);
  if (pieces.empty()) wrong_usage("--calibrate {}: there is no text", calibrate_);
  std::size_t total = 0;
  for (const TextIds::Ids& piece : pieces) total += piece.size();
  progress.stage("calibrate");
  return mean_squares(model, pieces,
                      [&](std::size_t done) { progress.step("tokens", done, total, ""); });
}

Quantized WeightsArgument::make(const Model& model, const fs::path& target, Progress& progress,
                                std::uint64_t most_in_shard) const {
  std::function<Importance()> measure;
  if (is_calibrated())
    measure = [&] {
      Importance measured = calibrate(model, progress);
      progress.stage("quantize");
      return measured;
    };
  else
    progress.stage("quantize");
  Draft draft(target);
  Quantized made =
      quantize(model,
               {.weights = parse_weights(weights_, "--weights"),
                .head = head_ != "keep",
                .measure = measure,
                .most_in_shard = most_in_shard,
                .on_layer =
                    [&](std::size_t done, std::size_t total, const std::string& module) {
                      progress.step("layers", done, total, module);
                    }},
               draft.path());
  if (!draft.publish(false)) wrong_usage("{} exists: choose another name", target.string());
  return made;
}

Model WeightsArgument::kept(const SourceArguments& source, bool quiet, Progress& progress) const {
  check();
  const fs::path cache = read_environment().cache;
  if (cache.empty())
    wrong_usage(
        "--weights {}: there is no cache folder for the weights: set XDG_CACHE_HOME or HOME, or "
        "write them with agentcompile quantize",
        weights_);
  const Model model = capture(source, quiet);
  const fs::path from = fs::canonical(model.stores.at("checkpoint"));
  Json key = {{"version", kVersion},
              {"source", from.string()},
              {"files", state_of_source(from)},
              {"weights", weights_},
              {"head", head_}};
  if (is_calibrated()) key["calibrate"] = {sha256(read_file(calibrate_, kMostText)), tokens_};
  const fs::path folder = cache / "agentcompile/weights" /
                          fmt::format("{}-{}-{}", plain_name(model.graph.name),
                                      plain_name(weights_), sha256(key.dump()).substr(0, 16));
  const auto find = [&] {
    std::optional<Model> known = read_kept(folder);
    if (known) progress.note(fmt::format("weights in {}: {}", weights_, folder.string()));
    return known;
  };
  if (std::optional<Model> known = find()) return *std::move(known);
  const ProcessLock lock(folder.string() + ".lock", [&](const std::string& owner) {
    progress.note(fmt::format("{} quantizes {}: waiting for that", owner, from.string()));
  });
  if (std::optional<Model> known = find()) return *std::move(known);
  progress.note(fmt::format("quantizing the weights of {} to {}, which is done once: {}",
                            from.string(), weights_, folder.string()));
  fs::remove_all(folder);  // of a damaged one
  const Quantized made = make(model, folder, progress);
  progress.summary(fmt::format("{} layers, relative error {:.4f}, {:.1f} MB", made.layers.size(),
                               made.plain.relative(), static_cast<double>(made.bytes) * 1e-6));
  return capture_native(folder);
}

}  // namespace ac
