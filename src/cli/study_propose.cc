#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <set>

#include "base/error.h"
#include "base/progress.h"
#include "cli/advisor.h"
#include "cli/commands.h"
#include "study/propose.h"

namespace ac {
namespace {

// step.jsonl.gz: "step".
std::string stem_of(const std::filesystem::path& file) {
  std::filesystem::path name = file.filename();
  if (name.extension() == ".gz") name = name.stem();
  return name.stem().string();
}

struct Propose {
  std::vector<std::string> tables, others;
  std::string output, feedback = "true";
  study::ProposeOptions options;
  AdvisorOptions advising;
  int sessions = 5;
  bool by_chance = false, recorded_only = false, json = false, quiet = false;
  // Of all sessions: a recording gives its replies to equal questions in turn, and limits hold for
  // all calls together.
  std::unique_ptr<Provider> provider_ = {};

  void run() {
    if (by_chance == (advising.who != "none"))
      wrong_usage("say who proposes: --advisor WHO, or --by-chance");
    if (by_chance && options.takes_requests) wrong_usage("--requests: chance asks for nothing");
    options.feedback = feedback == "true"       ? study::Feedback::true_
                       : feedback == "permuted" ? study::Feedback::permuted
                       : feedback == "none"     ? study::Feedback::none
                                                : study::Feedback::other;
    if (by_chance && options.feedback != study::Feedback::true_)
      wrong_usage("--feedback {}: chance hears of nothing", feedback);
    if ((options.feedback == study::Feedback::other) == others.empty())
      wrong_usage("--feedback other and --other TABLE: give both, or none");
    if (!by_chance) {
      check_author(advising.who, options.model, options.date);
      advising.model = options.model, advising.date = options.date;
      provider_ = open_provider(advising, read_environment());
    }
    std::vector<study::Recording> recordings, other_recordings;
    for (const std::string& table : tables) recordings.push_back(study::read_recording(table));
    for (const std::string& table : others)
      other_recordings.push_back(study::read_recording(table));
    Progress progress(quiet);
    std::string lines;
    Json done = Json::array();
    int awaited = 0;
    std::set<std::string> names;
    for (std::size_t r = 0; r < recordings.size(); ++r)
      for (const study::TimedTable& table : recordings[r].tables) {
        const Json& header = recordings[r].header;
        const std::string about =
            fmt::format("{} of {} on {}", table.description, header.at("model").get<std::string>(),
                        header.at("device").get<std::string>());
        std::string name = stem_of(tables[r]);
        if (recordings[r].tables.size() > 1) name += fmt::format("-region-{}", table.region);
        if (!names.insert(name).second)
          wrong_usage("{}: questions name tables by their files, and another has this name",
                      tables[r]);
        const study::Answers answers(table, recorded_only);
        std::optional<study::Answers> other;
        if (!others.empty())
          other.emplace(study::most_alike(table, other_recordings), recorded_only);
        for (int i = 0; i < sessions; ++i) try {
            progress.stage(fmt::format("{}: session {} of {}", about, i + 1, sessions));
            study::ProposeOptions own = options;
            own.seed = search::derived_seed(options.seed, static_cast<std::uint64_t>(i));
            const study::ProposedSession session = study::propose(
                table, answers, about, provider_.get(),
                fmt::format("{}{}-session-{}", name, arm(), i + 1), own, other ? &*other : nullptr);
            lines += study::to_json(session).dump() + "\n";
            done.push_back(summary(table, session));
          } catch (const Error& error) {
            // The others go on, so that all their questions are there at once.
            if (error.fault() != Fault::advice_awaited) throw;
            ++awaited;
          }
      }
    progress.done();
    if (awaited > 0)
      throw Error(Fault::advice_awaited,
                  fmt::format("{} of {} sessions wait, as replies are missing in {}: answer each "
                              "NAME.prompt.txt in a file NAME.reply.txt and run the same command "
                              "again",
                              awaited, awaited + static_cast<int>(done.size()),
                              advising.who.substr(advising.who.find(':') + 1)));
    if (done.empty()) bad_input("these tables have nothing to search");
    // After all is done: sessions that wait for replies are searched again from their beginning.
    append(lines);
    if (json) {
      fmt::print("{}\n", done.dump());
      return;
    }
    for (const Json& one : done)
      fmt::print("{}: {} attempts, {} calls, best {:.4f} of the optimum\n",
                 one["arm"].get<std::string>(), one["attempts"].get<std::size_t>(),
                 one["calls"].get<std::size_t>(), one["share"].get<double>());
    fmt::print("appended to {}\n", output);
  }

  // In names of questions: what differs is asked anew.
  std::string arm() const {
    const std::string with = options.strategy == "tree" ? "" : "-" + options.strategy;
    return feedback == "true" ? with : fmt::format("{}-{}-feedback", with, feedback);
  }

  static Json summary(const study::TimedTable& table, const study::ProposedSession& session) {
    // What a model says may be less than the best that was timed.
    const double best = session.best > 0 ? std::min(1.0, *table.optimum() / session.best) : 0.0;
    return {{"arm", session.arm},
            {"table", table.description},
            {"attempts", session.plans.size()},
            {"calls", session.calls.size()},
            {"share", best}};
  }

  void append(const std::string& lines) const {
    std::ofstream file(output, std::ios::app | std::ios::binary);
    file << lines << std::flush;
    if (!file) job_failed("{}: cannot write it", output);
  }
};

}  // namespace

void add_study_propose_command(CLI::App& study) {
  CLI::App* command = study.add_subcommand(
      "propose",
      "Search recorded tables while an advisor, who sees what was tried, proposes changes");
  const auto propose = std::make_shared<Propose>();
  command->add_option("TABLE", propose->tables, "Recorded tables (.jsonl, .jsonl.gz)")->required();
  command->add_option("-o,--output", propose->output, "Searches are appended to it (JSON lines)")
      ->type_name("FILE")
      ->required();
  add_advisor_options(*command, propose->advising);
  add_author_options(*command, propose->options.model, propose->options.date);
  command->add_flag("--by-chance", propose->by_chance,
                    "Nobody is asked: legal changes are proposed at random");
  command
      ->add_option("--feedback", propose->feedback,
                   "What the advisor hears of attempts: what was measured, that of other attempts, "
                   "nothing, or what a search over another table came by")
      ->capture_default_str()
      ->check(CLI::IsMember({"true", "permuted", "none", "other"}));
  command
      ->add_option("--other", propose->others, "The other tables, of which the most alike is taken")
      ->type_name("TABLE");
  command->add_option("--search", propose->options.strategy, "The strategy beside the proposals")
      ->capture_default_str()
      ->check(CLI::IsMember({"tree", "surrogate"}));
  command->add_option("--sessions", propose->sessions, "Searches of each table")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command->add_option("--attempts", propose->options.attempts, "Points that a search may try")
      ->capture_default_str()
      ->check(CLI::Range(1, 100'000));
  command
      ->add_option("--proposals", propose->options.proposals.wanted, "The most proposals of a call")
      ->capture_default_str()
      ->check(CLI::Range(1, 16));
  command->add_option("--calls", propose->options.proposals.calls, "The most calls of a search")
      ->capture_default_str()
      ->check(CLI::Range(0, 10'000));
  command->add_option("--seed", propose->options.seed, "Seed of everything that is random")
      ->capture_default_str();
  command->add_flag("--requests", propose->options.takes_requests,
                    "The advisor may also ask people for values that the space lacks: they are "
                    "kept, and not run");
  command->add_flag("--recorded-only", propose->recorded_only,
                    "Of a step whose schedules are too many to list, search those that were timed, "
                    "without a model of the others");
  command->add_flag("--json", propose->json, "Print what was searched as JSON");
  command->add_flag("-q,--quiet", propose->quiet, "No progress");
  command->footer(
      "Example:\n  agentcompile study propose step.jsonl.gz --advisor ask:questions -o "
      "proposed.jsonl \\\n      --model NAME --date 2026-01-31\nThen answer the questions in the "
      "folder, and run it again.");
  command->callback([propose] { propose->run(); });
}

}  // namespace ac
