#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "base/print_stderr.h"
#include "base/progress.h"
#include "base/table.h"
#include "cli/advisor.h"
#include "cli/commands.h"
#include "cli/gpu.h"
#include "cli/source_arguments.h"
#include "study/advise.h"

namespace ac {
namespace {

namespace fs = std::filesystem;

struct Advise {
  SourceArguments source;
  std::string output, device = "host", target;
  study::AdviseOptions options;
  AdvisorOptions advising;
  study::Author author;
  std::int64_t chunk = 512;
  bool json = false, quiet = false;

  void run() {
    choose_device();
    check_author(advising.who, author.model, author.date);
    check_output();
    const std::unique_ptr<Advisor> advisor = open_advisor(advising, read_environment());
    if (!advisor) wrong_usage("--advisor: say who is asked");
    Progress progress(quiet);
    progress.stage("capture");
    const Model model = source.capture();
    progress.stage("advise: " + advisor->name());
    const std::vector<study::AskedRegion> regions =
        study::advise(source.normal_form(model.graph), options, *advisor);
    progress.done();
    const std::vector<study::RecordedReply> replies =
        study::recorded(regions, advisor->name(), author);
    for (const study::AskedRegion& region : regions)
      if (!region.answered())
        print_stderr("no advice about {}: {}\n", region.answer.prompt.name,
                     region.answer.reply.failure);
    if (replies.empty())
      job_failed("{}: none of {} questions was answered", advisor->name(), regions.size());
    const std::size_t added = study::append_replies(output, replies);
    report(regions, replies.size(), added);
  }

  void choose_device() {
    if (target.empty())
      options.device = device == "cuda" ? the_gpu().info : device_info("host");
    else if (device != "host")
      wrong_usage("--target is for a GPU that is not here: leave out --device");
    else
      options.device = device_info(target);
  }

  // Replies cost time or money, and shall find a place.
  void check_output() const {
    const fs::path file(output), folder = fs::absolute(file).parent_path();
    if (fs::exists(file))
      study::read_replies(file);
    else if (!fs::is_directory(folder))
      wrong_usage("-o: there is no folder {}", folder.string());
  }

  void report(const std::vector<study::AskedRegion>& regions, std::size_t replies,
              std::size_t added) const {
    const auto counts = study::count_audits(regions);
    Json unanswered = Json::array(), audit = Json::object();
    Table table({"item", "accepted", "rejected", "reason"});
    std::size_t accepted = 0, rejected = 0;
    for (const auto& [key, count] : counts) {
      audit[key] = {{"accepted", count.accepted}, {"rejected", count.rejected}};
      accepted += count.accepted;
      std::string first = key, taken = fmt::format("{}", count.accepted);
      if (count.rejected.empty()) table.add({first, taken, "", ""});
      for (const auto& [reason, times] : count.rejected) {
        rejected += times;
        table.add(
            {std::exchange(first, ""), std::exchange(taken, ""), fmt::format("{}", times), reason});
      }
    }
    for (const study::AskedRegion& region : regions)
      if (!region.answered()) unanswered.push_back(region.answer.prompt.name);
    if (json) {
      fmt::print("{}\n", Json{{"file", output},
                              {"advisor", advising.who},
                              {"regions", regions.size()},
                              {"replies", replies},
                              {"new", added},
                              {"unanswered", unanswered},
                              {"accepted", accepted},
                              {"rejected", rejected},
                              {"audit", audit}}
                             .dump());
      return;
    }
    fmt::print(
        "{}: {} replies about {} regions, {} of them new\n{} items accepted, {} rejected\n{}",
        output, replies, regions.size(), added, accepted, rejected, table.text());
  }
};

}  // namespace

void add_study_advise_command(CLI::App& study) {
  CLI::App* command = study.add_subcommand(
      "advise", "Ask about a model's regions what compile would ask, and keep the replies");
  const auto advise = std::make_shared<Advise>();
  advise->source.add_to(*command);
  command
      ->add_option("-o,--output", advise->output,
                   "The replies (JSON lines), for study replay --advice; new ones are appended")
      ->type_name("FILE")
      ->required();
  command->add_option("--device", advise->device, "The device that is asked about")
      ->capture_default_str()
      ->check(CLI::IsMember({"host", "cuda"}));
  command->add_option("--target", advise->target,
                      "Ask about a GPU that is not here: sm_80, sm_89, sm_90 or sm_100");
  command->add_option("--regions", advise->options.regions,
                      "Only regions whose signature or ops have one of these in them");
  command->add_flag("--cover", advise->options.cover_only,
                    "Only the regions that the step is cut into by predicted cost: those that "
                    "compile asks about");
  command
      ->add_option("--max-context", advise->options.max_context,
                   "Tokens that a package can hold (default: 4096)")
      ->check(CLI::Range(1, 1 << 24));
  command
      ->add_option("--chunk", advise->chunk,
                   "As for compile; it changes nothing here, as only decode steps are asked about")
      ->check(CLI::Range(1, 1 << 16));
  add_advisor_options(*command, advise->advising);
  add_author_options(*command, advise->author.model, advise->author.date);
  command->add_flag("--quiet,-q", advise->quiet, "No progress on stderr");
  command->add_flag("--json", advise->json, "Print JSON");
  command->footer(
      "Example:\n"
      "  agentcompile study advise MODEL --target sm_90 --cover --advisor ask:questions "
      "-o replies.jsonl --model NAME --date 2026-11-23");
  command->callback([advise] { advise->run(); });
}

}  // namespace ac
