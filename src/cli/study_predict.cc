#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "base/files.h"
#include "cli/commands.h"
#include "cli/source_arguments.h"
#include "study/predict.h"

namespace ac {
namespace {

struct Predict {
  SourceArguments source;
  std::string table, output, constants = "unfitted";
  std::vector<std::string> regions;
  std::optional<std::uint64_t> shuffle;
  bool json = false;

  void run() {
    const study::Recording recording = study::read_recording(table);
    if (const Json dtype = recording.header.value("dtype", Json()); dtype.is_string())
      source.dtype = dtype_from_torch_name(dtype.get<std::string>());
    const Model model = source.capture(true);
    const Calibration& calibration =
        constants == "unfitted" ? study::unfitted_constants() : device_info("host").constants();
    const study::Predicted made = study::predict(recording, source.normal_form(model.graph),
                                                 {calibration, constants, regions, shuffle});
    std::string lines = made.recording.header.dump() + "\n";
    for (const Json& header : made.recording.resumed) lines += header.dump() + "\n";
    for (const study::TimedTable& region : made.recording.tables) {
      lines += study::region_line(region).dump() + "\n";
      if (!region.fallback.empty())
        lines += study::fallback_line(region.region, region.fallback).dump() + "\n";
      for (const tune::TimedPoint& point : region.points)
        lines += study::to_json(point, region.region).dump() + "\n";
    }
    write_file(output, lines);
    if (json)
      fmt::print("{}\n", Json{{"file", output},
                              {"regions", made.recording.tables.size()},
                              {"points", made.points},
                              {"unknown", made.unknown}}
                             .dump());
    else
      fmt::print("{}: {} regions, {} plans; {} others are unknown today and left out\n", output,
                 made.recording.tables.size(), made.points, made.unknown);
  }
};

}  // namespace

void add_study_predict_command(CLI::App& study) {
  CLI::App* command = study.add_subcommand(
      "predict",
      "Give the plans of a recorded table other predictions, for searches that start "
      "from these");
  const auto predict = std::make_shared<Predict>();
  predict->source.add_to(*command);
  command->add_option("TABLE", predict->table, "A recorded table of the model's regions")
      ->required();
  command->add_option("-o,--output", predict->output, "The table with the new predictions")
      ->type_name("FILE")
      ->required();
  command
      ->add_option("--constants", predict->constants,
                   "Of the cost model. unfitted: those of a GPU on which nothing was measured; "
                   "fitted: those that this program has")
      ->capture_default_str()
      ->check(CLI::IsMember({"unfitted", "fitted"}));
  command->add_option("--regions", predict->regions,
                      "Only regions whose signature or ops have one of these in them");
  command
      ->add_option("--shuffle", predict->shuffle,
                   "Put plans with equal predictions in an order of chance, by this seed; else "
                   "they are in the planner's")
      ->type_name("SEED");
  command->add_flag("--json", predict->json, "Print JSON");
  command->footer(
      "Example:\n"
      "  agentcompile study predict MODEL regions.jsonl.gz -o stranger.jsonl");
  command->callback([predict] { predict->run(); });
}

}  // namespace ac
