#include "quantize/quantize.h"

#include <fmt/format.h>

#include <memory>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "base/progress.h"
#include "base/table.h"
#include "checkpoint/safetensors.h"
#include "cli/choice.h"
#include "cli/command_page.h"
#include "cli/commands.h"
#include "cli/weights_argument.h"

namespace ac {
namespace {

namespace fs = std::filesystem;

struct Quantize {
  SourceArguments source;
  WeightsArgument weights;
  std::string output;
  std::uint64_t shard_bytes = QuantizeOptions{}.most_in_shard;
  bool json = false, quiet = false;

  void run() const {
    weights.check();
    const fs::path target = fs::absolute(fs::path(output) / "").lexically_normal().parent_path();
    if (fs::exists(target)) wrong_usage("{} exists: choose another name", target.string());
    const Model model = weights.capture(source, quiet);
    Progress progress(quiet);
    const Quantized made = weights.make(model, target, progress, shard_bytes);
    progress.done();
    if (json)
      print_json(made, target);
    else
      print(made, target);
  }

  void print_json(const Quantized& made, const fs::path& target) const {
    Json layers = Json::array();
    for (const QuantizedLayer& layer : made.layers) {
      layers.push_back({{"module", layer.module},
                        {"shape", layer.shape},
                        {"relative_error", layer.plain.relative()}});
      if (weights.is_calibrated()) layers.back()["weighted_error"] = layer.weighted.relative();
    }
    Json result{{"folder", target.string()},
                {"weights", weights.text()},
                {"bytes_before", made.bytes_before},
                {"bytes", made.bytes},
                {"relative_error", made.plain.relative()}};
    if (weights.is_calibrated()) result["weighted_error"] = made.weighted.relative();
    result["layers"] = layers;
    fmt::print("{}\n", result.dump());
  }

  void print(const Quantized& made, const fs::path& target) const {
    Table table({"layer", "shape", "relative error", "weighted"});
    const auto add = [&](const std::string& name, const std::string& shape, const Squares& plain,
                         const Squares& weighted) {
      table.add({name, shape, fmt::format("{:.5f}", plain.relative()),
                 weights.is_calibrated() ? fmt::format("{:.5f}", weighted.relative()) : ""});
    };
    for (const QuantizedLayer& layer : made.layers)
      add(layer.module, show_shape(layer.shape), layer.plain, layer.weighted);
    add("all", "", made.plain, made.weighted);
    fmt::print("{}{}: {:.1f} MB, {:.1f} MB before\n", table.text(), target.string(),
               static_cast<double>(made.bytes) * 1e-6,
               static_cast<double>(made.bytes_before) * 1e-6);
  }
};

}  // namespace

void add_quantize_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("quantize", "Make a checkpoint whose linears have weights of 8 or 4 bits");
  const auto quantize = std::make_shared<Quantize>();
  command
      ->add_option("SOURCE", quantize->source.source,
                   "A HuggingFace directory or id (org/name[@revision]) in 16 or 32 bits, of an "
                   "architecture that needs no Python")
      ->required();
  command->add_flag("--download", quantize->source.options.download,
                    "Fetch an id from the HuggingFace hub first");
  command->add_option("--output,-o", quantize->output, "The folder to make")
      ->required()
      ->type_name("DIR");
  quantize->weights.add_to(*command)->required();
  command
      ->add_option("--shard-bytes", quantize->shard_bytes,
                   "Begin another file before one has more bytes of tensors than this")
      ->capture_default_str()
      ->check(kPositive)
      ->group(kRare);
  command->add_flag("--json", quantize->json, "Print one object: sizes and each layer's error");
  command->add_flag("--quiet,-q", quantize->quiet, "No progress on stderr");
  command->footer(
      "Examples:\n"
      "  agentcompile quantize MODEL -o QUANTIZED --weights int4\n"
      "  agentcompile chat QUANTIZED\n"
      "The folder is a checkpoint of compressed-tensors, which transformers reads, too.\n"
      "Embeddings and norms stay as they are. A layer's relative error is the root of the squared\n"
      "error of its weights over their squares; weighted, by the squares of the inputs that each\n"
      "column meets in the text of --calibrate.");
  command->callback([quantize] { quantize->run(); });
}

}  // namespace ac
